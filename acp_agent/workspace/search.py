"""grep on this machine: lines that match a regular expression.

ripgrep searches. It opens files by name, so it may follow a link that was swapped in while it runs. Therefore the
lines that are shown, or the first line of a file if none is shown, are compared with the file that is opened below the
root. If they differ, nothing of the file is counted or shown.

A search of a directory leaves out hidden and ignored entries, the folders of `SKIPPED`, links, binary and very large
files, and files that may not or cannot be read. The path of the query itself is always searched, and so are hidden and
skipped names that the glob spells. If the path is a file, its size, the glob and the type do not matter.
"""

import os
import re
from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

from anyio import Event, create_task_group, move_on_after, to_thread
from anyio.abc import TaskGroup
from anyio.from_thread import check_cancelled

from acp_agent.core.backends import GrepMatch, GrepMatches, GrepQuery
from acp_agent.core.errors import ToolError
from acp_agent.core.secrets import Secrecy, secrecy, secrecy_hint
from acp_agent.core.types import Access
from acp_agent.regex import LinearRegex, Regex, compiled
from acp_agent.workspace.beneath import errors_about, holding, path_error
from acp_agent.workspace.glob import REPOSITORIES, FileGlob
from acp_agent.workspace.ripgrep import (
    BY_MARK,
    LONGEST_LINE,
    FoundLine,
    MatchReader,
    Ripgrep,
    file_type,
    matching_lines,
    respelled,
)
from acp_agent.workspace.roots import FileOpener, Place, Roots
from acp_agent.workspace.text_files import (
    BOM,
    MOST_COMPARED,
    UTF_16_BOMS,
    binary_error,
    decode_line,
    decode_text,
    is_binary,
    read_bounded,
)
from acp_agent.workspace.tree_walk import SEARCH_SECONDS, IgnoreRules, TimeLimit

SKIPPED = frozenset({"target", "node_modules"})
_LONGEST_PATTERN = 4096
_SHORT_LINE = 200
"""Characters of a line that is shown whole, or nearly so, wherever its match is."""
_UNSURE = 16 * 1024
"""Characters at the end of a line that was cut. A match in them is not shown: a secret behind it may be cut as well."""
_BLOCK = 1024 * 1024  # bytes
_MOST_COUNTED = 20_000
"""Matching lines that a search counts before it may stop."""
_MOST_POSSIBLE = 2**31
"""More lines than any search finds. ripgrep takes no number of more than 64 bits."""
_MOST_UNORDERED, _MOST_HELD = 5000, 8 * 1024 * 1024
"""Matching lines, and bytes, that are held until they can be put in order. If there are more, ripgrep orders them."""
_UNORDERED_SHARE = 0.15
"""The part of the time limit in which a search without an order must end."""
_SIMPLE_NAME = re.compile(r"[\w.*-]*(?:\{[\w.*-]+(?:,[\w.*-]+)+\})?[\w.*-]*")


async def grep(
    roots: Roots, query: GrepQuery, ripgrep: str, largest: int, seconds: float = SEARCH_SECONDS
) -> GrepMatches:
    """Return `query.limit` matching lines in path and line order, and the number of all. Raises ToolError or Refused.

    `ripgrep` is the name or path of the program. Files over `largest` bytes are left out of a directory. After
    `seconds` the answer is what was found so far.
    """
    await to_thread.run_sync(_check_pattern, query)  # a large pattern takes a tenth of a second
    place, is_directory = await to_thread.run_sync(_locate, roots, query.path)
    program = Ripgrep(ripgrep, place.root.path)
    if is_directory:
        return await _grep_directory(roots, place, query, program, largest, seconds)
    return await _grep_file(place, query, program, seconds)


def _compiled(query: GrepQuery) -> LinearRegex:
    return LinearRegex(query.pattern, case_sensitive=query.case_sensitive, by_line=True)


