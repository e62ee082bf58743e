"""Permission questions: `session/request_permission`.

A question that cannot show everything that it asks about is not asked, because users cannot agree to hidden text. See
https://agentclientprotocol.com/protocol/tool-calls.
"""

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import Decision, Question
from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol import wire
from acp_agent.protocol.client import EditorPaths
from acp_agent.protocol.jsonrpc import ClientTimeout, RpcError
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.updates import DIFFS_LIMIT, bounded_diffs, bounded_input, fenced, text_content
from acp_agent.text import CONTINUED, wrap_line

MAX_TEXT = 512 * 1024
"""Characters of a question's text and reasons."""
_WIDTH = 160
_CONTINUED_SPELLED = "<U+21AA>"
"""Stands for a sign of continuation in the text itself."""


def question_content(paths: EditorPaths, question: Question) -> list[Json]:
    """Return the ACP content of a question: diffs first, then the reasons, then the whole text.

    Raises ToolError (confirmation_required) if it is too large to be shown whole.
    """
    content: list[Json] = []
    for path, diff in bounded_diffs(paths, question.diffs, DIFFS_LIMIT):
        if diff is None:
            raise _too_large(f"the change of {path}", DIFFS_LIMIT)
        content.append(diff)
    reasons = "\n\n".join([*question.reasons, f"“Always” covers {question.always}"])
    if len(reasons) + len(question.text) > MAX_TEXT:
        raise _too_large("the call", MAX_TEXT)
    whole = f"\n\nThe whole text:\n\n{fenced(folded(question.text))}" if question.text else ""
    return [*content, text_content(reasons + whole)]


def folded(text: str) -> str:
    """Return the text with long lines continued on the next, behind a sign. Nothing is left out.

    Editors that do not wrap lines would hide their ends.
    """
    lines = text.replace(CONTINUED.strip(), _CONTINUED_SPELLED).split("\n")
    return "\n".join(f"\n{CONTINUED}".join(wrap_line(line, _WIDTH)) for line in lines)


def _too_large(what: str, limit: int) -> ToolError:
    return ToolError(
        ToolErrorCategory.CONFIRMATION_REQUIRED,
        f"{what} is too large for a question: the user can be shown at most {limit:,} characters; "
        "do it in smaller steps",
    )


# Ids equal kinds, and there is one option a kind, because CodeCompanion and GoClaw choose by kind.
_OPTIONS: list[Json] = [
    {"optionId": "allow_once", "kind": "allow_once", "name": "Allow once"},
    {"optionId": "allow_always", "kind": "allow_always", "name": "Allow always"},
    {"optionId": "reject_once", "kind": "reject_once", "name": "Reject once"},
    {"optionId": "reject_always", "kind": "reject_always", "name": "Reject always"},
]


class EditorApprover:
    """Asks the user through the editor.

    timeout   seconds that a question stands; 0 for as long as the turn runs
    """

    def __init__(self, peer: Peer, session_id: str, paths: EditorPaths, timeout: float = 0) -> None:
        self._peer = peer
        self._session_id = session_id
        self._paths = paths
        self._timeout = timeout

    async def ask(self, question: Question) -> Decision:
        """Ask, and return the user's decision. Anything but an option that was offered is UNANSWERED.

        Raises ToolError if nobody answers in time, and if the question is too large to be shown whole. An answer that
        comes later is dropped.
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
        except ClientTimeout:
            message = f"the user did not answer within {self._timeout:g} s whether this may run, so it did not run"
            raise ToolError(ToolErrorCategory.CONFIRMATION_REQUIRED, message) from None
        except RpcError:
            return Decision.UNANSWERED

    def _tool_call(self, question: Question) -> JsonObject:
        """Return the update of the call's card. It has no status, so that the card stays in progress."""
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
