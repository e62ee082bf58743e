"""Find the commands that a command starts: as a wrapper, in a shell's `-c`, in `eval`, `find -exec` and the like."""

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import NamedTuple

from acp_agent.core.data import frozen
from acp_agent.gates.shell.command import CUT, MAX_DEPTH, Command, is_cut
from acp_agent.gates.shell.options import Wrapper, option_texts, peel, shell_call, tables
from acp_agent.gates.shell.words import parameters

_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")
_FD_RUNS = re.compile(r"(?:-[HIusigFalLp01q]*[xX]|--exec(?:-batch)?(?:=|\Z))(.*)", re.DOTALL)
_STDIN_FILE = re.compile(r"-|/dev/stdin|(?:/dev|/proc/(?:self|\$\$|\d+))/fd/\d+")
_OWN_PROGRAM = re.compile(r"\$0|\$\{0\}|/proc/(?:self|\$\$|\d+)/exe")  # the shell that runs the text
_ENV_BLANK = re.compile(r"\\[_tnrfv]")  # in `env -S`
_CALLBACKS = frozenset(("mapfile", "readarray", "complete", "compgen", "bind"))
_ESCAPERS = frozenset(
    (
        "ed", "ex", "vi", "vim", "nvim", "view", "less", "more", "dc", "ftp", "sftp", "gdb", "lldb", "psql", "mysql",
        "sqlite3",
    )
)  # fmt: skip
WORD_RUNNERS = _CALLBACKS | _ESCAPERS | {"hash", "make", "gmake", "crontab"}
"""Programs that may run command lines in their words or their input."""

_ESCAPED = re.compile(
    r"^[^\S\n]*[+:]*(?:sil(?:ent)?!?\s+)?(?:\\?!|(?:\.sh|\.shell|\.system|system|shell)\s)[^\S\n]*([^\n]+)",
    re.MULTILINE,
)  # the command in a line of such a program
_RECIPE = re.compile(r"^(?:\t[\t @+-]*|[^\t#\n][^;\n]*;)([^\n]+)", re.MULTILINE)
_SCHEDULED = re.compile(r"^[^\S\n]*(?:@\w+|(?:\S+[^\S\n]+){4}\S+)[^\S\n]+([^\n]+)", re.MULTILINE)
_STARTING = frozenset(("if", "then", "else", "elif", "while", "until", "do", "{", "!", "coproc"))

_MAKE_PROGRAMS = frozenset(("SHELL", "CC", "CXX", "CPP", "FC", "LD", "AR", "AS", "RM", "MAKE", "LEX", "YACC", "TEX"))
_COMMAND_VARIABLES = frozenset(
    (
        "GIT_EXTERNAL_DIFF", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER", "GIT_SSH", "GIT_SSH_COMMAND",
        "GIT_ASKPASS", "GIT_PROXY_COMMAND", "SSH_ASKPASS", "EDITOR", "VISUAL", "PAGER", "MANPAGER", "BROWSER",
        "PROMPT_COMMAND", "RUSTC_WRAPPER", "LESSOPEN",
    )
)  # fmt: skip
_VIM = frozenset(("vim", "vi", "nvim", "ex", "view"))
_BUNDLED_C = re.compile(r"-[A-Za-z]+c")
_SED_COMMAND = re.compile(r"(?:^|[;{}\n\s\d$/!,~+])e[ \t]+([^\n]+)")
_SED_REPLACED = re.compile(  # only one way to read a backslash, or many of them would take for ever
    r"s([^\w\s\\])(?:\\.|(?!\1)[^\\])*\1((?:\\.|(?!\1)[^\\])*)\1[gpIiMm0-9]*e", re.DOTALL
)

MAX_GUESSED = 64
"""The most words of an unclear call at which a command may begin. A text with more counts as unread."""

MAX_WRAPPERS = 2 * MAX_DEPTH
"""The most nested wrappers that are read."""


class Nested(NamedTuple):
    """The commands of a text inside another text (`sh -c TEXT`), or why they are unclear."""

    commands: tuple[Command, ...] = ()
    unclear: str = ""


ReadText = Callable[[str, Mapping[str, tuple[str, ...]], str], Nested]
"""Reads a nested text with the values of its parameters (`$0`, `$1`, `$@`) and its input."""


