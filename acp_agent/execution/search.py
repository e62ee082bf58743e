"""grep on this machine: lines that match a regular expression (T4.15, T4.16, security.md 2.4).

Patterns are RE2's on every machine. A directory is searched by ripgrep where there is one, else here; one file
always here. Both leave out the same: hidden and ignored entries, the folders of `SKIPPED`, links, binary and
very large files, and whatever cannot be read. A path that is named is searched even when it would be left out.
"""

import os
from collections.abc import Iterator

from anyio import to_thread
from anyio.from_thread import check_cancelled

from acp_agent.core.backends import EntryKind, GrepMatch, GrepMatches, GrepQuery
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.types import Access
from acp_agent.execution.ignore import IgnoreRules
from acp_agent.execution.linear_regex import LinearRegex
from acp_agent.execution.path_errors import path_error, told_as
from acp_agent.execution.ripgrep import Candidate, candidates, find_ripgrep
from acp_agent.execution.roots import Place, Root, Roots
from acp_agent.execution.text_files import BOM, binary_error, is_binary, read_bounded
from acp_agent.execution.tree_walk import Met, walk

SKIPPED = frozenset({"target", "node_modules"})
_LONGEST_LINE = 64 * 1024
_LONGEST_PATTERN = 4096


async def grep(roots: Roots, query: GrepQuery, ripgrep: str | None, largest: int) -> GrepMatches:
    """The first `query.limit` matching lines in path and line order. Raises ToolError or Refused.

    `ripgrep` is a program to use where it exists; files over `largest` bytes are left out.
    """
    regex = _compile(query)
    place, is_directory, program = await to_thread.run_sync(_locate, roots, query.path, ripgrep)
    search = _Search(roots, place, regex, query.limit, largest)
    if not is_directory:
        return await to_thread.run_sync(search.named_file)
    if program is not None and "\0" not in query.pattern:  # no argument can have a NUL in it
        rules = await to_thread.run_sync(IgnoreRules, place.root, place.relative)
        found = await candidates(program, place, query, largest, SKIPPED, outer_rules=rules.outer_file)
        if found is not None:
            return await to_thread.run_sync(search.confirmed, found, rules)
    return await to_thread.run_sync(search.tree)


def _locate(roots: Roots, path: str, ripgrep: str | None) -> tuple[Place, bool, str | None]:
    """Where to search, whether that is a directory, and with which program."""
    place = roots.place(path, Access.READ)
    try:
        os.close(place.root.open_directory(place.relative))
    except NotADirectoryError:
        return place, False, None
    except OSError as error:
        raise path_error(error, place.given) from error
    return place, True, find_ripgrep(ripgrep)


def _compile(query: GrepQuery) -> LinearRegex:
    if len(query.pattern) > _LONGEST_PATTERN:
        msg = f"pattern {query.pattern[:60]!r}… is longer than {_LONGEST_PATTERN} characters"
        raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, msg)
    try:
        return LinearRegex(query.pattern, case_sensitive=query.case_sensitive, by_line=True)
    except ValueError as error:
        raise ToolError(
            ToolErrorCategory.INVALID_PARAMETERS,
            f"pattern {query.pattern!r} is not a regular expression: {error}",
            "Use RE2 syntax: no look-around and no back-references; escape ( ) [ ] { } . * + ? to mean themselves.",
        ) from None


