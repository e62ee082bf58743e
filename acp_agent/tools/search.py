"""grep and find_path: find lines of files by a regular expression, and files and folders by a glob."""

import os
import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

from acp_agent.core.backends import GrepMatch, GrepMatches, GrepQuery
from acp_agent.core.errors import ToolError
from acp_agent.core.ports import ToolContext
from acp_agent.core.secrets import Redact, Secrecy, secrecy
from acp_agent.core.types import Access, Location, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.shape import Field
from acp_agent.text import NOTE_SIZE, counted, lazy_regex, title, visible
from acp_agent.tools.tool import WHOLE, Name, Params, Tool, cut, quote, relative
from acp_agent.workspace.text_files import noted

_MOST_CONTEXT = 20
_GAP = "--"
_KB = 1024
_MOST_NAMED = 3
_COUNTED = 10_000
"""Missing characters of a line that are counted. A line comes without what stands behind its first 64 KiB."""
_MOST_REDACTED = 1024 * 1024
"""Characters of long lines in which secrets are looked for. Of further lines the beginning is shown."""
_MOST_LOCATIONS = 10
"""Files of a result that the editor is offered to open."""
_NOT_AS_WINDOWS = "[files in Windows-1252 match such characters only if path names the file]"
_ONE_LINE = "[each line is searched alone, so a line break matches nothing; context shows the lines around a match]"
_NO_LINE_BREAK = lazy_regex(r"\\[^n]|\[\^(?:\\.|[^]\\])*\]")
"""Parts of a pattern that match no line break: other escapes, and classes such as `[^\\n]`."""


class GrepParams(Params):
    """Find lines that match a regular expression, in a file or below a folder.

    Files that .gitignore names are left out.
    """

    pattern: Name = Field(description="RE2 syntax: no look-around, no back-references")
    path: Name = "."
    case_sensitive: bool = True
    context: Annotated[int, Field(ge=0, le=_MOST_CONTEXT, description="Lines around each match"), WHOLE] = 0
    before: Annotated[int, Field(ge=0, le=_MOST_CONTEXT), WHOLE] = 0
    after: Annotated[int, Field(ge=0, le=_MOST_CONTEXT), WHOLE] = 0
    glob: Name | None = Field(default=None, description='Only these files, such as "*.{ts,tsx}" or "src/**/test_*.py"')
    file_type: Name | None = Field(default=None, description="Only this language, such as py, ts or md")
    files_only: bool = Field(default=False, description="Only name the files that match")
    count: bool = Field(default=False, description="Only count the matching lines of each file")
    max_results: Annotated[int, Field(ge=1, le=1000), WHOLE] | None = None
    offset: Annotated[int, Field(ge=0, description="Results to skip"), WHOLE] = 0


class Grep(Tool[GrepParams]):
    """The tool that searches texts. Below the path of a file, a match is `12:text` and a line around one `12-text`.

    With context, `--` separates lines that are not adjacent. The last line has the number of all matches.
    """

    name = "grep"
    kind = ToolKind.SEARCH
    mutates = False
    cacheable = True

    def __init__(
        self, *, max_matches: int, max_line_chars: int, redact: Redact | None = None, guards_secrets: bool = True
    ) -> None:
        self._max_matches = max_matches
        self._max_line_chars = max_line_chars
        self._redact = redact
        self._guards_secrets = guards_secrets

    def title(self, params: GrepParams) -> str:
        where = f" in {title(params.path)}" if "path" in params.model_fields_set else ""
        return f'{self.name} "{title(params.pattern)}"{where}{f" ({title(params.glob)})" if params.glob else ""}'

    def subjects(self, params: GrepParams) -> tuple[Subject, ...]:
        # Listing is enough here: the file system checks for each file, also for this path, whether it may be read.
        searched = PathSubject(params.path, Access.LIST)
        wanted = _below(params)
        return (searched, PathSubject(wanted, Access.LIST)) if secrecy(wanted) > secrecy(params.path) else (searched,)

    async def run(self, params: GrepParams, context: ToolContext) -> ToolResult:
        glob = params.glob and _pattern_below(params.glob, params.path, context, key="glob")
        limit = params.max_results or self._max_matches
        query = GrepQuery(
            params.pattern,
            params.path,
            case_sensitive=params.case_sensitive,
            limit=0 if params.count else limit,
            offset=0 if params.count else params.offset,
            context=params.context,
            before=params.before,
            after=params.after,
            glob=glob,
            file_type=params.file_type,
            files_only=params.files_only and not params.count,
            secrets=self._secrets(params, context),
        )
        found = await context.files.grep(query)
        base = context.files.resolve(".", Access.LIST)
        if not found.files:
            lines = iter((f"No matches for: {params.pattern}", *_why_none(params.pattern)))
        elif params.count:
            lines = _counts(found, base, params.offset, limit)
        elif params.files_only:
            lines = _files(found, base, query)
        else:
            lines = self._lines(found, base, query, await self._without_secrets(found.matches))
        first_hits = {match.path: match.line for match in reversed(found.matches) if match.matched}
        locations = [Location(path, first_hits[path]) for path in sorted(first_hits)[:_MOST_LOCATIONS]]
        return ToolResult("\n".join((*lines, *_left_out(found, base))), locations=tuple(locations))

    def _secrets(self, params: GrepParams, context: ToolContext) -> Secrecy:
        """Return how secret the searched files may be. The gates have allowed those that the call names."""
        if not self._guards_secrets:
            return Secrecy.SEALED
        named = (params.path, context.files.resolve(params.path, Access.LIST), _below(params))
        return Secrecy.GUARDED if any(map(secrecy, named)) else Secrecy.OPEN

    async def _without_secrets(self, matches: Sequence[GrepMatch]) -> set[str]:
        """Return the long lines without secrets, of which any part may be shown.

        A part of another line could show the rest of a secret without the beginning by which it is recognised.
        """
        redact, long, size = self._redact, list[str](), 0
        if redact is None:
            return set()
        for match in matches:
            if match.column and len(match.text) > self._max_line_chars + NOTE_SIZE and size <= _MOST_REDACTED:
                long.append(match.text)
                size += len(match.text)
        return await noted(lambda: {text for text in long if redact(text) == text}, size)

    def _lines(self, found: GrepMatches, base: str, query: GrepQuery, clean: set[str]) -> Iterator[str]:
        last: GrepMatch | None = None
        for match in found.matches:
            if last is None or match.path != last.path:
                yield visible(relative(match.path, base))
            elif query.around() != (0, 0) and match.line != last.line + 1:
                yield _GAP
            yield f"{match.line}{':' if match.matched else '-'}{_around(match, self._max_line_chars, clean)}"
            last = match
        shown = sum(match.matched for match in found.matches)
        where = f" in {'1 file' if found.files == 1 else f'{found.files:,} files'}"
        yield _total(shown, found.total, query.offset, "match", "matches", capped=found.capped, where=where)