def _check_pattern(query: GrepQuery) -> None:
    """Raise ToolError unless RE2 takes the pattern: its errors are short, and its patterns run in linear time."""
    if len(query.pattern) > _LONGEST_PATTERN:
        raise ToolError.invalid(f"pattern {query.pattern[:60]!r}… is longer than {_LONGEST_PATTERN} characters")
    try:
        _compiled(query)
    except ValueError as error:
        raise ToolError.invalid(
            f"pattern {query.pattern!r} is not a regular expression: {error}",
            "Use RE2 syntax: no look-around and no back-references; escape ( ) [ ] { } . * + ? to mean themselves.",
        ) from None


def _locate(roots: Roots, path: str) -> tuple[Place, bool]:
    """Return where to search, and whether that is a directory."""
    place = roots.place(path, Access.LIST)
    try:
        os.close(place.root.open_directory(place.relative))
    except NotADirectoryError:
        return roots.place(path, Access.READ), False
    except OSError as error:
        raise path_error(error, place.given) from error
    return place, True


def _most(query: GrepQuery) -> int:
    """Return the number of matching lines after which a search ends. It is never below what the query asks for."""
    return min(max(_MOST_COUNTED, query.offset + query.limit), _MOST_POSSIBLE)


def _arguments(query: GrepQuery) -> list[str]:
    return [
        "--case-sensitive" if query.case_sensitive else "--ignore-case",
        *(f"--{side}-context={lines}" for side, lines in zip(("before", "after"), query.around(), strict=True)),
        f"--max-count={1 if query.files_only else _most(query) + 1}",
        f"--regexp={respelled(query.pattern)}",
    ]


async def _grep_file(place: Place, query: GrepQuery, program: Ripgrep, seconds: float) -> GrepMatches:
    """Search one file, which ripgrep reads from an open descriptor. Raises ToolError for a binary file."""
    lines = _Lines(place, query, choice=None)
    with holding(await to_thread.run_sync(place.open_regular)) as fd, move_on_after(seconds) as time:
        encoding = await to_thread.run_sync(_encoding, fd, place.given)
        await program.search([encoding, "--text", *_arguments(query), "--", "-"], lines.take, stdin=fd)
    return await to_thread.run_sync(partial(lines.result, stopped=time.cancelled_caught))


def _encoding(fd: int, given: str) -> str:
    """Return the argument that lets ripgrep read a file as `read` does. Raises ToolError for a binary file."""
    decoder, is_utf_8 = getincrementaldecoder("utf-8")(), True
    with errors_about(given):
        if os.pread(fd, 2, 0) in UTF_16_BOMS:
            return BY_MARK
        while chunk := os.read(fd, _BLOCK):
            check_cancelled()
            if is_binary(chunk):
                raise binary_error(given)
            is_utf_8 = is_utf_8 and _decodes(decoder, chunk)
        os.lseek(fd, 0, os.SEEK_SET)
    return BY_MARK if is_utf_8 and _decodes(decoder, b"", final=True) else "--encoding=windows-1252"


def _decodes(decoder: IncrementalDecoder, chunk: bytes, *, final: bool = False) -> bool:
    try:
        decoder.decode(chunk, final)
    except UnicodeDecodeError:
        return False
    return True


async def _grep_directory(
    roots: Roots, place: Place, query: GrepQuery, program: Ripgrep, largest: int, seconds: float
) -> GrepMatches:
    choice = await to_thread.run_sync(_Choice, roots, place, query, TimeLimit(seconds))
    lines = _Lines(place, query, choice)
    start = await to_thread.run_sync(choice.start)
    if start is None:
        return GrepMatches((), more=False, size_limit=largest)
    names = _FileNames(program, choice, start, largest)
    arguments = [*names.searchable, *_arguments(query), *names.below]
    with move_on_after(seconds) as time:
        try:
            async with create_task_group() as tasks:
                tasks.start_soon(names.list_all)
                few = await _few_lines(program, arguments, query, seconds * _UNORDERED_SHARE)
                if few is None:
                    names.find_large(tasks)
                    await program.search(arguments, lines.take)
                else:
                    await to_thread.run_sync(few.give_to, lines)
                    if few.searched != await names.count():
                        names.find_large(tasks)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
    found = await to_thread.run_sync(partial(lines.result, stopped=time.cancelled_caught))
    too_large, secrets = await to_thread.run_sync(choice.left_out, names, lines.last if found.capped else None)
    return replace(found, too_large=too_large, size_limit=largest, secrets=secrets)


