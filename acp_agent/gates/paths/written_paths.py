"""The words of a command that name files it may change.

There is a list of programs that only read, and one of copiers, for which it is known which word is the destination.
Every other program may change all files that it names, so the gate asks about them.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from acp_agent.gates.paths.command_paths import URL, candidates, path_words
from acp_agent.gates.paths.unnamed_paths import FINDERS
from acp_agent.gates.shell.arguments import applies_patch, awk_asks, config_file, parsed_git, sed_asks
from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.grammar import GUESS, ParsedArguments, WordKind, grammar_of
from acp_agent.gates.shell.options import getopt, has_option, operands, option_texts, tables
from acp_agent.gates.shell.programs import program_table
from acp_agent.gates.shell.wrappers import is_runner


class Written(NamedTuple):
    """A word that names a changed file or folder. `whole` means that everything below the folder may change."""

    word: str
    whole: bool = False


Words: TypeAlias = Iterator[Written]

_READERS = frozenset(
    (
        "less", "more", "bat", "batcat", "rg", "ag", "ack", "fd", "fdfind", "zcat", "zless", "jq", "hexdump", "cd",
        "ssh", "ssh-add", "exit", "return", "test", "[", "[[", "wait", "jobs", "getopts", "readelf", "objdump", "nm",
        "ldd", "lsof", "fuser", "pgrep", "expr", "print",
    )
)  # fmt: skip
_BY_GRAMMAR = frozenset(
    (
        "sort", "gsort", "uniq", "date", "hostname", "xxd", "hd", "paste", "join", "expand", "unexpand", "base64",
        "base32", "sdiff", "colordiff", "sha224sum", "sha384sum", "shasum", "b2sum", "nproc", "free", "uptime",
        "gzcat", "bzcat", "xzcat", "zstdcat",
    )
)  # fmt: skip
"""Programs that write only the files that their grammars name."""
_PACKERS = frozenset(("gzip", "gunzip", "pigz", "unpigz", "bzip2", "bunzip2", "xz", "unxz", "zstd", "unzstd"))
_MAKERS = frozenset(("mkdir", "touch", "chmod", "chown", "chgrp", "gmkdir", "gtouch"))
_COPIERS = frozenset(("cp", "gcp", "install", "ginstall", "rsync", "scp"))
_MOVERS = frozenset(("mv", "gmv", "ln", "gln", "link"))
_OUTPUT = ("--output", "--log-file", "--LOG-FILE")
_OUTPUT_READERS = frozenset(("sort", "gsort", "tree", "less"))
_FIND_WRITES = ("-delete", "-fprint", "-fprint0", "-fprintf", "-fls", "-ok", "-okdir")
_GIT_WRITES = frozenset(
    ("mv", "rm", "checkout", "restore", "clean", "init", "clone", "worktree", "submodule", "sparse-checkout")
)
_STAGED = frozenset(("--staged", "-S"))
_PLANTED = ".git/hooks"
_UNPACKERS: dict[str, tuple[str, tuple[str, ...], str]] = {
    # By program: short options with a value; options that name the folder; short options that only list or pack.
    **dict.fromkeys(("tar", "gtar", "bsdtar"), ("bCfFgHIKLNTVX", ("C", "--directory", "--cd"), "trucAdO")),
    "unzip": ("dxP", ("d",), "lptczZ"),
    "patch": ("BDFVdgioprxYzZ", ("d", "--directory"), ""),
    "cpio": ("CDEFHMORW", ("D", "--directory"), "ot"),
    **dict.fromkeys(("7z", "7za", "7zr", "7zz"), ("opt", ("o",), "")),
    "unrar": ("o", (), ""),
    "jar": ("Ceif", ("C",), "ctu"),
}
_LOOKS = ("--list", "--create", "--append", "--update", "--diff", "--compare", "--to-stdout", "--dry-run", "--check")
_SKIPPED = re.compile(r"--(?:exclude|include|ignore|filter)[\w-]*|-[xX]")
_TOKEN = re.compile(r"[^\s'\"`;(){}<>|&,=\[\]]{2,}")


def written(command: Command) -> Words:
    """Yield the words of one command that name files it may change, without the commands that it starts."""
    for each in command.redirections:
        if each.writes and not each.harmless:
            yield Written(each.target)
    name, table = command.name, program_table()
    if name == "git" or name in _UNPACKERS:
        yield from _unpacked(command)
    interpreter = tables().interpreter(name)
    if name in tables().wrappers and not (is_runner(command) and command.own):
        return
    if name in ("sed", "gsed") or interpreter.endswith("awk"):
        yield from _editor(command)
    elif interpreter:
        yield from _interpreter(command, interpreter)
    elif name in tables().shells:
        script = () if command.runs else operands(command.own)
        yield from _named(script[1:])  # without the script itself, which is only read
    elif name in FINDERS:
        yield from _finder(command)
    elif name == "git":
        yield from _git(command)
    elif (
        name in _READERS
        or name in _BY_GRAMMAR
        or (name in table.harmless or name in table.state or name in table.neutral)
    ):
        yield from _outputs(command)
    else:
        yield from _writer(command)


def reads_only(command: Command) -> bool:
    """Return whether a command and all that it starts change nothing, so that names may be piped into it."""
    table = program_table()
    known = _READERS | table.harmless | table.neutral
    return all(each.name in known or (each.name in tables().wrappers and each.runs) for each in command.walk())


def named(command: Command) -> Words:
    """Return every word of a command that may be a path. Its output names files, which another command changes."""
    return (Written(word, whole=True) for word in (*path_words(command), *_texts(command.argv[1:])))


def _writer(command: Command) -> Words:
    name, args, parsed = command.name, command.own, _parsed(command)
    match name:
        case "dd":
            yield from (Written(word[3:]) for word in args if word.startswith("of="))
        case "zip" if _certain(parsed):
            yield from (Written(each.word) for each in parsed.arguments if each.kind is WordKind.WRITE)
        case "tar" | "gtar" | "bsdtar" if _archives(args):
            told = [value for _, value in getopt(_dashed(args), "f", "--file")[0]]
            yield from _named((*parsed.values("-f", "--file"), *told))
        case _ if name in _PACKERS:
            yield from _named(each for word in args for each in (word, posixpath.splitext(word)[0]))
        case _ if name in _COPIERS:
            yield from _copied(command, moves=any(word.startswith("--remove") for word in args))
        case _ if name in _MOVERS:
            yield from _copied(command, moves=True)
        case _:
            whole = name not in _MAKERS
            yield from (Written(each.word, whole) for each in _named(_kept(command)))


def _copied(command: Command, *, moves: bool) -> Words:
    """Yield the destination, and the path of each source below it. Sources are changed as well if they are moved."""
    args, parsed = command.own, _parsed(command)
    targets, paths = parsed.values("-t", "--target-directory"), parsed.operands
    if not _certain(parsed) and command.name not in ("rsync", "scp"):
        options, paths = getopt(args, "Stmog" if "install" in command.name else "St", "--target-directory")
        targets = [value for name, value in options if name in ("t", "--target-directory")]
    sources = paths if targets else paths[:-1]
    whole = moves or command.name == "rsync" or has_option(args, "rRa", "--recursive", "--archive")
    if moves:
        yield from (Written(path, whole=True) for path in sources)
    for target in targets or paths[-1:]:
        yield Written(target, whole)
        yield from (Written(posixpath.join(target, posixpath.basename(path.rstrip("/"))), whole) for path in sources)


def _parsed(command: Command) -> ParsedArguments:
    """Return the arguments as parsed by the program's grammar; an empty result if there is no grammar."""
    grammar = grammar_of(command.tool)
    return grammar.parse(command.own) if grammar is not None else ParsedArguments()


