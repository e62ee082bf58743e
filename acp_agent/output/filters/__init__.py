"""The filter engine: what a command printed, without what nobody needs (requirements O1-O3)."""

from acp_agent.output.filters.engine import FilterEngine
from acp_agent.output.filters.rule_source import RuleSource
from acp_agent.output.filters.run import CommandRun, Filtered

__all__ = ["CommandRun", "FilterEngine", "Filtered", "RuleSource"]
