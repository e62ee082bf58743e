"""The names a shell would put in place of a pattern, for gates that judge what a command touches (T2.12, S2).

Rather too many than too few: a bracket may have been quoted, a letter may have two cases, `?` may be a byte of a
character, and bash before 5.2 lets `.*` mean `..`. Only folders that may be listed are read.
"""

import os
import re
from collections.abc import Callable, Iterator

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access
from acp_agent.linear_regex import LinearRegex

MAX_NAMES = 1000
"""Names a pattern may stand for."""

MAX_ENTRIES = 10_000
"""Entries of folders that are looked at for one pattern."""

Resolve = Callable[[str, Access], str]

_MAGIC = re.compile(r"[*?\[]")
_LONGEST = 255
_SET = re.compile(r"\[([!^]?)(\]?(?:\[[:.=][^\]]*\]|[^\]])*)\]")
_CLASS = re.compile(r"\[[:.=]([^\]]*?)[:.=]\]")
_RANGE = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_DOTTED_CLASSES = ("punct", "print", "graph", "ascii")


class _TooMany(Exception):
    """More entries or names than are looked at."""


def shell_names(pattern: str, folder: str, *, resolve: Resolve) -> tuple[str, ...] | None:
    """The paths a pattern may stand for in a folder, relative to it, or absolute as the pattern is.

    resolve   where a folder really is (Roots.resolve). What it refuses is not listed: a pattern behind it comes back
              unread, below the link that led there
    Empty when nothing fits, None when more fits than is looked at. Raises nothing.
    """
    search = _Search(resolve, folder)
    try:
        return tuple(search.paths(os.path.expanduser(pattern)))
    except _TooMany:
        return None


class _Search:
    def __init__(self, resolve: Resolve, folder: str) -> None:
        self._resolve = resolve
        self._folder = folder
        self._entries = 0

    def paths(self, pattern: str) -> list[str]:
        parts = [part for part in pattern.split("/") if part]
        found, unread = ["/" if pattern.startswith("/") else ""], list[str]()
        for at, part in enumerate(parts):
            if not _MAGIC.search(part):
                found = [os.path.join(each, part) for each in found]
                continue
            listed = list[str]()
            for each in found:
                names = self._names(each, part)
                if names is None:
                    unread.append(os.path.join(each, *parts[at:]))
                else:
                    listed += [os.path.join(each, name) for name in names]
                if len(listed) + len(unread) > MAX_NAMES:
                    raise _TooMany
            found = listed
        return [*found, *unread] if _MAGIC.search(pattern) else []

    def _names(self, below: str, part: str) -> list[str] | None:
        """The entries of one folder that fit; None for a folder that may not be listed."""
        try:
            folder = self._resolve(os.path.join(self._folder, below) or ".", Access.LIST)
        except (Refused, ToolError):
            return None
        fits = _Name(part)
        return [name for name in self._listed(folder, hidden=part.startswith(".")) if fits(name)]

    def _listed(self, folder: str, *, hidden: bool) -> Iterator[str]:
        if hidden:
            yield ".."
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._entries += 1
                    if self._entries > MAX_ENTRIES:
                        raise _TooMany
                    if hidden or not entry.name.startswith("."):
                        yield entry.name
        except OSError:
            return


class _Name:
    """One name of a pattern."""

    def __init__(self, part: str) -> None:
        try:
            self._regex = LinearRegex(_expression(part)) if len(part) <= _LONGEST else None
        except (ValueError, UnicodeEncodeError):
            self._regex = None

    def __call__(self, name: str) -> bool:
        """Whether a name may be meant: as characters, or byte by byte, as the C locale has it."""
        if self._regex is None:
            return True
        octets = os.fsencode(name).decode("latin-1")
        text = name.encode(errors="replace").decode()
        return self._regex.matches(text) or self._regex.matches(octets)


def _expression(part: str) -> str:
    """The regular expression (RE2) of one name of a pattern."""
    made, at = list[str](), 0
    while at < len(part):
        members = _SET.match(part, at)
        if members:
            made.append(f"(?:{_members(members[1], members[2])}|{re.escape(members[0])})")
            at = members.end()
            continue
        made.append({"*": "(?s:.*)", "?": "(?s:.)"}.get(part[at]) or re.escape(part[at]))
        at += 1
    return "".join(made)


def _members(negated: str, body: str) -> str:
    """`[a-z]`: letters in both cases, a range of letters any letter. `[!a]`: all but the single characters."""
    classes = [name for name in _CLASS.findall(body) if name]
    plain = [match.groups() for match in _RANGE.finditer(_CLASS.sub("", body))]
    singles = {single for _, _, single in plain if single}
    if negated:
        return f"[^{''.join(map(_code, sorted(singles)))}]" if singles else "(?s:.)"
    if any(name in _DOTTED_CLASSES or len(name) < 3 for name in classes):
        return "(?s:.)"
    ranges = [f"{_code(min(low, high))}-{_code(max(low, high))}" for low, high, _ in plain if low]
    letters = [r"\pL"] if any(low.isalpha() or high.isalpha() for low, high, _ in plain if low) else []
    cases = {case for single in singles for case in (single, single.lower()[:1], single.upper()[:1])}
    wide = [r"^."] if classes else []
    return (
        "(?:"
        + "|".join(
            [*(f"[{each}]" for each in wide), f"[{''.join([*map(_code, sorted(cases)), *ranges, *letters]) or ' '}]"]
        )
        + ")"
    )


def _code(character: str) -> str:
    return rf"\x{{{ord(character):x}}}"
