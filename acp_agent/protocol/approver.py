"""Approver over `session/request_permission` (A20)."""

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import Decision, Question
from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol import wire
from acp_agent.protocol.asked_text import question_content
from acp_agent.protocol.bounds import bounded_input
from acp_agent.protocol.errors import NoAnswer, RpcError
from acp_agent.protocol.paths import EditorPaths
from acp_agent.protocol.peer import Peer

# Ids equal kinds, one option a kind: CodeCompanion and GoClaw choose by kind (A20.1, A20.2).
_OPTIONS: list[Json] = [
    {"optionId": "allow_once", "kind": "allow_once", "name": "Allow once"},
    {"optionId": "allow_always", "kind": "allow_always", "name": "Allow always"},
    {"optionId": "reject_once", "kind": "reject_once", "name": "Reject once"},
    {"optionId": "reject_always", "kind": "reject_always", "name": "Reject always"},
]


class EditorApprover:
    """Asks the user through the editor.

    timeout   seconds a question stands; 0 for as long as the turn lives, whose cancel ends it (A20.14, A20.15)
    """

    def __init__(self, peer: Peer, session_id: str, paths: EditorPaths, timeout: float = 0) -> None:
        self._peer = peer
        self._session_id = session_id
        self._paths = paths
        self._timeout = timeout

    async def ask(self, question: Question) -> Decision:
        """Only a known option of a selected outcome counts; everything else is no answer (A20.3).

        Raises ToolError when nobody answers in time, and when the question is too large to be shown whole. An answer
        that comes later is dropped by the peer.
        """
        params: JsonObject = {
            "sessionId": self._session_id,
            "toolCall": self._tool_call(question),
            "options": _OPTIONS,
        }
        try:
            return wire.decision(
                await self._peer.request(
                    "session/request_permission", params, timeout=self._timeout or None, withdraw=True
                )
            )
        except NoAnswer:
            told = f"nobody answered within {self._timeout:g} s whether this may run, so it did not"
            raise ToolError(ToolErrorCategory.CONFIRMATION_REQUIRED, told) from None
        except RpcError:
            return Decision.UNANSWERED

    def _tool_call(self, question: Question) -> JsonObject:
        """What there is to say of the call; not its status, which stays what it was: in progress (A19.1)."""
        update: JsonObject = {
            "toolCallId": question.call_id,
            "title": question.title,
            "kind": question.kind.value,
            "rawInput": bounded_input(question.raw_input),
            "content": question_content(self._paths, question),
        }
        if question.locations:
            update["locations"] = [{"path": self._paths.spell(path)} for path in question.locations]
        return update
