"""grep on this machine: lines that match a regular expression (T4.15, T4.16, security.md 2.4).

Patterns are RE2's on every machine, and every file is opened and searched here: ripgrep, where there is one, only says
which files are worth it. What is left out of a directory: hidden and ignored entries, the folders of `SKIPPED`,
links, binary and very large files, and whatever may not or cannot be read. A path that is named is searched even
when it would be left out, and so is a hidden or skipped name that the glob names; a file that is named has any size
and is asked for neither glob nor type. Files left out for their size or as secrets are told.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

from anyio import move_on_after, to_thread
from anyio.from_thread import check_cancelled

from acp_agent.core.backends import EntryKind, GrepMatch, GrepMatches, GrepQuery
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.secret_files import secrecy
from acp_agent.core.types import Access
from acp_agent.execution.file_types import file_type
from acp_agent.execution.glob import REPOSITORIES, FileGlob
from acp_agent.execution.ignore import IgnoreRules
from acp_agent.execution.matching_lines import matching_lines, text_blocks
from acp_agent.execution.path_errors import path_error, told_as
from acp_agent.execution.ripgrep import Bounds, find_ripgrep, scout
from acp_agent.execution.roots import Place, Roots
from acp_agent.execution.scout_pattern import scout_pattern
from acp_agent.execution.time_limit import SEARCH_SECONDS, TimeLimit
from acp_agent.execution.tree_walk import Met, walk
from acp_agent.linear_regex import LinearRegex

SKIPPED = frozenset({"target", "node_modules"})
_LONGEST_PATTERN = 4096


async def grep(
    roots: Roots, query: GrepQuery, ripgrep: str | None, largest: int, seconds: float = SEARCH_SECONDS
) -> GrepMatches:
    """The first `query.limit` matching lines in path and line order. Raises ToolError or Refused.

    `ripgrep` is a program to use where it exists; files over `largest` bytes are left out of a directory.
    After `seconds` the answer is what was found so far; ripgrep gets half of them.
    """
    time = TimeLimit(seconds)
    regex = await to_thread.run_sync(_compile, query)  # a large pattern takes a tenth of a second
    place, is_directory = await to_thread.run_sync(_locate, roots, query.path)
    search = _Search(place, regex, query, largest, time)
    if not is_directory:
        return await to_thread.run_sync(search.named_file)
    chosen = await to_thread.run_sync(_Choice, roots, place, query, time)
    files: list[str] | None = None
    with move_on_after(seconds / 2):
        files = await _scouted(chosen, query, ripgrep, largest)
    return await to_thread.run_sync(search.files, chosen.walked() if files is None else chosen.of(files))


async def _scouted(chosen: "_Choice", query: GrepQuery, ripgrep: str | None, largest: int) -> list[str] | None:
    """Every file worth a look and perhaps more, in no order; None when nobody can tell."""
    program = await to_thread.run_sync(find_ripgrep, ripgrep)
    pattern = scout_pattern(query.pattern, case_sensitive=query.case_sensitive)
    if program is None or pattern is None or not await to_thread.run_sync(chosen.can_be_scouted):
        return None
    return await scout(program, chosen.place, pattern, chosen.bounds(largest), case_sensitive=query.case_sensitive)


def _locate(roots: Roots, path: str) -> tuple[Place, bool]:
    """Where to search, and whether that is a directory."""
    place = roots.place(path, Access.LIST)
    try:
        os.close(place.root.open_directory(place.relative))
    except NotADirectoryError:
        return roots.place(path, Access.READ), False
    except OSError as error:
        raise path_error(error, place.given) from error
    return place, True


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


class _Choice:
    """Which files below a directory are searched; paths are relative to the root. For a worker thread."""

    def __init__(self, roots: Roots, place: Place, query: GrepQuery, time: TimeLimit) -> None:
        self.place = place
        self._roots = roots
        self._time = time
        self._secrets = query.secrets
        self._rules = IgnoreRules(place.root, place.relative, time)
        self._glob = None if query.glob is None else FileGlob(query.glob)
        self._type = None if query.file_type is None else file_type(query.file_type)
        self._below = 0 if place.relative == "." else len(place.relative) + 1
        self._entered = {"" if place.relative == "." else place.relative: True}

    def bounds(self, largest: int) -> Bounds:
        """What ripgrep need not look at."""
        hidden = self._glob is not None and self._glob.hidden
        skipped = {name for name in SKIPPED | (REPOSITORIES if hidden else frozenset[str]()) if not self._named(name)}
        return Bounds(largest, frozenset(skipped), self._rules.outer_file, hidden, self._secrets)

    def can_be_scouted(self) -> bool:
        """Whether ripgrep would not be held up by what it reads of itself."""
        return self._rules.readable

    def walked(self) -> Iterator[str]:
        """Every file there is to search, in order."""
        for met in walk(self.place.root, self.place.relative, self._wants):
            if met.kind is EntryKind.FILE:
                yield met.path

    def of(self, files: Iterable[str]) -> Iterator[str]:
        """Those of the files that a walk would have come to, in its order."""
        start = self.place.relative + "/" if self._below else ""
        for path in sorted({path for path in files if path.startswith(start)}, key=lambda path: path.split("/")):
            takes = self._enters(path.rpartition("/")[0]) and self._takes(path)
            if self._time.stops_at(self.place.root.absolute(path)):
                return
            if takes:
                yield path

    def _wants(self, met: Met) -> bool:
        if self._time.stopped is not None:
            return False
        directory = met.kind is EntryKind.DIRECTORY
        wants = self._would_enter(met.path) if directory else met.kind is EntryKind.FILE and self._takes(met.path)
        return not self._time.stops_at(self.place.root.absolute(met.path)) and wants

    def _enters(self, directory: str) -> bool:
        """Whether a walk comes into a directory at or below the place."""
        unknown = list[str]()
        while directory not in self._entered:
            unknown.append(directory)
            directory = directory.rpartition("/")[0]
        enters = self._entered[directory]
        for each in reversed(unknown):
            enters = self._entered[each] = enters and self._would_enter(each)
        return enters

    def _would_enter(self, directory: str) -> bool:
        """Also when it may not be listed: rules make exceptions below it, and files are judged by reading."""
        name = directory.rpartition("/")[2]
        if (name.startswith(".") or name in SKIPPED) and not self._named(name):
            return False
        return not self._rules.ignores(directory, is_directory=True)

    def _named(self, name: str) -> bool:
        return self._glob is not None and self._glob.names(name)

    def _takes(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        if (name.startswith(".") and not self._named(name)) or (self._type is not None and not self._type.has(name)):
            return False
        if self._glob is not None and not self._glob.matches(path[self._below :]):
            return False
        if self._rules.ignores(path, is_directory=False):
            return False
        return self._roots.allows(self.place.root.absolute(path), Access.READ)


class _TimeIsOver(Exception):
    """The search has used up its time within a file."""


class _Search:
    """One search, in a worker thread."""

    def __init__(self, place: Place, regex: LinearRegex, query: GrepQuery, largest: int, time: TimeLimit) -> None:
        self._place = place
        self._regex = regex
        self._context = 0 if query.files_only else query.context
        self._files_only = query.files_only
        self._limit = query.limit
        self._largest = largest
        self._too_large: list[str] = []
        self._secrecy = query.secrets
        self._secrets: list[str] = []
        self._time = time

    def named_file(self) -> GrepMatches:
        """Search the place itself, a file; what keeps it from being searched is an error."""
        fd = self._place.open_regular()
        try:
            with told_as(self._place.given):
                lines = self._lines(fd, self._place.relative, self._place.given)
        finally:
            os.close(fd)
        return self._limited([lines])

    def files(self, paths: Iterable[str]) -> GrepMatches:
        """Search files below the root; one that cannot be searched is passed over."""
        return self._limited(map(self._file_lines, paths))

    def _limited(self, files: Iterable[list[GrepMatch]]) -> GrepMatches:
        found: list[GrepMatch] = []
        room = self._limit
        for lines in files:
            found += lines
            room -= sum(line.matched for line in lines)
            if room < 0:
                return self._told(_first(found, self._limit, self._context), more=True)
        return self._told(tuple(found), more=False)

    def _told(self, matches: tuple[GrepMatch, ...], *, more: bool) -> GrepMatches:
        stopped = None if more else self._time.stopped
        return GrepMatches(matches, more, tuple(self._too_large), self._largest, stopped, tuple(self._secrets))

    def _file_lines(self, path: str) -> list[GrepMatch]:
        check_cancelled()
        absolute = self._place.root.absolute(path)
        if secrecy(absolute) > self._secrecy:
            self._secrets.append(absolute)
            return []
        try:
            fd = self._place.root.open_regular(path)
        except OSError:
            return []
        try:
            if os.fstat(fd).st_size > self._largest:
                self._too_large.append(absolute)
                return []
            return self._lines(fd, path, path)
        except (OSError, ToolError):
            return []
        finally:
            os.close(fd)

    def _lines(self, fd: int, path: str, given: str) -> list[GrepMatch]:
        """The file's lines, up to one match more than wanted; only the first match where files are asked for."""
        lines, left = list[GrepMatch](), 1 if self._files_only else self._limit + 1
        absolute = self._place.root.absolute(path)

        def check() -> None:
            check_cancelled()
            if self._time.stops_at(absolute):
                raise _TimeIsOver

        blocks = text_blocks(fd, self._largest, given)
        with suppress(_TimeIsOver):
            for line in matching_lines(absolute, blocks, self._regex, self._context, check):
                lines.append(line)
                left -= line.matched
                if left == 0:
                    break
        return lines


def _first(lines: list[GrepMatch], limit: int, context: int) -> tuple[GrepMatch, ...]:
    """The lines up to the limit's last match, and after it only the context that is its own."""
    *_, last = islice((at for at, line in enumerate(lines) if line.matched), limit)
    end = last + 1
    while (
        (line := lines[end]).path == lines[last].path and not line.matched and line.line <= lines[last].line + context
    ):
        end += 1
    return tuple(lines[:end])
