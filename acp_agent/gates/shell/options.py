"""Read the options of wrappers and shells to find the commands that they start.

`tables.toml` lists the programs that run other programs, and the folders and devices that no command may wipe.
"""

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from acp_agent.text import lazy_regex, packaged_table


class Wrapper(NamedTuple):
    """How to find the command in a wrapper's arguments. `tables.toml` explains the keys."""

    flags: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    attached: frozenset[str] = frozenset()
    text: frozenset[str] = frozenset()
    inert: frozenset[str] = frozenset()
    operands: int = 0
    assignments: bool = False
    variables: bool = False
    numeric: bool = False
    appended: bool = False
    joined: bool = False
    runner: bool = False
    vague: bool = False


class Tables(NamedTuple):
    """All of `tables.toml`.

    wrappers      by program name
    commands      by program name, then by first word (`uv`, `run`)
    shells        programs that run shell text; `same_syntax` are those that read plain text as bash does
    shell_flags   options of shells without a value; `shell_letters` the short ones, which may be bundled
    shell_text    options of shells, other than -c, that are followed by a command line
    text          options whose value is a command line, by program name
    interpreters  options that carry code, by program name
    danger        the dangerous programs, folders and subcommands that the blocklist knows, by list name
    reserved      reserved words of bash
    starters      the names of commands whose arguments may start a command, set a variable or be read in a special way
    """

    wrappers: Mapping[str, Wrapper]
    commands: Mapping[str, Mapping[str, Wrapper]]
    shells: frozenset[str]
    same_syntax: frozenset[str]
    shell_flags: frozenset[str]
    shell_letters: frozenset[str]
    shell_text: frozenset[str]
    text: Mapping[str, frozenset[str]]
    interpreters: Mapping[str, frozenset[str]]
    danger: Mapping[str, frozenset[str]]
    reserved: frozenset[str]
    starters: frozenset[str]

    def interpreter(self, name: str) -> str:
        """Return the name of an interpreter in the table ("python" for python3.12); empty for other programs."""
        if name in self.interpreters:
            return name
        bare = name.rstrip("0123456789.")
        return bare if bare in self.interpreters else ""


@cache
def tables() -> Tables:
    """Return the packaged table. It is read when first needed, so that it does not slow the start."""
    data = packaged_table("acp_agent.gates.shell", "tables")
    shells, syntax = data["shells"], data["syntax"]
    return Tables(
        wrappers=_wrappers(data["wrappers"]),
        commands=MappingProxyType({name: _wrappers(each) for name, each in data["commands"].items()}),
        shells=frozenset(shells["names"]),
        same_syntax=frozenset(shells["same_syntax"]),
        shell_flags=frozenset(shells["flags"]),
        shell_letters=frozenset(shells["letters"]),
        shell_text=frozenset(shells["text"]),
        text=MappingProxyType({name: frozenset(_abbreviated(each)) for name, each in data["text"].items()}),
        interpreters=_lists(data["interpreters"]),
        danger=_lists(data["danger"]),
        reserved=frozenset(syntax["reserved"]),
        starters=frozenset(data["wrappers"]).union(data["commands"], shells["names"], *syntax.values()),
    )


def _abbreviated(options: Iterable[str]) -> Iterator[str]:
    """Yield options, and the shorter forms that programs take for long ones: `--exe` for `--exec`."""
    for option in options:
        yield option
        if option.startswith("--"):
            yield from (option[:end] for end in range(len("--xx"), len(option)))


def _lists(section: dict[str, Any]) -> Mapping[str, frozenset[str]]:
    return MappingProxyType({name: frozenset(value) for name, value in section.items()})


def _wrappers(section: dict[str, Any]) -> Mapping[str, Wrapper]:
    lists = ("flags", "values", "attached", "text", "inert")
    found = dict[str, Wrapper]()
    for name, table in section.items():
        found[name] = Wrapper(**(table | {key: frozenset(table[key]) for key in lists if key in table}))
    return MappingProxyType(found)


_HOMES = ("home", "Users")
_STARS = lazy_regex(r"\*{2,}")
_WILD = lazy_regex(r"[*?\[]")
_SET = lazy_regex(r"\[!?\]?[^]]*\]")
_EVERYTHING = lazy_regex(r"[*?.\[\]!^{},]*")
_HOME_ITSELF = lazy_regex(r"~[\w.-]*")
_DISK = lazy_regex(
    r"/dev/(?:r?(?:sd|hd|vd|xvd|nvme|mmcblk|disk|dm-|md|loop|ram|zram|sr|nbd|fd\d)|mapper/|disk/|block/|mem$|kmem$|port$)|/proc/sysrq-trigger$"
)
_SOCKET = lazy_regex(r"/dev/(?:tcp|udp)/")

MAX_PATTERN = 1024
"""The most characters of a pattern that are compared with the names of system folders. A longer one may mean any."""