@frozen
class Expander:
    """Fills in a command's fields about what it starts: `runs`, `wrapper`, `appended`, `unclear` and `assignments`.

    read        reads nested texts
    guess       whether to list every command that an unclear wrapper may start, for gates that forbid
    files       the texts that the same command line wrote to files, by file name, in case it runs them as scripts
    functions   the names of the functions that the command line defines
    call        returns what a call of a function runs
    guessed     whether its commands are themselves guesses about an unclear wrapper
    """

    read: ReadText
    guess: bool
    files: Mapping[str, str]
    functions: frozenset[str] = frozenset()
    call: Callable[[Command], tuple[Command, ...]] | None = None
    guessed: bool = False

    def expand(self, command: Command, depth: int = 0) -> Command:
        """Return the command with everything that it starts. A function of the same name may run as well."""
        expanded = self._program(command, depth)
        if self.guess and (expanded.assignments or command.argv[:1] == ("export",)):
            # Variables may name a command, as in `GIT_EXTERNAL_DIFF='…' git diff`, or a file that a shell runs.
            words = command.argv[1:] if command.argv[:1] == ("export",) else expanded.assignments
            pairs = [word.partition("=") for word in words]
            values = [value for name, _, value in pairs if name in _COMMAND_VARIABLES and expanded.argv]
            values += [self._written(value) for name, _, value in pairs if name in ("BASH_ENV", "ENV")]
            values += [f"f{value}" for name, _, value in pairs if name.startswith("BASH_FUNC_")]
            expanded = self._texts(expanded, values) if any(values) else expanded
        if self.call is not None and command.argv and command.argv[0] in self.functions:
            return replace(expanded, runs=(*expanded.runs, *self.call(command)))
        return expanded

    def _program(self, command: Command, depth: int) -> Command:
        name, args = command.name, command.argv[1:]
        if not name:
            return command
        if self.guess and (texts := _own_texts(command)):
            command = self._texts(command, texts)
        if depth >= MAX_WRAPPERS:
            return replace(command, unclear="has too many wrappers inside one another")
        written = self._written(command.argv[0])
        if written:
            return self._texts(command, [written])
        wrapper, skip = wrapper_of(name, args) if self.guess or name != "coproc" else (None, 0)
        if wrapper is None and self.guess:
            wrapper, skip = _after_options(name, args)
        if wrapper is not None and wrapper.vague:
            runs = self._guesses(command, depth + 2)
            return replace(command, unclear=f"{name}: it is unclear where its command begins", runs=runs)
        if wrapper is not None:
            return self._peel(command, wrapper, skip, depth)
        if name in tables().shells or (self.guess and _OWN_PROGRAM.fullmatch(command.argv[0])):
            return self._shell(command)
        if name in _STARTING and args:  # the parser takes a reserved word for a program, as in `time ! ls`
            inner = self.expand(Command(args, patterns=command.patterns), depth + 1)
            return replace(command, runs=(inner,), unclear="" if self.guess else f"{name} is a word of the shell")
        return self._other(command, depth)

    def _peel(self, command: Command, wrapper: Wrapper, skip: int, depth: int) -> Command:
        peeled = peel(wrapper, command.argv[1 + skip :])
        if peeled.unclear:
            runs = self._guesses(command, depth)
            return replace(command, unclear=f"{command.name}: {peeled.unclear}", runs=runs)
        if depth and command.name == "time" and peeled.assignments and not self.guess:
            return replace(command, unclear="time may be a program, which takes a variable for a program")
        command = replace(
            command,
            assignments=(*command.assignments, *peeled.assignments),
            wrapper=not wrapper.appended,
            appended=wrapper.appended,
        )
        texts = list(peeled.texts[:1])
        if texts and command.name == "env":  # `env -S 'a b' c` runs `env a b c`
            split = (_ENV_BLANK.sub(" ", text).partition("\\c")[0] for text in peeled.texts)
            texts = [" ".join(("env", *split, *peeled.argv))]
        if wrapper.joined and peeled.argv:
            texts.append(" ".join(peeled.argv))
        if self.guess and wrapper.appended and (peeled.argv or wrapper.joined):  # alone, xargs runs echo
            command = self._fed(command, peeled.argv, depth)
        if texts:
            command = self._texts(command, texts)
            return command if self.guess else replace(command, unclear=f"{command.name} splits a text into words")
        if not peeled.argv:
            return command
        if command.name == "coproc" and peeled.argv[1:2] and peeled.argv[1] in _STARTING:
            peeled = peeled._replace(argv=peeled.argv[1:])  # `coproc NAME { …; }`
        before = command.argv[: len(command.argv) - len(peeled.argv) + 1]
        if not self.guess and not command.patterns.isdisjoint(before):
            return replace(command, unclear=f"{command.name}: what it starts is named by a pattern")
        inner = self.expand(Command(peeled.argv, stdin=command.stdin, patterns=command.patterns), depth + 1)
        return _checked(replace(command, runs=(inner, *command.runs)))

    def _fed(self, command: Command, argv: tuple[str, ...], depth: int) -> Command:
        """Return the command with what `echo words | xargs argv` or `parallel argv ::: words` may run.

        That is `argv words`. Each word may also take the place of a mark (`{}`), be the program that a wrapper starts,
        or be shell text.
        """
        at = next((at for at, word in enumerate(argv) if word.startswith(":::")), len(argv))
        files = option_texts(frozenset(("-a", "--arg-file")), command.argv[1:])
        given = "\n".join(filter(None, (command.stdin, *map(self._written, files), *argv[at + 1 :])))
        words, argv = tuple(given.split()), argv[:at]
        if not words:
            return command
        patterns = command.patterns.union(word for word in words if any(char in word for char in "*?["))
        programs = range(1, len(words)) if argv and wrapper_of(argv[0], argv[1:])[0] is not None else range(0)
        marks = [mark for mark in _marks(command.argv) if any(mark in word for word in argv)]
        parts = dict.fromkeys((*given.splitlines(), *words))
        some = chain(
            ((*argv, *words),),
            ((*argv, *words[at:]) for at in programs),
            (tuple(word.replace(mark, part) for word in argv) for mark in marks for part in parts),
        )
        calls = [*islice(some, MAX_GUESSED + 1)]
        fed = (self.expand(Command(call, patterns=patterns), depth + 1) for call in calls[:MAX_GUESSED])
        command = replace(command, runs=(*command.runs, *fed))
        as_text = not argv or Command(argv).name in tables().shells or is_cut(given)
        texts = [given] if as_text else []
        return self._texts(command, [CUT, *texts] if len(calls) > MAX_GUESSED else texts)

    def _guesses(self, command: Command, depth: int) -> tuple[Command, ...]:
        """Return what an unclear command may start. Each word that is no option may be the beginning of a command."""
        if not self.guess or self.guessed:  # the words of a guess are words of the outer command, too
            return ()
        starts = [index for index, word in enumerate(command.argv) if index and not word.startswith("-")]
        inner = replace(self, guessed=True)
        found = [inner.expand(Command(command.argv[start:]), depth + 2) for start in starts[:MAX_GUESSED]]
        further = [CUT] if len(starts) > MAX_GUESSED else []  # a text that cannot be read
        lines = self._texts(Command(()), [*further, *(word for word in command.argv[1:] if " " in word)])
        return (*found, *lines.runs)

    def _shell(self, command: Command) -> Command:
        if not self.guess and not command.patterns.isdisjoint(command.argv):
            return replace(command, unclear=f"{command.name}: what it runs is named by a pattern")
        call = shell_call(command.argv[1:])
        if call.unclear:
            runs = self._guesses(command, MAX_DEPTH)
            return replace(command, unclear=f"{command.name}: {call.unclear}", runs=runs)
        if call.texts:
            argv = call.operands or (command.name,)  # `$0`, `$1`, … in the text of `sh -c TEXT ARGV…`
            command = self._texts(command, list(call.texts), {"0": argv[:1], **parameters(argv[1:])})
            if not command.unclear and command.name not in tables().same_syntax:
                return replace(command, unclear=f"{command.name} has a syntax of its own")
            return command
        script = call.operands[0] if call.operands and not call.stdin else "-"
        if _STDIN_FILE.fullmatch(script):
            files = [self._written(each.target) for each in command.redirections if each.operator == "<"]
            if self.guess and (command.stdin or any(files)):
                return self._texts(command, [command.stdin, *files])
            return replace(command, unclear=f"{command.name} runs its input")
        written = self._written(script)
        return self._texts(command, [written]) if written else command

    def _scripts(self, command: Command) -> list[str]:
        """Return the texts that a program may read as its script: the first file that the line wrote, `/dev/stdin`."""
        if not (self.files or command.stdin):
            return []
        written = next((text for word in command.argv[1:] if (text := self._written(word))), "")
        named = any(word[:1] == "/" and _STDIN_FILE.fullmatch(word) for word in command.argv[1:])
        return [*filter(None, (written, command.stdin if named else ""))]

    def _written(self, name: str) -> str:
        return self.files.get(posixpath.normpath(name) if "/" in name else name, "")

    def _other(self, command: Command, depth: int) -> Command:
        texts, name, args = tables().text, command.name, command.argv[1:]
        if self.guess and tables().interpreter(name):  # the blocklist judges its input
            codes = (Command((name,), stdin=script) for script in self._scripts(command))
            command = replace(command, runs=(*command.runs, *codes))
        match name:
            case "find" | "gfind" | "bfs":
                inner = _find(args)
            case "fd" | "fdfind":
                inner = _fd(args)
            case "start-stop-daemon":
                inner = _daemon(args)
            case "eval" | "alias" | "trap":
                return self._texts(command, _builtin_texts(name, args))
            case "source" | ".":
                written = self._written(args[0]) if args else ""
                stdin = command.stdin if self.guess and args and _STDIN_FILE.fullmatch(args[0]) else ""
                return self._texts(command, [text for text in (written, stdin) if text])
            case "sed" | "gsed" if self.guess:
                files = option_texts(frozenset(("-f", "--file")), args)
                texts_of = [command.stdin if _STDIN_FILE.fullmatch(file) else self._written(file) for file in files]
                scripts = [word for word in (*args, *texts_of) if "e" in word or is_cut(word)]
                found = [match[1] for word in scripts for match in _SED_COMMAND.finditer(word)]
                found += [match[2] for word in scripts for match in _SED_REPLACED.finditer(word)]
                return self._texts(command, [*found, *([CUT] if any(map(is_cut, scripts)) else [])])
            case "git" if self.guess:
                aliases = [word[1:] for word in args if word.startswith("!")] if "config" in args else []
                return self._texts(command, [" ".join(_git_runs(args)), *aliases, *option_texts(texts[name], args)])
            case "at" | "batch" if self.guess and command.stdin:
                return self._texts(command, [command.stdin])
            case _ if name in texts:
                args = tuple("-c" if name in _VIM and _BUNDLED_C.fullmatch(word) else word for word in args)
                return self._texts(command, option_texts(texts[name], args)) if self.guess else command
            case _:
                return command
        runs = tuple(self.expand(Command(argv, patterns=command.patterns), depth + 1) for argv in inner if argv)
        return _checked(replace(command, runs=runs, appended=bool(runs)))

    def _texts(
        self, command: Command, texts: list[str], values: Mapping[str, tuple[str, ...]] | None = None
    ) -> Command:
        read = [self.read(text, values or {}, command.stdin) for text in texts if text.strip(" \t\n")]
        return replace(
            command,
            runs=(*command.runs, *(inner for each in read for inner in each.commands)),
            unclear=next((each.unclear for each in read if each.unclear), command.unclear),
        )