class _FileNames:
    """The number of files below a directory, and the names of those not searched. Other names are not kept.

    searchable, below   ripgrep's arguments for the files that are not too large, and for where they are
    secret              files that are too secret to be searched. Some or all may be missing
    """

    def __init__(self, program: Ripgrep, choice: "_Choice", start: str, largest: int) -> None:
        self._program = program
        self._choice = choice
        self._every = choice.flags(start)
        self.searchable = (*self._every, f"--max-filesize={largest}")
        self.below = ("--", "./" if start == "." else f"./{start}")
        self._listed = Event()
        self._count = 0
        self._missing = MissingNames()
        self.secret = set[bytes]()

    async def list_all(self) -> None:
        """List the names of all files. Raises ToolError."""

        async def take(names: bytes) -> None:
            self._count += names.count(b"\0")
            if suspects := self._choice.suspects(names):
                self.secret.update(await to_thread.run_sync(self._choice.secret, suspects))

        if not await self._program.listing([*self._every, *self.below], take):
            self._count = 0
            self.secret.clear()
        self._listed.set()

    async def count(self) -> int:
        """Return the number of all files, once they are listed. 0 if there are too many."""
        await self._listed.wait()
        return self._count

    def find_large(self, tasks: TaskGroup) -> None:
        """Find the files that are too large by comparing two lists: cheaper than a stat of each. Raises ToolError."""
        tasks.start_soon(self._compare, EVERY, self._every)
        tasks.start_soon(self._compare, SOME, self.searchable)

    async def _compare(self, names: int, walk: Sequence[str]) -> None:
        take = partial(self._missing.take, names)
        self._missing.end(names, whole=await self._program.listing([*walk, *self.below], take))

    @property
    def large(self) -> set[bytes]:
        """The files that are too large. Empty unless they were looked for."""
        return self._missing.names


EVERY, SOME = 0, 1
_MOST_AHEAD = 1000  # names


class MissingNames:
    """The names in a list (EVERY) that another list (SOME) lacks. Both come in pieces.

    only   the names that came in one list, and not yet in the other, for each list

    No other names are held. These are few if the lists have one order, as those of ripgrep have, because the list that
    is ahead waits for the other.
    """

    def __init__(self) -> None:
        self.only = set[bytes](), set[bytes]()
        self._whole = [False, False]
        self._ended = False
        self._moved = Event()

    async def take(self, which: int, names: bytes) -> None:
        """Take some names, each with a NUL after it, and wait until the other list is not far behind or ended."""
        ahead, behind = self.only[which], self.only[1 - which]
        new = set(names.split(b"\0")[:-1])
        common = new & behind
        behind -= common
        ahead |= new - common
        self._move()
        while not self._ended and len(ahead) > len(behind) + _MOST_AHEAD:
            await self._moved.wait()

    def end(self, which: int, *, whole: bool) -> None:
        """End a list. `whole` says whether nothing is missing in it."""
        self._whole[which] = whole
        self._ended = True
        self._move()

    def _move(self) -> None:
        self._moved.set()
        self._moved = Event()

    @property
    def names(self) -> set[bytes]:
        """The missing names. Empty before both lists have ended, and if one is not whole."""
        return self.only[EVERY] if all(self._whole) else set[bytes]()


@cache
def _secrecy_hint() -> Regex:
    return compiled(secrecy_hint().encode(), lines=True, captures=False, utf8=False, case_sensitive=False)