def is_disk(path: str) -> bool:
    """Return whether a path (or a pattern like /dev/sd*) is a disk, a partition, the memory or sysrq-trigger."""
    return _DISK.match(_collapsed(path)) is not None


def is_socket(path: str) -> bool:
    """Return whether bash opens a network connection for this redirection target."""
    return _SOCKET.match(_collapsed(path)) is not None


def system_root(path: str, folder: str = "") -> str:
    """Return the home (as `~`), the system folder or the root (`/`) that a path means; empty for other paths.

    It recognizes `/`, `/*`, `//etc/.`, `~`, `/home/anyone` and `/e*c`.

    folder   the folder in which a relative path starts; empty if unknown
    """
    if not path.startswith(("/", "~")):
        if not folder:
            return ""
        path = posixpath.join(folder, path)
    if path.startswith("~"):
        home, _, rest = path.partition("/")
        inside = [part for part in rest.split("/") if part not in ("", ".")]
        return "~" if _HOME_ITSELF.fullmatch(home) and all(_EVERYTHING.fullmatch(part) for part in inside) else ""
    parts = [part for part in _collapsed(path).split("/") if part]
    while parts and _EVERYTHING.fullmatch(parts[-1]):
        parts.pop()
    if len(parts) == 2 and parts[0] in _HOMES:
        return "~"
    patterns = [(part, shortest(part)) for part in (_STARS.sub("*", each) for each in parts)]
    roots = sorted(tables().danger["system"])  # sorted, so that a pattern such as `/*` is compared with "/" first
    return next((root for root in roots if _same(patterns, root.split("/")[1:] if root != "/" else [])), "")


def _same(patterns: list[tuple[str, int]], known: list[str]) -> bool:
    if len(patterns) != len(known):
        return False
    return all(_means(pattern, least, name) for name, (pattern, least) in zip(known, patterns, strict=True))


def _means(pattern: str, least: int, name: str) -> bool:
    if len(pattern) > MAX_PATTERN:
        return _WILD.search(pattern) is not None
    return least <= len(name) and fnmatchcase(name, pattern)


def shortest(pattern: str) -> int:
    """Return the fewest characters of a name that matches a pattern. To compile a pattern takes up to milliseconds."""
    return len(_SET.sub("x", pattern).replace("*", ""))


def _collapsed(path: str) -> str:
    """Return `/etc` for `//etc/./x/..`."""
    return "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else path


