"""Read a repository's configuration, and tell what its settings and hooks make git run.

A repository that came as an archive or lies on a share may name programs: even `git status` runs the one in
core.fsmonitor. `settings.toml` lists the harmless settings; about any other one the user is asked. The user's own
settings for all repositories are not read. The syntax is that of https://git-scm.com/docs/git-config#_syntax and of the
parser in git's config.c. Includes are not followed.
"""

import re
from collections.abc import Iterator, Sequence
from fnmatch import translate
from functools import cache
from typing import NamedTuple, TypeAlias, cast
from urllib.parse import unquote

from acp_agent.core.data import frozen
from acp_agent.text import abbreviated, lazy_regex, packaged_table

MAX_BYTES = 512 * 1024
"""The largest file that is read."""

_MAX_SPELLED = 16 * MAX_BYTES
"""The most characters of all keys together. Each variable repeats the name of its section, which may be long."""

_BLANKS = " \t\r\n"
_KEY = lazy_regex(r"[A-Za-z][A-Za-z0-9-]*")
_SECTION = lazy_regex(r"\[([A-Za-z0-9.-]+)(?:[ \t\r]+\"((?:[^\"\\\n]|\\[^\n])*)\")?\]")
_PLAIN = lazy_regex(r"[^\\\"\n \t\r;#]+")
_ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "\\": "\\", '"': '"', "\n": ""}
_ESCAPED = lazy_regex(r"\\(.)")


class Setting(NamedTuple):
    """One variable of a configuration file.

    key     as git prints it: section and name in lower case, the subsection between them as written
    value   None for a variable without `=`, which git takes for true
    """

    key: str
    value: str | None


class NotReadable(ValueError):
    """The file breaks the syntax, or is too large. The text says which."""


def read_settings(data: bytes) -> tuple[Setting, ...]:
    """Return every variable of a configuration file, in order.

    Raises:
        NotReadable: git would refuse the file too, or it may read more in it than this function does.

    """
    if len(data) > MAX_BYTES:
        raise NotReadable("is too large")
    if b"\0" in data:
        raise NotReadable("holds a NUL byte")
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n")
    return tuple(_Reader(text).settings())