class _Search:
    """One search, in a worker thread."""

    def __init__(self, roots: Roots, place: Place, regex: LinearRegex, limit: int, largest: int) -> None:
        self._roots = roots
        self._place = place
        self._regex = regex
        self._limit = limit
        self._largest = largest

    def named_file(self) -> GrepMatches:
        """Search the place itself, a file; what keeps it from being searched is an error."""
        place = self._place
        fd = place.open_regular()
        try:
            with told_as(place.given):
                data = read_bounded(fd, self._largest, place.given)
        finally:
            os.close(fd)
        if is_binary(data):
            raise binary_error(place.given)
        return self._limited(self._lines(place.path, data))

    def tree(self) -> GrepMatches:
        """Search everything below the place."""
        return self._limited(self._tree_lines())

    def confirmed(self, found: list[Candidate], rules: IgnoreRules) -> GrepMatches:
        """Keep the lines another program found that are really there, read by our own fd, and not left out."""
        return self._limited(self._confirmed_lines(found, rules))

    def _limited(self, lines: Iterator[GrepMatch]) -> GrepMatches:
        matches: list[GrepMatch] = []
        for match in lines:
            if len(matches) == self._limit:
                return GrepMatches(tuple(matches), more=True)
            matches.append(match)
        return GrepMatches(tuple(matches), more=False)

    def _tree_lines(self) -> Iterator[GrepMatch]:
        root, rules = self._place.root, IgnoreRules(self._place.root, self._place.relative)

        def wanted(met: Met) -> bool:
            is_directory = met.kind is EntryKind.DIRECTORY
            if met.name.startswith(".") or (is_directory and met.name in SKIPPED):
                return False
            return not rules.ignores(met.path, is_directory=is_directory)

        for met in walk(root, self._place.relative, wanted):
            if met.kind is EntryKind.FILE and self._roots.allows(root.absolute(met.path), Access.READ):
                check_cancelled()
                data = _text_bytes(root, met.path, self._largest)
                if data is not None:
                    yield from self._lines(root.absolute(met.path), data)

    def _confirmed_lines(self, found: list[Candidate], rules: IgnoreRules) -> Iterator[GrepMatch]:
        root = self._place.root
        kept: dict[str, bool] = {}
        for candidate in found:
            path = candidate.path
            if path not in kept:
                check_cancelled()
                allowed = self._roots.allows(root.absolute(path), Access.READ)
                kept[path] = allowed and not rules.ignores_file_below(path)
            if kept[path] and _is_there(root, candidate):
                yield GrepMatch(root.absolute(path), candidate.line, _shown(candidate.text))

    def _lines(self, path: str, data: bytes) -> Iterator[GrepMatch]:
        """The matching lines of a file's bytes."""
        data = data.removeprefix(BOM).replace(b"\r\n", b"\n")
        at, number, counted = 0, 1, 0
        while at < len(data) and (found := self._regex.find(data, at)) is not None:
            if found == len(data) and data.endswith(b"\n"):
                break  # an empty match behind the last line
            start = data.rfind(b"\n", at, found) + 1 or at
            end = data.find(b"\n", found)
            end = len(data) if end < 0 else end
            number += data.count(b"\n", counted, start)
            counted = start
            yield GrepMatch(path, number, _shown(data[start : min(end, start + _LONGEST_LINE)]))
            at = end + 1


def _text_bytes(root: Root, path: str, largest: int) -> bytes | None:
    """The bytes of a text file that is not too large, or None."""
    try:
        fd = root.open_regular(path)
    except OSError:
        return None
    try:
        data = read_bounded(fd, largest, path)
    except (OSError, ToolError):
        return None
    finally:
        os.close(fd)
    return None if is_binary(data) else data


def _is_there(root: Root, candidate: Candidate) -> bool:
    """Whether the file below the root has these bytes at this place.

    A searching program follows whatever lies under a name when it looks; the root's own fd does not.
    """
    try:
        fd = root.open_regular(candidate.path)
    except OSError:
        return False
    try:
        # A BOM that the program took off shifts what follows.
        shifts = (0, len(BOM)) if os.pread(fd, len(BOM), 0) == BOM else (0,)
        size = len(candidate.text)
        return any(os.pread(fd, size, candidate.offset + shift) == candidate.text for shift in shifts)
    except OSError:
        return False
    finally:
        os.close(fd)


def _shown(line: bytes) -> str:
    return line[:_LONGEST_LINE].rstrip(b"\r\n").decode("utf-8", "replace")