_ASSIGNMENT = lazy_regex(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_ANY_ASSIGNMENT = lazy_regex(r"[^=]*=")
_NOTHING = lazy_regex(r"(?!)")
_TEXT_PREFIX = lazy_regex(r"(?:[\w.-]+=)?[:!]*")


class Peeled(NamedTuple):
    """The arguments of a wrapper without its own options.

    argv          the remaining words: the command that it starts
    assignments   the variables that it sets (`env A=1`)
    texts         the values of options that are command lines
    unclear       why the arguments are unclear; empty if they are clear
    """

    argv: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    unclear: str = ""


def peel(wrapper: Wrapper, args: tuple[str, ...]) -> Peeled:
    """Remove a wrapper's own options, assignments and operands from its arguments."""
    texts: list[str] = []
    index = 0
    while index < len(args) and args[index].startswith("-") and args[index] not in ("-", "--"):
        option = args[index]
        if option in wrapper.inert or option in ("--help", "--version"):
            return Peeled()
        meaning = _option(wrapper, option)
        if meaning is None:
            return Peeled(unclear=f"the option {option} is not known")
        kind, attached = meaning
        index += 1
        if kind == "flag":
            continue
        if attached is None:
            if index == len(args):
                return Peeled(unclear=f"the option {option} lacks its value")
            attached = args[index]
            index += 1
        if kind == "text":
            texts.append(attached)
    if index < len(args) and (args[index] == "--" or (args[index] == "-" and "-" in wrapper.flags)):
        index += 1
    assignments: list[str] = []
    sets = _ANY_ASSIGNMENT if wrapper.assignments else _ASSIGNMENT if wrapper.variables else _NOTHING
    while index < len(args) and sets.match(args[index]):
        assignments.append(args[index])
        index += 1
    rest = args[index + wrapper.operands :]
    if wrapper.operands and len(rest) > 1 and rest[0] in wrapper.text:
        texts.append(rest[1])
    return Peeled(rest, tuple(assignments), tuple(texts))


def _option(wrapper: Wrapper, option: str) -> tuple[str, str | None] | None:
    """Return the kind of an option word ("flag", "value" or "text") and its attached value. None if it is unknown."""
    kinds = (("text", wrapper.text), ("value", wrapper.values), ("flag", wrapper.flags | wrapper.attached))
    if wrapper.numeric and option[1:].lstrip("-+").isdigit():
        return "flag", None
    for kind, known in kinds:
        if option in known:
            return kind, None
    if option.startswith("--"):
        name, equals, value = option.partition("=")
        matches = {(kind, each) for kind, known in kinds for each in known if each.startswith(name)}
        meant = {(kind, each) for kind, each in matches if each == name} or matches
        if len(meant) != 1:
            return None
        return next(iter(meant))[0], value if equals else None
    return _bundle(wrapper, option)


def _bundle(wrapper: Wrapper, option: str) -> tuple[str, str | None] | None:
    """Return what `_option` returns, for a bundle of short options: `-0r`, `-n5`."""
    for index, letter in enumerate(option[1:], start=1):
        short, rest = f"-{letter}", option[index + 1 :]
        if short in wrapper.attached:
            return "flag", None
        if short in wrapper.values:
            return "value", rest or None
        if short in wrapper.text:
            return "text", rest or None
        if short not in wrapper.flags:
            return None
    return "flag", None


class ShellCall(NamedTuple):
    """What a call makes a shell run: texts, a script and its operands, or its standard input (`stdin`)."""

    texts: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    stdin: bool = False
    unclear: str = ""


def shell_call(args: tuple[str, ...]) -> ShellCall:
    """Return what a shell runs. `-c` is a flag: the text is the first word that is not an option, `$0` the next."""
    table, texts = tables(), list[str]()
    letters = ""
    index = 0
    while index < len(args) and args[index][:1] in ("-", "+"):
        word = args[index]
        name, equals, value = word.partition("=")
        index += 1
        if word in ("-", "--"):
            break
        if name in table.shell_text:
            texts.append(value if equals else " ".join(args[index : index + 1]))
            index += 0 if equals else 1
        elif word in table.shell_flags:
            continue
        elif not set(word[1:]) <= table.shell_letters | set("coO") or _differs(word):
            return ShellCall(unclear=f"the option {word} is not known")
        else:
            letters += word[1:] if word[0] == "-" else ""
            index += word.count("o") + word.count("O")
    if "c" in letters:
        if index >= len(args):
            return ShellCall(unclear="-c lacks its text")
        texts.append(args[index])
        index += 1
    return ShellCall(tuple(texts), args[index:], stdin="s" in letters)


def _differs(word: str) -> bool:
    """Return whether shells disagree about a word of short options.

    Bash takes `-rcfile`, `-norc` and `+c` for what they are with two dashes or a minus. In zsh the value of `-o` may be
    attached.
    """
    return (
        word == "-rcfile"
        or not {"o", "O"}.isdisjoint(word[1:-1])
        or (word[0] == "+" and not {"c", "s"}.isdisjoint(word))
    )


def option_texts(options: frozenset[str], args: tuple[str, ...]) -> list[str]:
    """Return the values of these options, without a prefix such as `alias.x=!` or `exec=`."""
    found: list[str] = []
    for index, word in enumerate(args):
        name, equals, value = word.partition("=")
        if equals and name in options and name.startswith("--"):
            found.append(value)
        elif word in options and index + 1 < len(args):
            found.append(args[index + 1])
        elif word[:2] in options and not word.startswith("--"):
            found.append(word[2:])
    return [_TEXT_PREFIX.sub("", text, count=1) for text in found]


def operands(words: Iterable[str]) -> list[str]:
    """Return the words that are not options. After `--` all words are operands."""
    found: list[str] = []
    closed = False
    for word in words:
        if word == "--" and not closed:
            closed = True
        elif closed or not word.startswith("-") or word == "-":
            found.append(word)
    return found


def has_option(words: Iterable[str], letters: str, *names: str) -> bool:
    """Return whether a short option (alone or in a bundle) or a long one (whole or abbreviated) is among the words."""
    for word in words:
        if word == "--":
            return False
        if word.startswith("--"):
            given = word.partition("=")[0]
            if len(given) > 2 and any(name.startswith(given) for name in names):
                return True
        elif word.startswith("-") and set(word[1:]) & set(letters):
            return True
    return False


def getopt(args: tuple[str, ...], letters: str, *names: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options with values as getopt_long reads them, and the operands.

    letters   the short options with a value (`-t x`, `-tx`, `-rtx`), returned by their letter
    names     the long ones (`--to x`, `--to=x`, also abbreviated), returned by their whole name
    """
    found: list[tuple[str, str]] = []
    operands: list[str] = []
    rest = iter(args)
    for word in rest:
        if word == "--":
            operands += rest
        elif word.startswith("--"):
            given, equals, value = word.partition("=")
            name = next((name for name in names if name.startswith(given)), "")
            if name:
                found.append((name, value if equals else next(rest, "")))
        elif word.startswith("-") and word != "-":
            at = next((at for at, letter in enumerate(word) if at and letter in letters), 0)
            if at:
                found.append((word[at], word[at + 1 :] or next(rest, "")))
        else:
            operands.append(word)
    return found, operands