def _around(match: GrepMatch, limit: int, clean: set[str]) -> str:
    """Return a line, or the beginning of a long one. Of a long line in `clean`, return the part with the match."""
    text, column = match.text, match.column
    if len(text) <= limit + NOTE_SIZE:
        return text
    start = column - limit // 4 if column is not None and column > limit * 3 // 4 and text in clean else 0
    before = f"[{start} characters] …" if start else ""
    if column is None:
        elsewhere = " [the match is further on: `grep -o` in bash shows it]"
    else:
        elsewhere = f" [the match is further on, behind {column} characters]" if column - start >= limit else ""
    return f"{before}{cut(text[start:], limit, _COUNTED)}{elsewhere}"


def _files(found: GrepMatches, base: str, query: GrepQuery) -> Iterator[str]:
    for match in found.matches:
        yield visible(relative(match.path, base))
    yield _total(len(found.matches), found.files, query.offset, "file", "files", capped=found.capped)


def _why_none(pattern: str) -> Iterator[str]:
    """Yield why a pattern may have no match although the text is there."""
    if not pattern.encode("cp1252", "ignore").isascii():
        yield _NOT_AS_WINDOWS
    rest = _NO_LINE_BREAK.sub("", pattern)
    if "\n" in rest or "\\n" in rest:
        yield _ONE_LINE


def _counts(found: GrepMatches, base: str, offset: int, limit: int) -> Iterator[str]:
    shown = found.counts[offset : offset + limit]
    for path, count in shown:
        yield f"{visible(relative(path, base))}: {count}"
    where = f" with {counted(found.total, 'matching line')}"
    yield _total(len(shown), found.files, offset, "file", "files", capped=found.capped, where=where)


def _total(shown: int, total: int, offset: int, one: str, many: str, *, capped: bool, where: str = "") -> str:
    """Return the number of results, and how to see more of them."""
    all_of_them = f"{'over ' if capped else ''}{total:,} {one if total == 1 else many}{where}"
    if shown == total and not capped:
        return f"[{all_of_them}]"
    if not shown:
        return f"Nothing at offset={offset}: {all_of_them}"
    end = offset + shown
    more = f": offset={end} for more" if end < total or capped else ""
    return f"[showing {shown:,} of {all_of_them}{more}]"


def _below(params: GrepParams) -> str:
    """Return the path that is searched, joined with the glob if there is one that names files."""
    glob = params.glob or ""
    return params.path if not glob or glob.startswith("!") else posixpath.join(params.path, glob)


def _left_out(found: GrepMatches, base: str) -> Iterator[str]:
    """Yield what was asked for but not searched."""
    size = f"{found.size_limit // 2**20} MiB" if found.size_limit >= 2**20 else f"{found.size_limit} bytes"
    for paths, reason, purpose in (
        (found.too_large, f"over {size}", "to search it"),
        (found.secrets, "that may hold secrets", "to be asked"),
    ):
        if paths:
            names = [visible(relative(path, base)) for path in paths[:_MOST_NAMED]]
            names += ["..."] if len(paths) > _MOST_NAMED else []
            one = len(paths) == 1
            files, name = (
                (f"1 file {reason} was", "name it") if one else (f"{len(paths)} files {reason} were", "name one")
            )
            yield f"[{files} not searched: {', '.join(names)}; {name} as path {purpose}]"
    if found.stopped is not None:
        where = visible(relative(found.stopped, base))
        yield f"[time ran out at {where}: it and what comes after it were not searched to the end; give a smaller path]"


