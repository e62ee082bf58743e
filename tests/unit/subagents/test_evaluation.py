"""The verdict in a judge's report."""

from acp_agent.subagents.quality_gates import judged
from tests.rows import each_row


@each_row(
    "report, feedback",
    [
        ("APPROVED", None),
        ("approved: all is well", None),
        ("\n\n**Approved.** Fine.", None),
        ("REJECTED: a.py:1 is wrong", "a.py:1 is wrong"),
        ("## Rejected\n\n- one\n- two", "one\n- two"),
        ("rejected", "the judge gave no reason"),
        ("It is not APPROVED", "It is not APPROVED"),
        ("Approvedly", "Approvedly"),
        ("", "the judge said nothing"),
    ],
)
def test_only_a_report_that_begins_with_approved_approves(report: str, feedback: str | None):
    assert judged(report) == (feedback is None, feedback or "")
