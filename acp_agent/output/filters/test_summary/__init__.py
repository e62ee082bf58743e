"""The `test_summary` strategy: one parser a test runner, one page for all of them."""

from acp_agent.output.filters.test_summary.strategy import SummaryOfTests

__all__ = ["SummaryOfTests"]