class _Reader:
    """A reader of one text, from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text = f"{text}\n\n"  # the end of the file ends its last line, also behind a backslash
        self._at = 0

    def settings(self) -> "list[Setting]":
        found, section, spelled = list[Setting](), "", 0
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in _BLANKS:
                self._at += 1
            elif char in "#;":
                self._at = self._text.index("\n", self._at)
            elif char == "[":
                section = self._section()
            else:
                found.append(self._setting(section))
                spelled += len(section)
                if spelled > _MAX_SPELLED:
                    raise NotReadable("has too many variables in a section with a long name")
        return found

    def _section(self) -> str:
        match = _SECTION.match(self._text, self._at)
        if match is None:
            raise NotReadable("has an invalid section")
        self._at = match.end()
        base, sub = match[1].lower(), match[2]
        return base if sub is None else f"{base}.{_ESCAPED.sub(lambda escaped: escaped[1], sub)}"

    def _setting(self, section: str) -> Setting:
        match = _KEY.match(self._text, self._at)
        if match is None or not section:
            raise NotReadable("has a line that is no variable")
        self._at = match.end()
        while self._text[self._at] in " \t":
            self._at += 1
        key = f"{section}.{match[0].lower()}"
        if self._text[self._at] == "\n":
            return Setting(key, None)
        if self._text[self._at] != "=":
            raise NotReadable("has a line that is no variable")
        self._at += 1
        return Setting(key, self._value())

    def _value(self) -> str:
        """Return the value that begins here, up to the end of its line."""
        kept, blanks, quoted = list[str](), "", False
        while (char := self._text[self._at]) != "\n":
            plain = _PLAIN.match(self._text, self._at)
            if not quoted and char in "#;":
                self._at = self._text.index("\n", self._at)
                break
            if not quoted and char in _BLANKS:
                self._at += 1
                blanks += char if kept else ""
                continue
            piece = ""
            if plain is not None:
                piece = plain[0]
                self._at = plain.end()
            elif char == '"':
                quoted = not quoted
                self._at += 1
            else:
                piece = self._escape() if char == "\\" else char
                self._at += 2 if char == "\\" else 1
            kept += filter(None, (blanks, piece))  # joined at the end: the file may be hostile and its value long
            blanks = ""
        if quoted:
            raise NotReadable("has a quote that is not closed")
        return "".join(kept)

    def _escape(self) -> str:
        """Return the character that the backslash here and the next character stand for."""
        following = self._text[self._at + 1]
        if following not in _ESCAPES:
            raise NotReadable("has an invalid escape")
        return _ESCAPES[following]


_SHOWN = 160  # characters of a value
_BOOLEAN = lazy_regex(r"true|yes|on|false|no|off|[0-9]+|", re.IGNORECASE)
_SERVER = lazy_regex(r"(?:https?|ssh|git|git\+ssh|ssh\+git|file)://(?!-)[^\0]*")
_WORD = lazy_regex(r"[\w.-]*")
_SIGNATURE = lazy_regex(r"%[-+ ]?G|^-?\*?signature(?::|$)")
_USUAL_LFS = lazy_regex(r"git-lfs (?:clean -- %f|smudge (?:--skip )?-- %f|filter-process(?: --skip)?)")


@frozen
class Repository:
    """One repository that a command of git may obey.

    name          its name for the user: "this repository", "the repository libs/x"
    settings      every variable of its own configuration files
    hooks         the programs in its folder of hooks
    hooks_folder  the path of that folder, seen from the worktree
    own_hooks     whether that folder lies in the repository or the workspace
    troubles      reasons to ask beside its settings: parts that cannot be read or lead elsewhere
    remote        whether git runs in it only to send to it or fetch from it
    """

    name: str
    settings: tuple[Setting, ...] = ()
    hooks: tuple[str, ...] = ()
    hooks_folder: str = ""
    own_hooks: bool = True
    troubles: tuple[str, ...] = ()
    remote: bool = False


class GitDanger(NamedTuple):
    """A reason to ask the user about a command of git.

    firm      whether full-auto refuses the command
    by_rule   whether a rule that allows the command of git is enough
    """

    reason: str
    firm: bool = True
    by_rule: bool = False


def dangers(repository: Repository, subcommand: str) -> Iterator[GitDanger]:
    """Yield what a subcommand of git may run or reach because of the repository.

    subcommand   "" for a program whose use of git is unknown
    """
    table, name = _table(), repository.name
    reaches = subcommand not in table.local
    partial = any(each.key.startswith("remote.") and each.key.endswith(".promisor") for each in repository.settings)
    partial = partial or any(each.key == "extensions.partialclone" for each in repository.settings)
    aliased = any(each.key == f"alias.{subcommand.casefold()}" for each in repository.settings)
    if repository.remote and not reaches:
        return
    yield from (GitDanger(f"{name} {trouble}") for trouble in repository.troubles)
    if partial and not reaches:
        yield GitDanger(f"{name} is a partial clone: git fetches what is missing here", firm=False, by_rule=True)
    for setting in repository.settings:
        group = table.group(setting.key)
        if group is None or group.allows(setting.value):
            continue
        spared = not aliased and _is_spared_alias(setting.key, subcommand)
        if (repository.remote or partial or group.obeyed_by(subcommand)) and not spared:
            yield _danger(name, setting, group)
    hooks = sorted(hook for hook in repository.hooks if _runs(table, hook, subcommand, remote=repository.remote))
    if hooks:
        listed = ", ".join(hooks[:4])
        yield GitDanger(
            f"{name} has hooks, which git runs: {repository.hooks_folder}/{listed}", not repository.own_hooks
        )


def local_remotes(settings: Sequence[Setting]) -> tuple[str, ...]:
    """Return the words by which the settings name other repositories, which may be folders of this machine."""
    named = [each for each in settings if _REMOTE_KEY.fullmatch(each.key)]
    lists = [(each.value or "").split() if each.key.startswith("remotes.") else [each.value or ""] for each in named]
    return tuple(dict.fromkeys(word for words in lists for word in words if word))


def local_paths(address: str) -> tuple[str, ...]:
    """Return the paths that the address of a repository may mean on this machine.

    Git takes any address for a path first when it clones. It decodes %41 in the address of a file.
    """
    paths = [address]
    if address[:7].casefold() == "file://":
        rest = address[7:]
        paths += [unquote(rest, errors="surrogateescape")] if rest.startswith("/") else [f"//{unquote(rest)}"]
    return tuple(path for path in dict.fromkeys(paths) if path)


def may_set(key: str) -> bool:
    """Return whether a call of git may write a setting without a question."""
    return _table().may_set.fullmatch(key.casefold()) is not None


def named_files(settings: Sequence[Setting]) -> Iterator[tuple[str, str]]:
    """Yield the settings that name a file below git's folder, with its path."""
    for key, value in settings:
        group = _table().group(key)
        if value and group is not None and "inside" in group.unless and group.allows(value):
            yield key, value


_REMOTE_KEY = lazy_regex(
    r"remote\..*\.(?:push)?url|branch\..*\.(?:push)?remote|remote\.pushdefault|remotes\..*|submodule\..*\.url",
    re.DOTALL,
)


