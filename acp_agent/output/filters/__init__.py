"""The filter engine: what a command printed, without what nobody needs (requirements O1-O3)."""

from acp_agent.output.filters.engine import FilterEngine, RuleSource
from acp_agent.output.filters.strategy import CommandRun, Filtered

__all__ = ["CommandRun", "FilterEngine", "Filtered", "RuleSource"]
