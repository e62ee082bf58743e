"""Hooks: what is read of their files."""

from acp_agent.extend.hooks import hooks_in
from acp_agent.extend.sources import SourceFile, SourceKind
from tests.rows import each_row


@each_row("value", ["2026-11-24", "07:30:00", "inf", "nan", "{ a = [nan] }"])
def test_arguments_that_no_call_can_have_are_refused(value: str):
    text = f'[[session_start]]\nmcp = "mcp_x_y"\narguments = {{ when = {value} }}\n'
    found = hooks_in(SourceFile(SourceKind.HOOKS, "hooks", "/x/hooks.toml", "hooks.toml", text.encode(), "digest"))
    assert found.hooks == ()
    (problem,) = found.problems
    assert "session_start 1.arguments: expected texts, finite numbers, true, false, lists and tables" in str(problem)