async def _few_lines(
    program: Ripgrep, arguments: Sequence[str], query: GrepQuery, seconds: float
) -> "_UnorderedLines | None":
    """Search with several threads. Return None if there is much to find, or it takes long, or it fails.

    The caller then searches in order: such a search ends when it has found enough, and knows where its time ran out.
    """
    lines = _UnorderedLines(min(_most(query), _MOST_UNORDERED))
    with move_on_after(seconds):
        try:
            await program.search(arguments, lines.take, ordered=False)
        except ToolError:
            return None
        return lines if lines.are_few else None
    return None


class _UnorderedLines:
    """The lines of a search without an order, as ripgrep prints them.

    are_few    whether all of them are there
    searched   the number of files that were searched, None before `give_to`
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._reader = MatchReader()
        self._chunks = list[bytes]()
        self._matched = self._held = 0

    async def take(self, chunk: bytes) -> bool:
        """Take what ripgrep printed. Return True if it is too much."""
        self._chunks.append(chunk)
        self._held += len(chunk)
        self._matched += matching_lines(chunk)
        return not self.are_few

    @property
    def are_few(self) -> bool:
        return self._matched <= self._most and self._held <= _MOST_HELD

    @property
    def searched(self) -> int | None:
        return self._reader.searched

    def give_to(self, lines: "_Lines") -> None:
        """Add the lines in the order of their paths."""
        files = [file for chunk in self._chunks for file in self._reader.feed(chunk)]
        files += self._reader.finish()
        lines.add(sorted(files, key=lambda file: file[0].split(b"/")))


class _Lines:
    """The lines of one search. Those of a directory are compared with their files.

    last   the absolute path of the last file that matches, "" if there is none
    """

    def __init__(self, place: Place, query: GrepQuery, choice: "_Choice | None") -> None:
        self._place = place
        self._query = query
        self._choice = choice
        self._reader = MatchReader()
        self._counts = list[tuple[str, int]]()
        self._files = self._counted = 0
        self.last = ""
        self._most = _most(query)
        self._found: list[GrepMatch] = []
        self._pattern: LinearRegex | None = None  # only long lines need it

    async def take(self, chunk: bytes) -> bool:
        """Take what ripgrep printed. Return True if no more is needed."""
        return await to_thread.run_sync(self._take, chunk)

    def _take(self, chunk: bytes) -> bool:
        self.add([*self._reader.feed(chunk)])
        return self._counted > self._most

    def result(self, *, stopped: bool) -> GrepMatches:
        """Return what was found. `stopped` says that the time was over before the end."""
        capped = self._counted > self._most
        if not capped:
            self.add([*self._reader.finish()])
        more = self._counted > self._query.offset + self._query.limit
        last = self._place.relative if self._choice is None else relative_path(self._reader.path)
        where = self._place.root.absolute(last or self._place.relative) if stopped and not capped else None
        return GrepMatches(
            tuple(self._found),
            more,
            stopped=where,
            files=self._files,
            total=self._counted,
            counts=tuple(self._counts),
            capped=self._counted > self._most,
        )

    def add(self, files: Sequence[tuple[bytes, list[FoundLine]]]) -> None:
        """Count the matches of files until they are enough, and keep those that are asked for."""
        names = b"".join(b"%s\0" % name for name, _ in files)
        suspects = frozenset(() if self._choice is None else self._choice.suspects(names))
        with FileOpener(self._place.root) as opener:
            for name, lines in files:
                check_cancelled()
                self._add(name, lines, opener, suspected=name in suspects)
                if self._counted > self._most:
                    return

    def _add(self, name: bytes, lines: list[FoundLine], opener: FileOpener, *, suspected: bool) -> None:
        path = self._place.relative
        if self._choice is not None:
            named = relative_path(name)
            if named is None or not self._choice.takes(named, suspected=suspected):
                return
            path = named
        matched = [line.number for line in lines if line.matched]
        first, end = self._query.offset - self._counted, self._query.offset + self._query.limit - self._counted
        wanted = matched[max(first, 0) : end] if end > 0 else []
        shown = self._with_context(lines, set(wanted)) if wanted else []
        if self._choice is not None and not _are_in_file(opener, path, shown or lines[:1]):
            return
        self._files += 1
        self._counted += len(matched)
        self.last = absolute = self._place.root.absolute(path)
        if not self._query.limit:
            self._counts.append((absolute, len(matched)))
        for line in shown:
            text = decode_line(line.text)
            is_cut = len(line.text) > LONGEST_LINE - 4  # a part of a character was left out
            column = self._column(text, is_cut=is_cut) if line.matched and len(text) > _SHORT_LINE else 0
            self._found.append(GrepMatch(absolute, line.number, text, line.matched, column))

    def _column(self, text: str, *, is_cut: bool) -> int | None:
        self._pattern = self._pattern or _compiled(self._query)
        data = text.encode(errors="replace")
        at = self._pattern.find(data, 0, check_cancelled)
        column = None if at is None else len(data[:at].decode(errors="replace"))
        return None if column is not None and is_cut and column > len(text) - _UNSURE else column

    def _with_context(self, lines: list[FoundLine], wanted: set[int]) -> list[FoundLine]:
        before, after = self._query.around()
        around = {number for match in wanted for number in range(match - before, match + after + 1)}
        return [line for line in lines if line.number in (wanted if line.matched else around)]


def _are_in_file(opener: FileOpener, path: str, lines: Sequence[FoundLine]) -> bool:
    """Return whether the file has these lines at their offsets, which do not count its byte order mark."""
    try:
        with holding(opener.open(path)) as fd:
            mark = os.pread(fd, len(BOM), 0)
            if mark.startswith(UTF_16_BOMS):
                text = decode_text(read_bounded(fd, MOST_COMPARED, path), path).encode()
                return all(text.startswith(line.text, line.offset) for line in lines)
            start = len(BOM) if mark == BOM else 0
            return all(os.pread(fd, len(line.text), start + line.offset) == line.text for line in lines)
    except (OSError, ToolError):
        return False


def relative_path(name: bytes) -> str | None:
    """Return a path as ripgrep prints it, without `./`; None if no tool could open it or it does not lie below."""
    try:
        path = name.decode().removeprefix("./")
    except UnicodeDecodeError:
        return None
    return None if not path or path.startswith(("/", "../")) or os.path.normpath(path) != path else path


class _Choice:
    """The choice of files below a directory that are searched, by paths relative to the root. For a worker thread."""

    def __init__(self, roots: Roots, place: Place, query: GrepQuery, time: TimeLimit) -> None:
        self._root = place.root
        self._roots = roots
        self._query = query
        self._rules = IgnoreRules(place.root, place.relative, time)
        self._glob = None if query.glob is None else FileGlob(query.glob)
        self._type = None if query.file_type is None else file_type(query.file_type)
        self._start = "" if place.relative == "." else f"{place.relative}/"
        self._entered = {self._start.removesuffix("/"): True}
        self._is_suspect = _secrecy_hint().search(os.fsencode(f"{self._root.path}/")) is not None

    def start(self) -> str | None:
        """Return the directory below which all files of the choice lie, or None if there is no such directory."""
        if self._glob is None or not self._glob.prefix:
            return self._start.removesuffix("/") or "."
        start = f"{self._start}{self._glob.prefix}"
        try:
            os.close(self._root.open_directory(start))
        except OSError:  # also for a link, which no search follows
            return None
        return start

    def flags(self, start: str) -> list[str]:
        """Return the flags with which ripgrep opens every file of the choice, and few others."""
        hidden = self._glob is not None and self._glob.hidden
        skipped = SKIPPED | (REPOSITORIES if hidden else frozenset[str]())
        flags = ["--hidden" if hidden else "--no-hidden"]
        flags += [f"--glob=!**/{name}/" for name in sorted(skipped) if not self._named(name)]
        if not self._rules.readable:
            flags += ["--no-ignore"]
        elif self._rules.has_file_above(start):
            flags += ["--ignore-file=.gitignore"]
        wanted = self._name_globs()
        return [*flags, *(f"--type-add=wanted:{glob}" for glob in wanted), *(["--type=wanted"] if wanted else [])]

    def _name_globs(self) -> list[str]:
        """Return globs of file names. The name of every wanted file matches one of them. Empty if any name may."""
        if self._type is not None:
            return self._type.globs()
        name = (self._query.glob or "").rpartition("/")[2]
        return [name] if name and "**" not in name and _SIMPLE_NAME.fullmatch(name) else []

    def takes(self, path: str, *, suspected: bool) -> bool:
        """Return whether a file is searched. `suspected` is whether it is among the `suspects`."""
        absolute = self._root.absolute(path)
        return self._is_chosen(path, absolute) and not (suspected and self._is_secret(absolute))

    def left_out(self, names: _FileNames, last_match: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the files that are too large and those that are too secret, absolute and in order.

        last_match   the file after which others do not matter, if the search ended early
        """
        last = None if last_match is None else _order(last_match)
        too_large, secrets = list[str](), list[str]()
        paths = map(relative_path, names.large | names.secret)
        for path in sorted((path for path in paths if path is not None), key=_order):
            absolute = self._root.absolute(path)
            if last is not None and _order(absolute) > last:
                break
            if self._is_chosen(path, absolute):
                (secrets if self._is_secret(absolute) else too_large).append(absolute)
        return tuple(too_large), tuple(secrets)

    def _is_secret(self, absolute: str) -> bool:
        return secrecy(absolute) > self._query.secrets

    def suspects(self, names: bytes) -> list[bytes]:
        """Return the names that may be too secret, and some others. Each of the given names has a NUL after it."""
        if self._query.secrets is Secrecy.SEALED:
            return []
        if self._is_suspect:
            return names.split(b"\0")[:-1]
        paths = b"/" + names.replace(b"\0", b"\0/")  # the expression knows the first name of a path by its slash
        hint, found, end = _secrecy_hint(), list[bytes](), 0
        while hit := hint.search(paths, end):
            start, end = paths.rfind(b"\0", 0, hit.start()) + 1, paths.index(b"\0", hit.start())
            found.append(paths[start + 1 : end])
        return found

    def secret(self, suspects: Sequence[bytes]) -> list[bytes]:
        """Return those of these names that are too secret."""
        paths = ((name, name.removeprefix(b"./").decode(errors="replace")) for name in suspects)
        return [name for name, path in paths if self._is_secret(self._root.absolute(path))]

    def _is_chosen(self, path: str, absolute: str) -> bool:
        return (
            path.startswith(self._start)
            and self._enters(path.rpartition("/")[0])
            and self._takes_name(path)
            and self._roots.allows(absolute, Access.READ)
        )

    def _enters(self, directory: str) -> bool:
        """Return whether a search enters a directory and all those above it, up to the start."""
        unknown = list[str]()
        while directory not in self._entered:
            unknown.append(directory)
            directory = directory.rpartition("/")[0]
        enters = self._entered[directory]
        for each in reversed(unknown):
            enters = self._entered[each] = enters and self._would_enter(each)
        return enters

    def _would_enter(self, directory: str) -> bool:
        """Return whether a search enters a directory, even one that may not be listed: only files are judged."""
        name = directory.rpartition("/")[2]
        if (name.startswith(".") or name in SKIPPED) and not self._named(name):
            return False
        return not self._rules.ignores(directory, is_directory=True)

    def _named(self, name: str) -> bool:
        return self._glob is not None and self._glob.names(name)

    def _takes_name(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        if (name.startswith(".") and not self._named(name)) or (self._type is not None and not self._type.has(name)):
            return False
        if self._glob is not None and not self._glob.matches(path[len(self._start) :]):
            return False
        return not self._rules.ignores(path, is_directory=False)


def _order(path: str) -> list[str]:
    return path.split("/")