def _own_texts(command: Command) -> list[str]:
    """Return the command lines in the input and the arguments of a program with a language of its own."""
    name, args, stdin = command.name, command.argv[1:], command.stdin
    if is_cut(stdin) and (name in _ESCAPERS or name in ("make", "gmake", "crontab")):
        return [CUT]
    if name in _CALLBACKS:  # `mapfile -C CODE`, `bind -x '"key": CODE'`
        keys = (text.partition(":")[2] for text in option_texts(frozenset(("-x",)), args))
        return [*keys, *option_texts(frozenset(("-C",)), args)]
    if name == "hash":
        return option_texts(frozenset(("-p",)), args)
    if name in _ESCAPERS:
        return _matches(_ESCAPED, (*args, stdin))
    if name in ("make", "gmake"):
        pairs = [word.partition("=") for word in args if "=" in word and word[0] != "-"]
        values = [value for name, _, value in pairs if " " in value or name.rstrip(":?+") in _MAKE_PROGRAMS]
        return [*values, *_matches(_RECIPE, (stdin,))]
    return _matches(_SCHEDULED, (stdin,)) if name == "crontab" else []


def _marks(argv: tuple[str, ...]) -> set[str]:
    """Return the texts for which `xargs` or `parallel` may put in a word: `{}`, and those that its options name."""
    named = (word.partition("=")[2] for word in argv if word.startswith("--replace="))
    short = option_texts(frozenset(("-I", "-i", "-J")), argv[1:])
    return {"{}", *filter(None, (*named, *short))}


