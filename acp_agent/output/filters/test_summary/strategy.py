"""`test_summary`: what failed and why, and the totals (requirements O2, section 4 row 70)."""

from collections.abc import Sequence

from acp_agent.core.types import Confidence
from acp_agent.output.filters.run import CommandRun
from acp_agent.output.filters.strategy import Applied
from acp_agent.output.filters.test_summary.pieces import Format, Loose, Parsed, Piece
from acp_agent.output.filters.test_summary.render import rendered
from acp_agent.output.filters.test_summary.shorten import LONGEST_LINE, clipped


class SummaryOfTests:
    """Failures with their message, location and trace; then `test result: …` summed over all runs in the text.

    max_failures           failures shown with details; of more, the name and the message stay
    truncate_stack_trace   lines of details a failure may have

    Full when only what passed and progress was left out, Partial when details of a failure or other output were,
    Fallback when no test run was recognised.
    """

    def __init__(self, max_failures: int = 10, truncate_stack_trace: int = 50) -> None:
        self._max_failures = max_failures
        self._trace_lines = truncate_stack_trace

    def apply(self, text: str, run: CommandRun) -> Applied:
        """See `Strategy.apply`. Never longer than what was given."""
        parsed = _taken_apart(text, run)
        if parsed is None:
            return Applied(text, Confidence.FALLBACK)
        parsed.broken |= run.failed and len(run.printing) <= 1  # pytest ends so when there was nothing to run
        summary, cut = rendered(parsed, self._max_failures, self._trace_lines)
        if len(summary) >= len(text):
            return Applied(text, Confidence.FULL)
        return Applied(summary, Confidence.PARTIAL if cut or parsed.cut else Confidence.FULL)


def _taken_apart(text: str, run: CommandRun) -> Parsed | None:
    """The pieces of every test run in a text, or None when there is none."""
    lines = text.split("\n")
    too_long = max(map(len, lines)) > LONGEST_LINE
    whole = Parsed(pieces=[Loose(list(map(clipped, lines)) if too_long else lines)])
    whole.cut = too_long
    recognised = False
    for form in _in_order(run):
        pieces: list[Piece] = []
        for piece in whole.pieces:
            found = form.parser().parse(piece.lines) if isinstance(piece, Loose) and _may_hold(form, piece) else None
            if found is None:
                pieces.append(piece)
                continue
            recognised = True
            pieces += found.pieces
            whole.totals.add(found.totals)
            whole.broken |= found.broken
            whole.cut |= found.cut
        whole.pieces = pieces
    return whole if recognised else None


def _may_hold(form: Format, piece: Loose) -> bool:
    text = "\n".join(piece.lines)
    return any(sign in text for sign in form.signs)


def _in_order(run: CommandRun) -> Sequence[Format]:
    """The command's own format first: then little is left to be searched for the signs of the others."""
    from acp_agent.output.filters.test_summary.formats import FORMATS  # noqa: PLC0415 - for what tests print only

    commands = " ".join((*run.printing, run.command))
    return sorted(FORMATS, key=lambda form: not any(word in commands for word in form.words))