def _certain(parsed: ParsedArguments) -> bool:
    """Return whether the grammar knows all options. Only then it is certain which words are operands."""
    return bool(parsed.arguments) and not parsed.unknown


def _kept(command: Command) -> list[str]:
    """Return the words of a program that may change all files it names, without the values of options that exclude."""
    args, parsed, grammar = command.own, _parsed(command), grammar_of(command.tool)
    if grammar is not None and WordKind.WRITE in grammar.operands and _certain(parsed):
        return [each.word for each in parsed.arguments if each.kind.path]
    return [word for at, word in enumerate(args) if not (at and _SKIPPED.fullmatch(args[at - 1]))]


def _unpacked(command: Command) -> Words:
    """Yield the folder of git's hooks if an archive or a patch may write into it.

    One may do so if it is unpacked into the session's folder or outside of it. In a subfolder (`-C build`) none of its
    files becomes a hook.
    """
    name, args = command.name, command.own
    if name == "git":
        parsed = parsed_git(args)
        if not applies_patch(parsed):
            return
        folders = parsed.values("--directory")
    else:
        letters, folder, looks = _UNPACKERS[name]
        first = next(iter(args), "")
        given = _dashed(args) if name in ("tar", "gtar", "bsdtar", "jar") else args
        bundled = given != args
        if has_option(_flags(given, letters), looks, *_LOOKS) or (
            name.startswith("7z") and first in ("l", "a", "t", "u", "h")
        ):
            return
        options, files = getopt(given, letters, "--directory", "--cd")
        if name == "patch" and files:
            return  # only the named file is patched
        told = not bundled or sum(letter in letters for letter in first) < 2  # else no option surely has a value
        folders = [value for option, value in options if option in folder and told]
    below = posixpath.normpath(posixpath.join("", *folders))
    if below == "." or below.startswith(("/", "~", "..", "$")):
        yield Written(posixpath.normpath(posixpath.join(below, _PLANTED)))


