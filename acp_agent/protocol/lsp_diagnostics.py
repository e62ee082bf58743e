"""Problems the editor's language servers see: kept as they come, and shown in a prompt (requirements A27.3, A24.12)."""

from collections import OrderedDict
from uuid import uuid4

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import ToolError
from acp_agent.core.lsp import LanguageServers
from acp_agent.core.types import Json
from acp_agent.output.spotlight import fence
from acp_agent.tools.lsp import Names, uri_path
from acp_agent.tools.lsp_answer import LspDiagnostic, diagnostics

GET_DIAGNOSTICS = "get_diagnostics"
"""What the editor is asked for the problems of all files; where it does not serve that, the kept ones are them."""

_MOST = 100
"""Problems in one prompt."""


class KeptDiagnostics:
    """The problems of the files that were heard of last.

    max_files      files; the one not heard of for the longest goes first
    max_per_file   of each, the worst first
    """

    def __init__(self, max_files: int = 5, max_per_file: int = 20) -> None:
        self._max_files = max_files
        self._max_per_file = max_per_file
        self._files: OrderedDict[str, tuple[LspDiagnostic, ...]] = OrderedDict()

    def keep(self, uri: str, answer: Json) -> None:
        """Take what is said of a file now in place of what was said before. Raises ToolError for no list."""
        found = diagnostics(answer, uri)[: self._max_per_file]
        key = uri_path(uri) or uri
        self._files.pop(key, None)
        if found:
            self._files[key] = tuple(found)
        if len(self._files) > self._max_files:
            self._files.popitem(last=False)

    def clear(self) -> None:
        """Forget all of them."""
        self._files.clear()

    def to_wire(self) -> list[Json]:
        """All of them, the file heard of last first, as an editor would say it."""
        return [found.to_wire() for file in reversed(self._files.values()) for found in file]


async def diagnostics_block(languages: LanguageServers, files: FileSystem) -> str:
    """`[LSP Diagnostics]` and a line for each problem in a file that may be read; empty when there is none.

    The lines are other people's words: fenced, without what a terminal or a reader could mistake. Not redacted. Never
    raises but for cancellation.
    """
    try:
        found = diagnostics(await languages.ask(GET_DIAGNOSTICS, {}))
    except ToolError:
        return ""
    names = Names(files)
    lines = [each.line(names.name(each.uri)) for each in found if each.uri and names.path(each.uri) is not None]
    if not lines:
        return ""
    fenced = fence("\n".join(lines[:_MOST]), str(uuid4()), external="language servers")
    return f"[LSP Diagnostics]\n{fenced}"
