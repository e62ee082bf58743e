"""Globs as find_path and settings take them: `*`, `?`, `[...]`, `{a,b}` in a name, `**` across.

`*` and `?` never match a slash and do match a leading dot. A trailing slash asks for directories. Matching is
linear in the path: a glob becomes an RE2 expression.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from acp_agent.core.errors import Refused, ToolError
from acp_agent.regex import LinearRegex

_LONGEST = 1024
_MAGIC = re.compile(r"[*?\[\]{}\\]")
_SET = re.compile(r"\[([!^]?)(\]?[^\]/]+|\])\]")  # a bracket without a partner, or an empty pair, stands for itself
_MOST_CHOICES = 256
_ANY_DEPTH = "(?:[^/]+/)*"
_EVERYTHING_BELOW = "[^/]+(?:/[^/]+)*"
REPOSITORIES = frozenset({".git", ".hg"})
"""Names that only a literal pattern matches, never a wildcard."""

NOTHING = r"[^\x00-\x{10FFFF}]"
"""The expression of a set without members, such as `[z-a]`."""


class Glob:
    """A parsed pattern. Raises Refused if it would leave the searched directory, and ToolError if it is invalid.

    prefix             leading directories without magic, to start the search in; "" for none
    depth              how many levels below the prefix a match can be, None = any
    directories_only   the pattern ended in a slash
    """

    def __init__(self, pattern: str) -> None:
        names = _names(pattern)
        self.directories_only = pattern.endswith("/")
        plain = 0
        while plain < len(names) - 1 and is_literal(names[plain]):
            plain += 1
        self.prefix = "/".join(names[:plain])
        self._start = f"{self.prefix}/" if self.prefix else ""
        rest = "/".join(names[plain:])
        self.depth = None if "**" in rest or "{" in rest else len(names) - plain
        try:
            self._regex = LinearRegex(to_regex(rest))
        except ValueError as error:
            raise _invalid(pattern, str(error)) from None

    def matches(self, path: str) -> bool:
        """Return whether a path relative to the prefix matches."""
        return self._regex.matches(path)

    def matches_whole(self, path: str) -> bool:
        """Return whether a path relative to the searched directory matches."""
        return path.startswith(self._start) and self._regex.matches(path[len(self._start) :])

    def matching(self, names: Sequence[str], directory: str = "") -> set[str]:
        """Return the names in a directory that match. It is much faster than asking for each.

        directory   relative to the prefix, with a slash at its end; "" for the prefix itself
        """
        return self._regex.matching(names, directory)


class FileGlob:
    """A glob that says which files below a directory are searched: without a slash, names at any depth.

    Raises Refused or ToolError as Glob does; there is no "!" that leaves files out.
    """

    def __init__(self, pattern: str) -> None:
        if pattern.startswith("!"):
            raise _invalid(pattern, "patterns that leave files out are not supported; name the files to search instead")
        glob = Glob(pattern)  # parsed as it was given, because errors quote it
        below = f"{pattern}**" if glob.directories_only else pattern
        self._glob = Glob(below if "/" in below else f"**/{below}")
        self.prefix = self._glob.prefix
        self._literal, self._dotted = _named(pattern)

    def matches(self, path: str) -> bool:
        """Return whether the glob matches a file, given its path relative to the searched directory."""
        return self._glob.matches_whole(path)

    @property
    def hidden(self) -> bool:
        """Whether the pattern has a name that begins with a dot."""
        return self._dotted is not None or any(name.startswith(".") for name in self._literal)

    def names(self, name: str) -> bool:
        """Return whether the pattern has this name, or a glob that begins with a dot and matches it."""
        if name in self._literal:
            return True
        return self._dotted is not None and name not in REPOSITORIES and self._dotted.matches(name)


def _named(pattern: str) -> tuple[frozenset[str], LinearRegex | None]:
    """Return the literal names of a pattern, and an expression for its globs that begin with a dot."""
    parts = {part for choice in islice(alternatives(pattern), _MOST_CHOICES) for part in choice.split("/")}
    dotted = sorted(part for part in parts if part.startswith(".") and not is_literal(part))
    try:
        regex = LinearRegex("|".join(map(to_regex, dotted))) if dotted else None
    except ValueError as error:
        raise _invalid(pattern, str(error)) from None
    return frozenset(part for part in parts if part not in ("", ".") and is_literal(part)), regex


def _names(pattern: str) -> list[str]:
    """Return the parts of the pattern between slashes, without empty ones and "."."""
    if len(pattern) > _LONGEST:
        raise _invalid(f"{pattern[:60]}…", f"longer than {_LONGEST} characters")
    try:
        pattern.encode()
    except UnicodeEncodeError:
        raise _invalid(pattern.encode("utf-8", "replace").decode(), "has half of a surrogate pair") from None
    names = pattern.split("/")
    if pattern.startswith("/") or ".." in names:
        raise Refused(
            f"pattern {pattern!r} leaves the directory it is searched from",
            "Give the directory as the path, and a pattern relative to it.",
        )
    names = [name for name in names if name not in ("", ".")]
    if not names or "\0" in pattern:
        raise _invalid(pattern, "names no file")
    return names


def _invalid(pattern: str, why: str) -> ToolError:
    return ToolError.invalid(f"pattern {pattern!r}: {why}")


def alternatives(pattern: str) -> Iterator[str]:
    """Yield the patterns that a pattern with choices stands for: `a{b,c}` is `ab` and `ac`. There may be very many."""
    choices = _Choices(pattern)
    if not choices.opens:
        yield pattern
        return
    cuts, depth = list[int](), 0  # the offsets of the first choice: its opening brace, its commas, its closing brace
    for at in sorted(choices.opens | choices.commas | choices.closes):
        depth -= at in choices.closes
        if depth == 0 or (depth == 1 and at in choices.commas):
            cuts.append(at)
        depth += at in choices.opens
        if at in choices.closes and depth == 0:
            break
    for start, end in pairwise(cuts):
        yield from alternatives(pattern[: cuts[0]] + pattern[start + 1 : end] + pattern[cuts[-1] + 1 :])


def is_literal(name: str) -> bool:
    """Return whether a name has no special characters, so that it only matches itself."""
    return _MAGIC.search(name) is None


def to_regex(pattern: str) -> str:
    """Return the regular expression (RE2) of a glob without empty names. It is not checked: see `LinearRegex`."""
    choices = _Choices(pattern)
    parts: list[str] = []
    name_starts = True  # whether a name starts here
    outside = list[bool]()  # for each open choice, whether a name starts where the choice begins
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if at in choices.opens:
            outside.append(name_starts)
            parts.append("(?:")
        elif at in choices.commas:
            name_starts = outside[-1]
            parts.append("|")
        elif at in choices.closes:
            outside.pop()
            name_starts = False
            parts.append(")")
        elif name_starts and (end := _stars_end(pattern, at, choices)):
            # `**` as a whole name: any directories, or at the end anything below
            parts.append(_ANY_DEPTH if pattern[end : end + 1] == "/" else _EVERYTHING_BELOW)
            at = end
        else:
            name_starts = character == "/"
            at, part = _one(pattern, at)
            parts.append(part)
            continue
        at += 1
    return "".join(parts)


def _stars_end(pattern: str, at: int, choices: "_Choices") -> int:
    """Return where a name of two or more stars that starts at `at` ends, or 0."""
    end = at
    while pattern[end : end + 1] == "*":
        end += 1
    whole = end == len(pattern) or pattern[end] == "/" or end in choices.commas or end in choices.closes
    if end - at < 2 or not whole:
        return 0
    return end if pattern[end : end + 1] == "/" else end - 1


def _one(pattern: str, at: int) -> tuple[int, str]:
    """Return one element that is no choice and no `**`: where the next begins, and its regular expression."""
    match pattern[at]:
        case "*":
            return at + 1, "[^/]*"
        case "?":
            return at + 1, "[^/]"
        case "[" if found := _SET.match(pattern, at):
            return found.end(), _set(found[1], found[2])
        case "\\" if at + 1 < len(pattern):
            return at + 2, re.escape(pattern[at + 1])
        case character:
            return at + 1, re.escape(character)


class _Choices:
    """The places of each `{a,b}` in a pattern. A brace without a partner or a comma stands for itself."""

    def __init__(self, pattern: str) -> None:
        self.opens: set[int] = set()
        self.commas: set[int] = set()
        self.closes: set[int] = set()
        waiting: list[tuple[int, list[int]]] = []  # open braces, each with the commas directly in it
        at = 0
        while at < len(pattern):
            if pattern[at] == "{":
                waiting.append((at, []))
            elif pattern[at] == "," and waiting:
                waiting[-1][1].append(at)
            elif pattern[at] == "}" and waiting:
                opened, commas = waiting.pop()
                if commas:
                    self.opens.add(opened)
                    self.commas.update(commas)
                    self.closes.add(at)
            at = _one(pattern, at)[0]


def _set(negated: str, body: str) -> str:
    """Return the expression of a set, `[a-z]` or `[!a-z]`. It never matches a slash."""
    ranges = "".join(_ranges(body))
    if negated:
        return f"[^/{ranges}]"
    return f"[{ranges}]" if ranges else NOTHING


def _ranges(body: str) -> list[str]:
    """Return the members of a set as RE2 ranges, the slash cut out."""
    members: list[str] = []
    at = 0
    while at < len(body):
        low = high = ord(body[at])
        at += 1
        if at + 1 < len(body) and body[at] == "-":
            high = ord(body[at + 1])
            at += 2
        slash = ord("/")
        spans = [(low, min(high, slash - 1)), (max(low, slash + 1), high)] if low <= slash <= high else [(low, high)]
        members += [rf"\x{{{start:x}}}-\x{{{end:x}}}" for start, end in spans if start <= end]
    return members
