"""What a permission question holds beside its title: all of what is asked about, or the call is not asked about.

An editor's line has its limits (bounds.py). What does not fit them is refused instead of cut: nobody can agree to what
they are not shown.
"""

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import Question
from acp_agent.core.types import Json
from acp_agent.output.folding import CONTINUED, pieces
from acp_agent.protocol.bounds import bounded_diff
from acp_agent.protocol.paths import EditorPaths
from acp_agent.protocol.updates import DIFFS_LIMIT, fenced, text_content

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
    return "\n".join(f"\n{CONTINUED}".join(pieces(line, _WIDTH)) for line in lines)


def _too_large(what: str, limit: str) -> ToolError:
    return ToolError(
        ToolErrorCategory.CONFIRMATION_REQUIRED,
        f"{what} is too large for a question: the user can be shown at most {limit} characters; do it in smaller steps",
    )
