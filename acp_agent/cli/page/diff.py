"""A change to a file as coloured lines, and not too many of them."""

from acp_agent.cli.page.escaped import text
from acp_agent.cli.session_diff import SIGNS, Fate, Line, changed_lines
from acp_agent.cli.session_words import clipped
from acp_agent.core.types import Diff

_LINES = 400
_LINE = 600
"""Characters of a line that are shown."""


def diff_html(diff: Diff) -> str:
    """The path, how many lines came and went, and the first 400 lines of it."""
    rows, more, counts = list[str](), 0, dict.fromkeys(Fate, 0)
    for line in changed_lines(diff):
        counts[line.fate] += 1
        if len(rows) < _LINES:
            rows.append(_row(line))
        else:
            more += 1
    if more:
        rows.append(f'<tr class="skip"><td></td><td>… {more:,} more lines</td></tr>')
    came, went = counts[Fate.CAME], counts[Fate.WENT]
    new = '<span class="badge">new file</span>' if diff.old_text is None else ""
    return (
        f'<figure class="diff"><figcaption><code>{text(clipped(diff.path, 500))}</code>{new}'
        f'<span class="came">+{came:,}</span> <span class="went">\N{MINUS SIGN}{went:,}</span>'
        f'</figcaption><div class="scroll"><table><tbody>{"".join(rows)}</tbody></table></div></figure>'
    )


def _row(line: Line) -> str:
    number = "" if line.fate is Fate.SKIP else line.number
    shown = text(line.text if len(line.text) <= _LINE else f"{line.text[:_LINE]}…")
    return f'<tr class="{line.fate.value}"><td>{number}</td><td>{SIGNS[line.fate]}{shown}</td></tr>'
