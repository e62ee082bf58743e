"""grep and find_path: find lines of files by a regular expression, and files and folders by a glob."""

import posixpath
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from acp_agent.core.backends import GrepMatch, GrepMatches, GrepQuery
from acp_agent.core.ports import ToolContext
from acp_agent.core.secrets import Secrecy, secrecy
from acp_agent.core.types import Access, Location, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.text import title, visible
from acp_agent.tools.tool import WHOLE, Name, Params, Tool, cut, pattern_below, relative

_MOST_CONTEXT = 20
_GAP = "--"
_MOST_NAMED = 3
_MOST_LOCATIONS = 10
"""Files of a result that the editor is offered to open."""


class GrepParams(Params):
    """Find lines that match a regular expression, in a file or below a folder.

    Files that .gitignore names are left out.
    """

    pattern: Name = Field(description="RE2 syntax: no look-around, no back-references")
    path: Name = "."
    case_sensitive: bool = True
    context: Annotated[int, Field(ge=0, le=_MOST_CONTEXT, description="Lines around each match"), WHOLE] = 0
    glob: Name | None = Field(default=None, description='Only these files, such as "*.{ts,tsx}" or "src/**/test_*.py"')
    file_type: Name | None = Field(default=None, description="Only this language, such as py, ts or md")
    files_only: bool = Field(default=False, description="Only name the files that match")


class Grep(Tool[GrepParams]):
    """The tool that searches texts. A match is `path:12: text`, a line around one `path-12- text`.

    With context, `--` separates lines that are not adjacent.
    """

    name = "grep"
    kind = ToolKind.SEARCH
    mutates = False
    cacheable = True
    params = GrepParams

    def __init__(self, *, max_matches: int, max_line_chars: int, guards_secrets: bool = True) -> None:
        self._max_matches = max_matches
        self._max_line_chars = max_line_chars
        self._guards_secrets = guards_secrets

    def title(self, params: GrepParams) -> str:
        where = f" in {title(params.path)}" if "path" in params.model_fields_set else ""
        return f'{self.name} "{title(params.pattern)}"{where}{f" ({title(params.glob)})" if params.glob else ""}'

    def subjects(self, params: GrepParams) -> tuple[Subject, ...]:
        # The file system asks for each file it reads, and again for a path that is one.
        searched = PathSubject(params.path, Access.LIST)
        wanted = _below(params)
        return (searched, PathSubject(wanted, Access.LIST)) if secrecy(wanted) > secrecy(params.path) else (searched,)

    async def run(self, params: GrepParams, context: ToolContext) -> ToolResult:
        glob = params.glob and pattern_below(params.glob, params.path, context, key="glob")
        query = GrepQuery(
            params.pattern,
            params.path,
            case_sensitive=params.case_sensitive,
            limit=self._max_matches,
            context=params.context,
            glob=glob,
            file_type=params.file_type,
            files_only=params.files_only,
            secrets=self._secrets(params, context),
        )
        found = await context.files.grep(query)
        base = context.files.resolve(".", Access.LIST)
        if not found.matches:
            lines = iter((f"No matches for: {params.pattern}",))
        elif params.files_only:
            lines = self._files(found, base)
        else:
            lines = self._lines(found, base, gaps=params.context > 0)
        first_hits = {match.path: match.line for match in reversed(found.matches) if match.matched}
        locations = [Location(path, first_hits[path]) for path in sorted(first_hits)[:_MOST_LOCATIONS]]
        return ToolResult("\n".join((*lines, *_left_out(found, base))), locations=tuple(locations))

    def _secrets(self, params: GrepParams, context: ToolContext) -> Secrecy:
        """Return how secret the searched files may be: the gates have let files pass that the call names."""
        if not self._guards_secrets:
            return Secrecy.SEALED
        named = (params.path, context.files.resolve(params.path, Access.LIST), _below(params))
        return Secrecy.GUARDED if any(map(secrecy, named)) else Secrecy.OPEN

    def _lines(self, found: GrepMatches, base: str, *, gaps: bool) -> Iterator[str]:
        yield self._line(found.matches[0], base)
        for last, match in pairwise(found.matches):
            if gaps and (match.path != last.path or match.line != last.line + 1):
                yield _GAP
            yield self._line(match, base)
        if found.more:
            yield f"... and more matches (showing first {sum(match.matched for match in found.matches)})"

    def _line(self, match: GrepMatch, base: str) -> str:
        path, text = visible(relative(match.path, base)), cut(match.text, self._max_line_chars)
        return f"{path}:{match.line}: {text}" if match.matched else f"{path}-{match.line}- {text}"

    def _files(self, found: GrepMatches, base: str) -> Iterator[str]:
        for match in found.matches:
            yield visible(relative(match.path, base))
        count = len(found.matches)
        if found.more:
            yield f"... and more files (showing first {count})"
        else:
            yield "(1 file matches)" if count == 1 else f"({count} files match)"


def _below(params: GrepParams) -> str:
    """Return the files the glob names, as one path; without a glob, the path that is searched."""
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
            yield f"({files} not searched: {', '.join(names)}; {name} as path {purpose})"
    if found.stopped is not None:
        where = visible(relative(found.stopped, base))
        yield f"(time ran out at {where}: it and what comes after it were not searched to the end; give a smaller path)"


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
    params = FindPathParams

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
        pattern = pattern_below(params.pattern, params.path, context, key="pattern")
        bare = "/" not in pattern.rstrip("/")
        limit = params.max_results or self._max_results
        found = await context.files.find(params.path, f"**/{pattern}" if bare else pattern, limit)
        base = context.files.resolve(".", Access.LIST)
        closed = self._closed_folder(context.files.resolve(params.path, Access.LIST))
        shown = [path for path in found.paths if not closed(path)]
        lines = [visible(relative(path, base)) for path in shown]
        if not lines:
            lines.append(f"No files matching: {params.pattern}{', at any depth' if bare else ''}")
        left_out = len(found.paths) - len(shown)
        if left_out:
            entries = "1 entry" if left_out == 1 else f"{left_out} entries"
            lines.append(f"({entries} of folders that hold secrets not shown; give the folder as path to be asked)")
        if found.more:
            lines.append(f"... and more results (showing first {len(found.paths)})")
        if found.stopped is not None:
            where = visible(relative(found.stopped, base))
            lines.append(f"(time ran out at {where}: what comes after it was not searched; give a smaller path)")
        return ToolResult("\n".join(lines), locations=tuple(map(Location, shown[:_MOST_LOCATIONS])))

    def _closed_folder(self, base: str) -> Callable[[str], bool]:
        """Return whether a path lies in a folder that may be listed only when the call names it."""
        allowed = secrecy(base) if self._guards_secrets else Secrecy.SEALED
        return lambda path: secrecy(posixpath.dirname(path)) > allowed