def _danger(name: str, setting: Setting, group: "_Group") -> GitDanger:
    value = setting.value or ""
    shown = repr(abbreviated(value, _SHOWN))
    if not group.program:
        return GitDanger(
            f"{name}'s configuration sets {_printable(setting.key)}, which may run programs or lead elsewhere"
        )
    lfs = setting.key.startswith("filter.lfs.") and _USUAL_LFS.fullmatch(value) is not None
    return GitDanger(f"{name}'s configuration names a program: {_printable(setting.key)} = {shown}", firm=not lfs)


def _printable(key: str) -> str:
    return repr(key)[1:-1][:_SHOWN]


def _runs(table: "_SettingTable", hook: str, subcommand: str, *, remote: bool) -> bool:
    if remote:
        return subcommand in ("push", "")
    entry = next((each for each in table.hooks if hook in each.names), table.hooks[0])
    return subcommand not in entry.spares


def _is_spared_alias(key: str, subcommand: str) -> bool:
    """Return whether a setting is an alias that a subcommand does not run. The subcommand must not be an alias.

    Git runs its own programs as subcommands, and an alias in place of a missing one: merge-ours, remote-https,
    credential-cache. Such names are not spared. An alias may lead to another one.
    """
    return bool(subcommand) and key.startswith("alias.") and key.removeprefix("alias.").isalnum()


# ------------------------------------------------------------------------------------------- the table


@frozen
class _Group:
    """A group of settings that are judged alike; the keys are explained in `settings.toml`."""

    keys: re.Pattern[str]
    program: bool = False
    unless: frozenset[str] = frozenset()
    spares: frozenset[str] = frozenset()
    only: frozenset[str] | None = None

    def allows(self, value: str | None) -> bool:
        """Return whether the value is harmless."""
        given = "true" if value is None else value
        kinds = (
            ("boolean", _BOOLEAN.fullmatch(given) is not None),
            ("inside", bool(given) and not given.startswith(("/", "~", "%")) and ".." not in given.split("/")),
            ("address", _is_address(given)),
            ("no shell", not given.startswith("!")),
            ("no signature", _SIGNATURE.search(given) is None),
            ("word", _WORD.fullmatch(given) is not None),
        )
        return given in self.unless or any(kind in self.unless and fits for kind, fits in kinds)

    def obeyed_by(self, subcommand: str) -> bool:
        """Return whether a subcommand may obey the settings."""
        return subcommand in self.only or not subcommand if self.only is not None else subcommand not in self.spares


class _Hooks(NamedTuple):
    """A set of hooks, and the subcommands that never run them."""

    names: frozenset[str]
    spares: frozenset[str]


class _SettingTable(NamedTuple):
    """All of `settings.toml`."""

    local: frozenset[str]
    harmless: re.Pattern[str]
    may_set: re.Pattern[str]
    groups: tuple[_Group, ...]
    hooks: tuple[_Hooks, ...]

    def group(self, key: str) -> _Group | None:
        """Return the group that judges a setting; None if the setting is harmless."""
        folded = key.casefold()
        if self.harmless.fullmatch(folded):
            return None
        return next((group for group in self.groups if group.keys.fullmatch(folded)), _UNKNOWN)


_UNKNOWN = _Group(lazy_regex(".*", re.DOTALL))
_Entry: TypeAlias = dict[str, object]


def _is_address(url: str) -> bool:
    """Return whether a value is the address of a server, a remote's name or a folder, and names no helper program."""
    if not url or url.startswith("-") or "::" in url:
        return False
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url)
    return _SERVER.fullmatch(url) is not None if scheme else True


@cache
def _table() -> _SettingTable:
    """Return the packaged table, a constant that is read late so that the start does not pay for it."""
    table: _Entry = packaged_table("acp_agent.workspace.git", "settings")
    local = frozenset(cast("list[str]", table["local"]))
    lists = {"@local": local, "@reads": frozenset(cast("list[str]", table["reads"]))}

    def names(entry: _Entry, key: str) -> frozenset[str]:
        given = cast("list[str]", entry.get(key, []))
        return frozenset[str]().union(*(lists.get(each, (each,)) for each in given))

    groups = tuple(
        _Group(
            _any_of(cast("list[str]", entry["keys"])),
            program=entry.get("program") is True,
            unless=names(entry, "unless"),
            spares=names(entry, "spares"),
            only=names(entry, "only") if "only" in entry else None,
        )
        for entry in cast("list[_Entry]", table["group"])
    )
    hooks = tuple(
        _Hooks(names(entry, "names"), names(entry, "spares")) for entry in cast("list[_Entry]", table["hooks"])
    )
    harmless, may_set = (_any_of(cast("list[str]", table[key])) for key in ("harmless", "may_set"))
    return _SettingTable(local, harmless, may_set, groups, hooks)


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))