def _flags(args: tuple[str, ...], letters: str) -> list[str]:
    """Return the options without their values: `-x` for `-xfcat`."""
    cut = re.compile(f"[{letters}].*", re.DOTALL)
    return [word if word.startswith("--") else cut.sub("", word) for word in args if word.startswith("-")]


def _archives(args: Sequence[str]) -> bool:
    """Return whether tar makes or lists an archive. It then only reads the files that it names."""
    flags = _flags(_dashed(args), _UNPACKERS["tar"][0])
    reads = has_option(flags, "ctru", "--create", "--list", "--append", "--update")
    return reads and not has_option(flags, "x", "--extract", "--get", "--remove-files")


def _dashed(args: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of tar. A first bundle of options without a dash gets one."""
    first = next(iter(args), "-")
    return tuple(args) if first.startswith("-") else (f"-{first}", *args[1:])


def _finder(command: Command) -> Words:
    """Yield the folders that find searches if it deletes or runs something, without those that it skips."""
    args = command.argv[1:]
    harmless = all(reads_only(inner) for inner in command.runs)
    if harmless and not any(word in _FIND_WRITES for word in args):
        return
    runs = {word for inner in command.runs for word in inner.argv}
    for at, word in enumerate(args):
        left_out = at > 1 and (args[at - 2] in ("-not", "!") or "-prune" in args[at + 1 : at + 3])
        if word not in runs and not left_out and not word.startswith("-"):
            yield Written(word, whole=True)


def _git(command: Command) -> Words:
    parsed, file = parsed_git(command.own), config_file(command)
    yield from _outputs(command)
    if file:
        yield Written(file)
    verb, options = next(iter(parsed.verbs), ""), parsed.options
    only_index = (verb == "rm" and "--cached" in options) or (verb == "restore" and not _STAGED.isdisjoint(options))
    if verb in _GIT_WRITES and not (only_index and not parsed.unknown):
        words = (each.word for each in parsed.arguments if not each.option or each.option == GUESS)
        yield from (Written(word, whole=True) for word in words if word != "HEAD")


def _outputs(command: Command) -> Words:
    """Yield the files that a program writes only because of its options."""
    args = command.argv[1:]
    for word in args:
        if word.startswith("--out") and "=" in word:
            yield Written(word.partition("=")[2])
    grammar = grammar_of(command.tool)
    if grammar is not None:
        parsed = grammar.parse(command.own).arguments
        yield from (Written(each.word) for each in parsed if each.word and each.kind is WordKind.WRITE)
        if WordKind.WRITE in grammar.operands and not command.patterns.isdisjoint(command.own):
            yield from (Written(each.word) for each in parsed if not each.option)  # `uniq *`: any may be its output
    if command.name in _OUTPUT_READERS:
        yield from (Written(value) for _, value in getopt(args, "oO", *_OUTPUT)[0] if value)


def _editor(command: Command) -> Words:
    """Yield what sed and awk write: the files that they edit in place, or the names in a script that may write."""
    args = command.own
    sed = command.name in ("sed", "gsed")
    if has_option(args, "i", "--in-place") or (not sed and "inplace" in args):
        yield from _named(path_words(command))
    if (sed_asks if sed else awk_asks)(tuple(args)):
        yield from (Written(token) for token in _TOKEN.findall("\n".join(args)))


def _interpreter(command: Command, known: str) -> Words:
    """Yield the names in program texts of other languages, and the arguments of a script.

    `sqlite3` has no script: its first argument is the database, which it may change.
    """
    codes = option_texts(tables().interpreters[known], command.argv[1:])
    if command.stdin:
        codes.append(command.stdin)
    yield from (Written(token) for code in codes for token in _TOKEN.findall(code))
    words = operands(command.own)
    if known == "sqlite3":
        words = [words[0].removeprefix("file:").partition("?")[0], *words[1:]] if words else words
    elif not codes:
        words = words[1:]  # without the script itself, which is only read
    yield from _named(words)


def _named(words: "Sequence[str] | Iterator[str]") -> Words:
    return (Written(text) for text in _texts(words))


def _texts(words: "Sequence[str] | Iterator[str]") -> Iterator[str]:
    """Return the paths that words may hold: the words themselves and the values in them. HEAD is git's, no path."""
    return (each for word in words for each in candidates(word) if each and not URL.match(each) and each != "HEAD")