def _pattern_below(pattern: str, path: str, context: ToolContext, *, key: str) -> str:
    """Return the glob relative to `path`. An absolute glob must lie below it.

    `key` is the name of the parameter. Raises ToolError that says what to give instead.
    """
    if not pattern.startswith("/"):
        if ".." not in pattern.split("/"):
            return pattern
        raise _elsewhere(key, pattern, 'Give the folder as path, and a pattern below it without "..".')
    written = os.path.normpath(os.path.join(context.cwd, path))
    for folder in (written, context.files.resolve(path, Access.LIST)):
        rest = pattern.removeprefix(folder.rstrip("/") + "/")
        if rest != pattern and rest.strip("/") and ".." not in rest.split("/"):
            return rest.lstrip("/") if "/" in rest.rstrip("/") else f"./{rest}"
    folder, _, name = pattern.rstrip("/").rpartition("/")
    while any(mark in folder for mark in "*?[{"):
        folder, _, above = folder.rpartition("/")
        name = f"{above}/{name}"
    raise _elsewhere(key, pattern, f"Give path = {quote(folder or '/')} and {key} = {quote(name)}.")


def _elsewhere(key: str, pattern: str, suggestion: str) -> ToolError:
    return ToolError.invalid(f'{key} = {quote(pattern)} (expected a pattern below path, without "..")', suggestion)


def _in_words(size: int | None) -> str:
    """Return the size of a file in brackets; "" if it is not a file."""
    if size is None:
        return ""
    if size < _KB:
        return f" ({size} B)"
    return f" ({size / _KB:.1f} KB)" if size < _KB**2 else f" ({size / _KB**2:.1f} MB)"


class FindPathParams(Params):
    """Find files by name below a folder. Files that .gitignore names are left out."""

    pattern: Name = Field(description='Glob relative to path; without a slash at any depth: "*.py"')
    path: Name = "."
    max_results: Annotated[int, Field(ge=1, le=1000), WHOLE] | None = None


class FindPath(Tool[FindPathParams]):
    """The tool that searches names.

    A pattern without a slash matches at any depth, like grep's glob; `./*.py` matches in the folder itself.
    """

    name = "find_path"
    verb = "find"
    mutates = False
    cacheable = True

    def __init__(self, *, max_results: int, kind: ToolKind = ToolKind.SEARCH, guards_secrets: bool = True) -> None:
        self._max_results = max_results
        self._guards_secrets = guards_secrets
        self.kind = kind

    def title(self, params: FindPathParams) -> str:
        where = f" in {title(params.path)}" if "path" in params.model_fields_set else ""
        return f"{self.verb} {title(params.pattern)}{where}"

    def subjects(self, params: FindPathParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.LIST),)

    async def run(self, params: FindPathParams, context: ToolContext) -> ToolResult:
        pattern = _pattern_below(params.pattern, params.path, context, key="pattern")
        bare = "/" not in pattern.rstrip("/")
        limit = params.max_results or self._max_results
        found = await context.files.find(params.path, f"**/{pattern}" if bare else pattern, limit)
        base = context.files.resolve(".", Access.LIST)
        closed = self._closed_folder(context.files.resolve(params.path, Access.LIST))
        shown = [path for path in found.paths if not closed(path)]
        sizes = dict(zip(found.paths, found.sizes, strict=True))
        lines = [f"{visible(relative(path, base))}{_in_words(sizes[path])}" for path in shown]
        if not lines:
            lines.append(f"No files matching: {params.pattern}{', at any depth' if bare else ''}")
        left_out = len(found.paths) - len(shown)
        if left_out:
            entries = "1 entry" if left_out == 1 else f"{left_out} entries"
            lines.append(f"[{entries} of folders that hold secrets not shown: give the folder as path to be asked]")
        if found.more:
            total = f"{'over ' if found.capped else ''}{found.total:,}"
            lines.append(f"[showing {len(found.paths):,} of {total} results: narrow the pattern or raise max_results]")
        elif shown:
            lines.append(f"[{counted(found.total, 'result')}]")
        if found.stopped is not None:
            where = visible(relative(found.stopped, base))
            lines.append(f"[time ran out at {where}: what comes after it was not searched; give a smaller path]")
        return ToolResult("\n".join(lines), locations=tuple(map(Location, shown[:_MOST_LOCATIONS])))

    def _closed_folder(self, base: str) -> Callable[[str], bool]:
        """Return a function that tells whether a path lies in a folder that is listed only if the call names it."""
        allowed = secrecy(base) if self._guards_secrets else Secrecy.SEALED
        return lambda path: secrecy(posixpath.dirname(path)) > allowed
