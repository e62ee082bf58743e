"""What may be dangerous about calls of well-known programs, and what an approval "always" of them covers.

The facts are in `programs.toml`.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from acp_agent.gates.shell.arguments import (
    applies_patch,
    awk_asks,
    lists_all_settings,
    printf_asks,
    sed_asks,
    sets_nothing,
)
from acp_agent.gates.shell.command import Command, Opaque, ShellText
from acp_agent.gates.shell.grammar import AFTER, Grammar, ParsedArguments, WordKind, grammar_of, unversioned
from acp_agent.gates.shell.options import getopt, has_option, tables
from acp_agent.text import lazy_regex, packaged_table


class Destroying(NamedTuple):
    """Options and operands that destroy or overwrite, so that an approval "always" does not cover them.

    options  options; long ones also abbreviated, short ones also in a bundle
    words    patterns of operands
    valued   the letters of short options whose value may be attached, so that no bundle follows them
    sparing  options with which the operands are not destroyed
    """

    options: frozenset[str]
    words: tuple[re.Pattern[str], ...]
    valued: frozenset[str]
    sparing: frozenset[str]


class Program(NamedTuple):
    """One entry of the table. `programs.toml` explains the keys."""

    words: tuple[re.Pattern[str], ...] = ()
    args: tuple[re.Pattern[str], ...] = ()
    adds: frozenset[str] = frozenset()
    remotes: frozenset[str] = frozenset()
    asks: bool = False
    key: str = "program"
    deep: frozenset[str] = frozenset()
    destroys: Destroying | None = None
    sub: "Mapping[str, Program]" = MappingProxyType({})


_UNLISTED = Program()


class ProgramTable(NamedTuple):
    """All of `programs.toml`."""

    programs: Mapping[str, Program]
    aliases: Mapping[str, str]
    harmless: frozenset[str]
    neutral: frozenset[str]
    state: frozenset[str]
    variables: frozenset[str]
    plain: frozenset[str]
    careful: frozenset[str]
    reads: frozenset[str]
    through: frozenset[str]
    unswayed: frozenset[str]
    listing: frozenset[str]
    listers: frozenset[str]
    filters: frozenset[str]
    lasting: frozenset[str]


@cache
def program_table() -> ProgramTable:
    """Return the packaged table, a constant that is read when the first command is judged."""
    data = packaged_table("acp_agent.gates.shell", "programs")
    lists = (
        *("harmless", "neutral", "state", "variables", "plain", "careful"),
        *("reads", "through", "unswayed", "listing", "listers", "filters"),
        "lasting",
    )
    return ProgramTable(
        MappingProxyType({name: _program(each) for name, each in data["programs"].items()}),
        MappingProxyType(data["aliases"]),
        *(frozenset[str](data[key]) for key in lists),
    )


def _program(table: dict[str, Any]) -> Program:
    words: list[str] = table.get("destroys", [])
    destroying = Destroying(
        frozenset(word for word in words if word.startswith("-")),
        _patterns(word for word in words if not word.startswith("-")),
        frozenset(table.get("valued", "")),
        frozenset(table.get("sparing", [])),
    )
    return Program(
        words=_patterns(table.get("words", [])),
        args=_patterns(table.get("args", [])),
        adds=frozenset(table.get("adds", [])),
        remotes=frozenset(table.get("remotes", [])),
        asks=table.get("asks") is True,
        key=table.get("key", "program"),
        deep=frozenset(table.get("deep", [])),
        destroys=destroying if words else None,
        sub=MappingProxyType({name: _program(each) for name, each in table.get("sub", {}).items()}),
    )


def _patterns(texts: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    return tuple(map(lazy_regex, texts))


URL = "://"
_ELSEWHERE = lazy_regex(r"(?:--?[\w-]+=)?[A-Za-z][A-Za-z0-9+.-]*://(?!(?:localhost|127\.0\.0\.1|\[::1\])(?:[:/]|$)).*")
_SERVER = lazy_regex(r"(?:--?[\w-]+=)?[A-Za-z][A-Za-z0-9+.-]*://.*")
"""An address for git. A server on this machine may also belong to somebody else."""
_LOOSE_GLOB = lazy_regex(r"[*?\[](?!\.\w+$)")
_PREFIX_WORD = lazy_regex(r"[\w@./+:=,-]+")
_BUILD_INPUT = lazy_regex(
    r"(?i:(?:gnu)?makefile|justfile|rakefile|gemfile|dockerfile|jenkinsfile|package\.json|procfile)"
    r"|(?i:.*\.(?:pyi?|pth|mk|mak|rs|[cm]?[jt]sx?|sh|bash|zsh|fish|rb|go|java|kts?|gradle|groovy|toml|cfg|ini|ya?ml|c|h|cc|cpp|hpp"
    r"|cmake|ps1|bat|cmd|pl|pm|php|lua|ex|exs|hs|swift|zig|scala|sbt|bzl|ipynb))"
)
"""Files that builds, tests or interpreters run."""
_OTHER_HOST = lazy_regex(r"(?![\w+.-]+://)[^/]*:.*", re.DOTALL)
"""A repository on another host (`host:path`)."""
_SEDS = ("sed", "gsed")
_AWKS = ("awk", "gawk", "mawk", "nawk")


_INPUT = lazy_regex(r"-|/dev/(?:stdin|fd/\d+|tty)|/proc/\S*/fd/\d+")
_DUE = {"sqlite3": 2, "psql": 99, "mysql": 99, "gdb": 99} | dict.fromkeys(
    ("awk", "gawk", "mawk", "nawk", "ssh", "java", "emacs"), 0
)
"""How many operands an interpreter needs in order not to run its input. One that is not listed needs 1."""
_TELLS = frozenset(("--version", "-version", "--help", "-help", "-V", "-VV", "-h", "-?"))
_VERBOSE = frozenset(("python", "pypy", "mysql"))
_NONE = frozenset[str]()
_PYTHON, _NODE = frozenset(("-m", "-c")), frozenset(("--test", "--test-only", "--v8-options"))
_GIVEN = {
    "python": _PYTHON,
    "pypy": _PYTHON,
    "node": _NODE,
    "nodejs": _NODE,
    "psql": frozenset(("-c", "--command", "-l", "--list")),
    "mysql": frozenset(("-e", "--execute")),
}
"""Options with which an interpreter does not run its input."""
_VALUED = {"perl": "I", "ruby": "IrCEF", "php": "cdzt", "lua": "l"}
"""The letters of options with a value of interpreters that have no grammar."""


class Doubt(NamedTuple):
    """A reason to ask about a call of an allowed program. A rule that names `waived_by` itself waives it."""

    reason: str
    waived_by: str = ""


def doubts(command: Command) -> Iterator[Doubt]:
    """Yield why a call may run a program, write, read or send elsewhere, or change the shell."""
    table, name, args = program_table(), command.name, command.own
    if name in table.state:
        yield Doubt(f"{name} changes what later commands do")
    script = sed_asks(args) if name in _SEDS else awk_asks(args) if name in _AWKS else ""
    if script:
        yield Doubt(f"{name}: {script} may run, read or write more")
    if name == "printf" and (form := printf_asks(args, command.patterns)):
        yield Doubt(f"printf: {form} may set a variable")
    reached = _SERVER if name == "git" else _ELSEWHERE
    if name not in table.harmless and any(map(reached.fullmatch, args)):
        yield Doubt(f"{name} reaches the network", URL)
    known, grammar = _known(name) or _UNLISTED, grammar_of(command.tool)
    if known.asks:
        yield Doubt(f"{name} can do more than its arguments show")
    interpreter = tables().interpreter(name)
    if interpreter and _lacks_script(interpreter, args, grammar):
        yield Doubt(f"{name} runs its input, which no file shows", "-")
    if grammar is None:
        yield from _inline_code(name, args)
        return
    before_dashes = args[: args.index("--")] if "--" in args else args
    if name not in table.harmless and any(
        word in command.patterns and _LOOSE_GLOB.match(word) for word in before_dashes
    ):
        yield Doubt(f"{name}: a pattern may stand for a file that is called like an option")
    parsed = grammar.parse(args)
    yield from _unknown_doubts(name, parsed)
    yield from _known_doubts(known, name, parsed)
    # `python -m pytest` is judged as the program of that name.
    for module in parsed.values("-m") if tables().interpreter(name) == "python" else ():
        program = module if grammar_of(f"python:{module}") is None else f"python:{module}"
        if grammar_of(program) is None:
            yield Doubt(f"python -m: the module {module[:80]} is not known to be harmless", module.casefold())
        yield from doubts(Command((program, *parsed.operands), patterns=command.patterns))


def prefix(command: Command) -> tuple[str, ...]:
    """Return the words that an approval "always" of a command covers; empty if it covers only this whole text."""
    table, name, args = program_table(), command.name, command.argv[1:]
    bound = (
        not command.standard
        or command.runs
        or command.unclear
        or name in table.careful
        or name in tables().shells
        or name in tables().wrappers
        or tables().interpreter(name)
    )
    known = _known(name)
    listed = known or name in table.harmless or name in table.neutral or name in table.plain
    if bound or not name or not listed or (known and _destroys(known, name, args)):
        return ()
    words = _key(known or _UNLISTED, name, args)
    return words if all(map(_PREFIX_WORD.fullmatch, words)) else ()


def only_reads(command: Command) -> bool:
    """Return whether a command, with all that it starts, is proven to change nothing and to reach no host.

    Which files it reads is for the gates to judge: its paths may lead out of the roots or to secrets.
    """
    return not command.stdin and _only_reads(command)  # the cache must keep no long here-document


@lru_cache(64)  # several gates ask about each command of a call
def _only_reads(command: Command) -> bool:
    table, name = program_table(), command.name
    if not (name and command.standard) or command.unclear:
        return False
    if (command.assignments or command.redirections) and not _leaves_no_trace(command):
        return False
    if command.runs:
        # What `xargs` reads may name any file, and `-execdir` starts a program in folders that nobody judges.
        finds = name in ("find", "gfind") and "-execdir" not in command.argv
        inner = all(each.name in table.harmless for each in command.runs) if finds else name in table.through
        return inner and all(map(only_reads, command.runs)) and (not finds or _reads_itself(command))
    return _reads_itself(command) or command.argv[:2] in (("command", "-v"), ("command", "-V"))


def _leaves_no_trace(command: Command) -> bool:
    variables = program_table().variables
    set_only = all(each.partition("=")[0] in variables for each in command.assignments)
    return set_only and all(each.harmless for each in command.redirections)


def _reads_itself(command: Command) -> bool:
    """Return whether a program only reads, by its grammar, which must know every word of the call."""
    table, name, grammar = program_table(), command.name, grammar_of(command.tool)
    if name not in table.reads or overwrites(command) or next(doubts(command), None) is not None:
        return False
    if grammar is None:  # it does no harm with any words
        return name != "cd" or any(not word.startswith("-") for word in command.own)  # a bare `cd` goes home
    if grammar.single and "--" in command.own:  # find does not end its options there
        return False
    if name not in table.unswayed and any(word.startswith(("*", "?", "[")) for word in command.patterns):
        return False
    parsed = grammar.parse(command.own)
    if any(each.kind is WordKind.WRITE for each in parsed.arguments):
        return False
    if WordKind.WRITE in grammar.operands and command.patterns:
        return False
    return name != "git" or _git_reads(parsed)


def _git_reads(parsed: ParsedArguments) -> bool:
    table, verbs = program_table(), parsed.verbs
    if " ".join(("git", *verbs)) not in table.reads:
        return False
    if verbs not in (("branch",), ("tag",)):
        return True
    options = set(parsed.options)
    lists = not options.isdisjoint(table.listing)
    numbered = {each for each in options if re.fullmatch(r"-n\d+", each)}
    return options - numbered <= table.listing | table.listers and (lists or not parsed.operands)


def spares(command: Command) -> bool:
    """Return whether a program destroys with some operands or options, which an approval "always" does not cover."""
    known = _known(command.name)
    return known is not None and _destroying(known, command.name, command.argv[1:])[0] is not None


def exceeds(command: Command, named: Sequence[str]) -> bool:
    """Return whether a call destroys or overwrites, and the words that a rule names (`git`, `push`) do not say so."""
    name, known = command.name, _known(command.name)
    if known is None or not _destroys(known, name, command.argv[1:]):
        return False
    said = tuple(named[named.index(name) + 1 :]) if name in named else ()
    return not _destroys(known, name, (*said, "any"))  # `git restore any` destroys whatever `any` is


def overwrites(command: Command) -> bool:
    """Return whether an option makes a program without subcommands overwrite the files it reads (`sed -i`)."""
    name, known = command.name, _known(command.name)
    return known is not None and not _has_subcommands(name) and _destroys(known, name, command.argv[1:])


def outlives_undo(command: Command) -> bool:
    """Return whether a call of git destroys what /undo does not bring back: references, stashes, ignored files."""
    name, known = command.name, _known(command.name)
    if name != "git" or known is None or not _destroys(known, name, command.argv[1:]):
        return False
    at, subcommand = find_subcommand(name, command.argv[1:])
    return subcommand in program_table().lasting or (subcommand == "clean" and has_option(command.argv[at + 2 :], "xX"))


def denials(command: Command) -> Iterator[str]:
    """Yield the keys that a stored denial of a command may have: its program, and that with its subcommand."""
    name, args = command.name, command.argv[1:]
    if not name:
        return
    yield from dict.fromkeys((name, tables().interpreter(name) or name))
    known = _known(name)
    if known is None:
        return
    words = [word for word in args[find_subcommand(name, args)[0] :] if not word.startswith("-")]
    keys = [_key(known, name, args)]
    if known.key == "subcommand" and words:
        keys.append((name, words[0]))
    yield from dict.fromkeys(" ".join(key) for key in keys if len(key) > 1)


def subcommand_words(command: Command) -> frozenset[str]:
    """Return the words of a call that are subcommands or targets (`make all`), and so no paths."""
    known, args = _known(command.name), command.argv[1:]
    if known is None or known.key not in ("subcommand", "targets"):
        return frozenset()
    if known.key == "targets":
        return frozenset(args)
    at, subcommand = find_subcommand(command.name, args)
    return frozenset((subcommand, *(args[at + 1 : at + 2] if subcommand in known.deep else ())))


def spellings(command: Command) -> Iterator[tuple[str, ...]]:
    """Yield the words that a deny rule is compared with: as written, by base name, and without global options."""
    if not command.argv:
        return
    name, args = command.name, command.argv[1:]
    yield (name, *args)
    if command.argv[0] != name:
        yield command.argv
    if _has_subcommands(name):
        at, subcommand = find_subcommand(name, args)
        if subcommand and at:
            yield (name, *args[at:])


def _key(known: Program, name: str, args: tuple[str, ...]) -> tuple[str, ...]:
    match known.key:
        case "payload":
            return ()
        case "targets":
            return (name, *sorted(word for word in args if not word.startswith("-")))
        case "subcommand":
            at, subcommand = find_subcommand(name, args)
            rest = [word for word in args[at + 1 :] if not word.startswith("-")]
            return (name, subcommand, *(rest[:1] if subcommand in known.deep else ())) if subcommand else ()
        case _:
            return (name,)


def _known(name: str) -> Program | None:
    table = program_table()
    bare = table.aliases.get(name, name)
    bare = bare if bare in table.programs else unversioned(bare)
    bare = table.aliases.get(bare, bare)
    return table.programs.get(bare) or table.programs.get(tables().interpreter(bare))


def _destroys(known: Program, name: str, args: tuple[str, ...]) -> bool:
    """Return whether a call destroys something, so that an approval of its prefix does not cover it."""
    destroying, rest = _destroying(known, name, args)
    if destroying is None:
        return False
    closed = rest.index("--") if "--" in rest else len(rest)
    options = [word for word in rest[:closed] if word.startswith("-") and word != "-"]
    operands = [word for word in rest[:closed] if not word.startswith("-") or word == "-"] + list(rest[closed + 1 :])
    if not destroying.options.isdisjoint(rest) or any(
        _stands_for(word, destroying.options, destroying.valued) for word in options
    ):
        return True
    spared = any(_stands_for(word, destroying.sparing, destroying.valued) for word in options)
    return not spared and any(pattern.fullmatch(word) for pattern in destroying.words for word in operands)


def _stands_for(word: str, options: frozenset[str], valued: frozenset[str]) -> bool:
    """Return whether a word is one of the options, also abbreviated or in a bundle."""
    if word.startswith("--"):
        name = word.partition("=")[0]
        return any(option.startswith(name) for option in options)
    for letter in word[1:]:
        if f"-{letter}" in options:
            return True
        if letter in valued:
            break
    return False


def _destroying(known: Program, name: str, args: tuple[str, ...]) -> tuple[Destroying | None, tuple[str, ...]]:
    """Return the destroying options and operands of a program or subcommand, if any, and the arguments to search."""
    if not _has_subcommands(name):
        return known.destroys, args
    at, subcommand = find_subcommand(name, args)
    return known.sub.get(subcommand, _UNLISTED).destroys or known.destroys, args[at + 1 :]


def find_subcommand(name: str, args: Sequence[str]) -> tuple[int, str]:
    """Return the position and text of the first word that is neither an option nor a value of one; "" for none."""
    grammar = grammar_of(name)
    valued = grammar.values if grammar is not None else ()
    index = 0
    while index < len(args):
        word = args[index]
        if not word.startswith("-"):
            return index, word
        index += 2 if word in valued else 1
    return len(args), ""


def _has_subcommands(name: str) -> bool:
    grammar = grammar_of(name)
    return grammar is not None and any(verb != AFTER for verb in grammar.verbs)


def _inline_code(name: str, args: Sequence[str]) -> Iterator[Doubt]:
    """Yield the doubts about the options of an interpreter that carry code, also in a bundle: `perl -wle CODE`."""
    codes = tables().interpreters.get(tables().interpreter(name), frozenset())
    for word in args:
        # Behind a capital letter a value may be attached: `-Ilib`.
        letters = re.match(r"-([a-z0-9]*[A-Z]?)", word)
        bundled = letters is not None and any(f"-{letter}" in codes for letter in letters[1])
        if bundled or word.partition("=")[0] in codes:
            yield Doubt(f"{name} {word[:80]} runs or changes what no file shows", word.partition("=")[0])


def _lacks_script(interpreter: str, args: tuple[str, ...], grammar: Grammar | None) -> bool:
    """Return whether an interpreter is given no script, or its input as one, so that it runs what it reads."""
    due = _DUE.get(interpreter, 1)
    if not due or (len(args) == 1 and (args[0] in _TELLS or (args[0] == "-v" and interpreter not in _VERBOSE))):
        return False
    if grammar is None:
        operands = getopt(args, _VALUED.get(interpreter, ""))[1]
    else:
        parsed = grammar.parse(args)
        if parsed.verbs or not _GIVEN.get(interpreter, _NONE).isdisjoint(parsed.options):
            return False
        operands = parsed.operands
    return len(operands) < due or any(map(_INPUT.fullmatch, operands[:due]))


def _unknown_doubts(name: str, parsed: ParsedArguments) -> Iterator[Doubt]:
    """Yield the doubts about options and words that the grammar does not know."""
    call = " ".join((name, *parsed.verbs))
    for word in parsed.unknown:
        if word.startswith("-"):
            option = word.partition(" ")[0]
            yield Doubt(f"{call}: the option {word[:80]} is not known to be harmless", option)
        elif not parsed.verbs and _has_subcommands(name):
            yield Doubt(f"{name} {word} can do more than its arguments show", word.casefold())
        else:
            yield Doubt(f"{call}: {word[:80]!r} is not known to be harmless there", word.casefold())


def _known_doubts(known: Program, name: str, parsed: ParsedArguments) -> Iterator[Doubt]:
    """Yield the doubts about words that the grammar knows: they may change, install, reach or run something."""
    call = " ".join((name, *parsed.verbs))
    yield from _git_doubts(call, parsed) if name == "git" else ()
    for each in parsed.arguments:
        if not each.option and each.kind is WordKind.WRITE and name in program_table().filters:
            yield Doubt(f"{call} writes {each.word[:80]!r}, its second file", each.word.casefold())
        if (
            each.option
            and each.kind is WordKind.WRITE
            and _BUILD_INPUT.fullmatch(posixpath.basename(each.word.rstrip("/")))
        ):
            yield Doubt(
                f"{call}: {each.option} may write {each.word[:80]!r}, which a build or a test runs", each.option
            )
    verb = next(iter(parsed.verbs), "")
    sub = known.sub.get(verb, _UNLISTED)
    verbs = {" ".join(parsed.verbs[: at + 1]) for at in range(len(parsed.verbs))}
    brought = [each.word for each in parsed.arguments if not each.option or each.kind is WordKind.READ]
    if brought and not verbs.isdisjoint(known.adds):
        yield Doubt(f"{call} brings in {', '.join(brought[:3])}", parsed.verbs[-1])
    first = next(iter(parsed.operands), "")
    if verb in known.remotes and _OTHER_HOST.fullmatch(first):
        yield Doubt(f"{call} reaches {first[:80]}", first.casefold())
    for word in parsed.operands:
        if any(pattern.fullmatch(word) for pattern in known.words + sub.words):
            yield Doubt(f"{call}: {word[:80]!r} reaches further than the workspace", word.casefold())
    for each in parsed.arguments:
        word = f"{each.option}{each.word}"
        if any(pattern.fullmatch(word) for pattern in known.args + sub.args):
            yield Doubt(f"{call}: {word[:80]!r} may run a program", word)


def _git_doubts(call: str, parsed: ParsedArguments) -> Iterator[Doubt]:
    """Yield the doubts about settings that a call of git shows or changes, and about files that it does not name."""
    if parsed.verbs[:1] == ("config",) and not sets_nothing(parsed):
        yield Doubt("git config may change settings that run programs", "config")
    elif parsed.verbs[:1] == ("config",) and lists_all_settings(parsed):
        yield Doubt("git config lists the user's own settings; --local lists those of the repository", "config")
    if applies_patch(parsed):
        yield Doubt(f"{call} changes files that the command does not name", parsed.verbs[0])


_CARRIERS = frozenset(
    (
        "ssh", "mosh", "telnet", "nc", "ncat", "socat", "su", "sudo", "doas", "docker", "podman", "nerdctl", "kubectl",
        "oc", "lxc", "nsenter", "chroot", "machinectl", "screen", "tmux", "script", "expect", "xargs", "parallel", "at",
        "batch", "busybox", "toybox", "gdb", "lldb", "ed", "ex", "vi", "vim", "nvim", "emacs", "psql", "mysql",
        "sqlite3", "ftp", "sftp", "ipython", "ptpython", "irb", "pry", "jshell", "gnuplot", "bc",
    )
)  # fmt: skip
"""Programs that run their input as commands, here or elsewhere, whatever their operands are."""
_CONSOLES = frozenset(("code", "pdb", "asyncio", "IPython", "ptpython", "idlelib"))
_READS = lazy_regex(r"\b(?:eval|read|source|mapfile|readarray)\b")
_OWN_INPUT = lazy_regex(r"/dev/(?:stdin|fd/0|tty)")


def runs_its_input(text: str) -> bool:
    """Return whether a command line may start something that runs its standard input as commands.

    That is a shell or an interpreter without a script, or a way to one. What is not clear counts as one.
    """
    line = ShellText(text)
    if line.survey.unread or _OWN_INPUT.search(text) or (isinstance(line.analysis, Opaque) and _READS.search(text)):
        return True
    if any("/proc/" in word.rpartition("/fd/0")[0] for word in text.split()):
        return True
    return any(_runs_its_input(each) for command in line.survey.commands for each in command.walk())


def _runs_its_input(command: Command) -> bool:
    name, args, table = command.name, command.argv[1:], tables()
    if command.unclear or command.appended or name in _CARRIERS:
        return True
    if name not in table.shells and not table.interpreter(name):
        return False
    operand = next((arg for arg in args if not arg.startswith(("-", "+"))), "")
    asked = any(re.fullmatch(r"-[a-z]*[is][a-z]*|--interactive|-", arg) for arg in args)
    return asked or not operand or ("-m" in args and operand.partition(".")[0] in _CONSOLES)
