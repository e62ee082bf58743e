"""Approver over `session/request_permission` (A20)."""

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import Decision, Question
from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol import wire
from acp_agent.protocol.jsonrpc import ClientTimeout, RpcError
from acp_agent.protocol.paths import EditorPaths
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.updates import DIFFS_LIMIT, bounded_diff, bounded_input, fenced, text_content
from acp_agent.text import CONTINUED, wrap_line

MAX_TEXT = 512 * 1024
"""Characters of a question's text and reasons."""
_WIDTH = 160
_SPELLED_OUT = "<U+21AA>"  # a sign of continuation that stands in the text itself


def question_content(paths: EditorPaths, question: Question) -> list[Json]:
    """Return the ACP content of a question: diffs first, then the reasons, then the whole text.

    Raises ToolError (confirmation_required) for one that is too large to be shown whole.
    """
    content: list[Json] = []
    left = DIFFS_LIMIT
    for diff in map(paths.diff, question.diffs):
        shown = bounded_diff(diff, DIFFS_LIMIT)
        left -= DIFFS_LIMIT + 1 if shown is None else len(shown.old_text or "") + len(shown.new_text)
        if shown is None or left < 0:
            raise _too_large(f"the change of {diff.path}", f"{DIFFS_LIMIT:,}")
        content.append({"type": "diff", "path": shown.path, "oldText": shown.old_text, "newText": shown.new_text})
    reasons = "\n\n".join([*question.reasons, f"“Always” covers {question.always}"])
    if len(reasons) + len(question.text) > MAX_TEXT:
        raise _too_large("the call", f"{MAX_TEXT:,}")
    whole = f"\n\nThe whole text:\n\n{fenced(folded(question.text))}" if question.text else ""
    return [*content, text_content(reasons + whole)]


def folded(text: str) -> str:
    """Return the text with long lines continued on the next, behind a sign. Nothing is left out.

    A line that an editor does not wrap would hide its end. The sign itself is spelled out where the text has it.
    """
    lines = text.replace(CONTINUED.strip(), _SPELLED_OUT).split("\n")
    return "\n".join(f"\n{CONTINUED}".join(wrap_line(line, _WIDTH)) for line in lines)


def _too_large(what: str, limit: str) -> ToolError:
    return ToolError(
        ToolErrorCategory.CONFIRMATION_REQUIRED,
        f"{what} is too large for a question: the user can be shown at most {limit} characters; do it in smaller steps",
    )


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
        except ClientTimeout:
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