def _matches(pattern: re.Pattern[str], texts: tuple[str, ...]) -> list[str]:
    """Return what the group of a pattern matches in texts. Equal texts are returned once."""
    return list(dict.fromkeys(match[1] for text in texts for match in pattern.finditer(text)))


def _git_runs(args: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that `git bisect run` or `git submodule foreach` starts."""
    for first, second in (("bisect", "run"), ("submodule", "foreach")):
        for at in range(len(args) - 1):
            if args[at] == first and second in args[at + 1 : at + 4]:
                rest = args[args.index(second, at + 1) + 1 :]
                return tuple(word for word in rest if word not in ("--recursive", "--quiet", "-q"))
    return ()


def _checked(command: Command) -> Command:
    """Return the command. It is marked as unclear if it puts words into a shell's text (`xargs -I% sh -c 'git %'`)."""
    shells = tables().shells
    if command.appended and any(each.name in shells or each.name == "eval" for each in command.walk()):
        return replace(command, unclear=f"{command.name} puts unknown words into a shell's text")
    return command


def wrapper_of(name: str, args: tuple[str, ...]) -> tuple[Wrapper | None, int]:
    """Return the wrapper of a command, and the number of words after its name that belong to it (`uv run`: 1)."""
    if name in tables().wrappers:
        return tables().wrappers[name], 0
    known = tables().commands.get(name)
    if known and args and args[0] in known:
        return known[args[0]]._replace(runner=True), 1
    return None, 0


def _after_options(name: str, args: tuple[str, ...]) -> tuple[Wrapper | None, int]:
    """Return what `wrapper_of` returns, for a program with options before its subcommand (`npm --silent exec`)."""
    known = tables().commands.get(name, {})
    for at, word in enumerate(args):
        if word in known:
            return known[word], at + 1
        if not word.startswith("-") and not (at and args[at - 1].startswith("-")):
            break
    return None, 0


def is_runner(command: Command) -> bool:
    """Return whether a command needs approval in addition to the command that it starts (`chroot`, `uv run`)."""
    wrapper, _ = wrapper_of(command.name, command.argv[1:])
    return wrapper is not None and wrapper.runner


def _find(args: tuple[str, ...]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    index = 0
    while index < len(args):
        if args[index] not in _FIND_RUNS:
            index += 1
            continue
        end = next((at for at in range(index + 1, len(args)) if args[at] in (";", "+")), len(args))
        found.append(args[index + 1 : end])
        index = end + 1
    return found


def _fd(args: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return what fd starts. Behind a `;` there may be another command."""
    found: list[tuple[str, ...]] = []
    index = 0
    while index < len(args):
        index += 1
        if option := _FD_RUNS.fullmatch(args[index - 1]):
            end = next((at for at in range(index, len(args)) if args[at] == ";"), len(args))
            found.append((*filter(None, option.groups()), *args[index:end]))
            index = end
    return found


def _daemon(args: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return what start-stop-daemon may start: any word may be the value of `--exec`, with the words after `--`."""
    end = args.index("--") if "--" in args else len(args)
    names = (word if word[:1] != "-" else word.partition("=")[2] or word[2:] for word in args[:end])
    return [(name, *args[end + 1 :]) for name in names if name]


def _builtin_texts(name: str, args: tuple[str, ...]) -> list[str]:
    words = [word for word in args if not word.startswith("-")] if name != "eval" else list(args)
    match name:
        case "eval":
            return [" ".join(words[1:] if words[:1] == ["--"] else words)]
        case "trap":
            return words[:1]
        case _:
            return [word.partition("=")[2] for word in words]
