"""Filters that remove from the output of a command what no reader needs."""

from acp_agent.output.filters.engine import FilterEngine, RuleSource
from acp_agent.output.filters.strategy import CommandRun, Filtered

__all__ = ["CommandRun", "FilterEngine", "Filtered", "RuleSource"]
