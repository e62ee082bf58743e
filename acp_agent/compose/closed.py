"""What a session has to work with while nobody knows what its user forbids: nothing (fail closed)."""

from collections.abc import Callable, Sequence
from typing import Never

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import AgentError, Refused
from acp_agent.core.ports import Backends, Invocation, ToolContext, ToolExecutor
from acp_agent.core.types import Access, Deny, ToolCall, ToolSpec, Verdict
from acp_agent.core.web import WebCaller
from acp_agent.core.wrapper import Gate
from acp_agent.execution.run_tool import RunTool
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.roots import Root, Roots

_ADVICE = "No tool can help here: tell the user what to mend."


class Closed:
    """Refuses everything with one reason. Stands for the catalogue, the gates, the files and the web of a session."""

    def __init__(self, fault: AgentError) -> None:
        self._reason = f"{fault}. Nothing runs until this is mended; then it is taken up at once, without a restart"

    # ---------------------------------------------------------------------------------- the catalogue

    def specs(self) -> Sequence[ToolSpec]:
        """No tool is offered."""
        return ()

    async def understand(self, call: ToolCall, files: FileSystem) -> Invocation:
        """Raises Refused: a call is not even looked at, since that would read files."""
        del call, files
        self._refuse()

    # ------------------------------------------------------------------------------- gates, files, web

    def chain(self, context_for: Callable[[Invocation], ToolContext]) -> ToolExecutor:
        """Denies every call that was understood elsewhere."""
        return _ClosedGate(RunTool(context_for), self._reason)

    def backends(self, cwd: str, open_root: Callable[[str], Root]) -> Backends:
        """Nothing of the folder can be read or written, and no page. Raises ConfigError when it cannot be opened."""
        roots = Roots(cwd, policy=self._why_not, open_root=open_root)
        terminal = LocalTerminal()  # behind the gate, where nobody gets
        return Backends(LocalFileSystem(roots), terminal, programs=terminal, web=self)

    async def get(
        self, url: str, caller: WebCaller, *, redirects: int = 3, leave_site: bool = False, truncate: bool = False
    ) -> Never:
        """Raises Refused."""
        del url, caller, redirects, leave_site, truncate
        self._refuse()

    def _why_not(self, path: str, access: Access) -> str:
        del path, access
        return self._reason

    def _refuse(self) -> Never:
        raise Refused(self._reason, _ADVICE)


class _ClosedGate(Gate):
    name = "configuration"

    def __init__(self, wrapped: ToolExecutor, reason: str) -> None:
        super().__init__(wrapped)
        self._reason = reason

    def allows(self, spec: ToolSpec) -> bool:
        """No tool belongs in the catalogue."""
        del spec
        return False

    def check(self, invocation: Invocation) -> Verdict:
        del invocation
        return Deny(self._reason)
