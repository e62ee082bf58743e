"""grep on this machine: lines that match a regular expression (T4.15, T4.16, security.md 2.4).

Patterns are RE2's on every machine, and every file is opened and searched here: ripgrep, where there is one, only says
which files are worth it. What is left out of a directory: hidden and ignored entries, the folders of `SKIPPED`,
links, binary and very large files, and whatever may not or cannot be read. A path that is named is searched even
when it would be left out, and so is a hidden or skipped name that the glob names; a file that is named has any size
and is asked for neither glob nor type. Files left out for their size or as secrets are told.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice

from anyio import move_on_after, to_thread
from anyio.from_thread import check_cancelled

from acp_agent.core.backends import EntryKind, GrepMatch, GrepMatches, GrepQuery
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.secret_files import secrecy
from acp_agent.core.types import Access
from acp_agent.regex import LinearRegex
from acp_agent.workspace.glob import REPOSITORIES, FileGlob
from acp_agent.workspace.paths import path_error, told_as
from acp_agent.workspace.ripgrep import Bounds, file_type, find_ripgrep, scout, scout_pattern
from acp_agent.workspace.roots import Place, Roots
from acp_agent.workspace.text_files import BOM, binary_error, is_binary
from acp_agent.workspace.tree_walk import SEARCH_SECONDS, IgnoreRules, Met, TimeLimit, walk

_BLOCK = 1024 * 1024
_LONGEST_SHOWN = 64 * 1024


def text_blocks(fd: int, longest: int, given: str) -> Iterator[bytes]:
    """A file's bytes in blocks of whole lines, CRLF as LF, without its BOM.

    A line of more than `longest` bytes ends its block although it goes on. Raises ToolError at the first NUL, OSError
    as read does. Runs in a worker thread and stops when its task is cancelled.
    """
    held, size, bom = list[bytes](), 0, BOM
    wanted = min(os.fstat(fd).st_size + 1, _BLOCK)  # little for a little file
    while chunk := os.read(fd, wanted):
        check_cancelled()
        if is_binary(chunk):
            raise binary_error(given)
        cut, size, wanted = chunk.rfind(b"\n") + 1, size + len(chunk), _BLOCK
        if cut or size > longest:
            cut = cut or len(chunk)
            yield b"".join((*held, chunk[:cut])).removeprefix(bom).replace(b"\r\n", b"\n")
            chunk, bom = chunk[cut:], b""
            held, size = [], len(chunk)
        held.append(chunk)
    if size:
        yield b"".join(held).removeprefix(bom)


def matching_lines(
    path: str, blocks: Iterable[bytes], regex: LinearRegex, context: int, check: Callable[[], None]
) -> Iterator[GrepMatch]:
    """The lines that match and `context` lines around each, in order and none twice.

    Raises what `blocks` raises, and what `check` raises, which is called again and again.
    """
    before, first = b"", 1  # what of the block before is needed; the number of the line the new block starts in
    given, after = 0, 0  # the number of the last line that was given; how many lines to give after a match
    for block in blocks:
        data, at, number = before + block, len(before), first
        check()
        while (start := _next_match(regex, data, at, check)) is not None or after:
            stop = len(data) if start is None else start
            while after and at < stop:
                if number > given:  # else it is the rest of a very long line
                    yield _line(path, number, data, at, matched=False)
                given, at, number, after = number, _end(data, at) + 1, number + 1, after - 1
            if start is None:
                break
            number += data.count(b"\n", at, start)
            yield from _lines_before(path, number, data, start, min(context, number - given - 1))
            if number > given:
                yield _line(path, number, data, start, matched=True)
            given, at, number, after = number, _end(data, start) + 1, number + 1, context
        first += block.count(b"\n")
        # One byte at least, or the next block would look like the beginning of the file.
        before = data[min(_back(data, len(data), context), len(data) - 1) :]


def _next_match(regex: LinearRegex, data: bytes, at: int, check: Callable[[], None]) -> int | None:
    """Where the next line with a match starts, at or after `at`, itself the start of a line or the end."""
    found = regex.find(data, at, check) if at < len(data) else None
    if found is None or (found == len(data) and data.endswith(b"\n")):  # an empty match behind the last line
        return None
    return data.rfind(b"\n", at, found) + 1 or at


def _lines_before(path: str, number: int, data: bytes, start: int, count: int) -> Iterator[GrepMatch]:
    at = _back(data, start, count)
    for each in range(number - data.count(b"\n", at, start), number):
        yield _line(path, each, data, at, matched=False)
        at = _end(data, at) + 1


def _back(data: bytes, at: int, count: int) -> int:
    """Where the line starts that is `count` lines before the one that starts at `at`, or the first there is."""
    for _ in range(count):
        at = data.rfind(b"\n", 0, max(at - 1, 0)) + 1
    return at


def _end(data: bytes, at: int) -> int:
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


def _line(path: str, number: int, data: bytes, at: int, *, matched: bool) -> GrepMatch:
    shown = data[at : min(_end(data, at), at + _LONGEST_SHOWN)]
    return GrepMatch(path, number, shown.rstrip(b"\r").decode("utf-8", "replace"), matched)


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
