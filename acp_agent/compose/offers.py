"""What the model is shown of the tools, by configuration (L3, L4, L5)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from acp_agent.agent.offer import AllTools, ToolSelection
from acp_agent.config.settings import Settings
from acp_agent.core.ports import Embedder
from acp_agent.core.redaction import Redact
from acp_agent.log import Log

if TYPE_CHECKING:
    from acp_agent.agent.aids.tool_filter import ToolRanking

_log = Log(__name__)


def offer(
    settings: Settings,
    embedder: Embedder | None,
    joining: Callable[[], bool],
    warn: Callable[[str], None],
    redact: Redact,
) -> ToolSelection:
    """The offer of one conversation.

    joining  whether an MCP server is still starting
    redact   takes secrets out of prompts the embedding model compares
    """
    tafc, chosen, needs = settings.tools.tafc, settings.agent.tool_filter, settings.tools.dependencies
    if not (tafc.enabled or chosen.enabled or needs.enabled):
        return AllTools()
    from acp_agent.agent.aids.dependencies import Dependencies, Needs  # noqa: PLC0415 - off by default
    from acp_agent.agent.aids.tafc import Tafc  # noqa: PLC0415 - off by default
    from acp_agent.agent.aids.tool_filter import INDISPENSABLE, SchemaFilter  # noqa: PLC0415 - off by default
    from acp_agent.agent.dressed_offer import AidedToolSelection  # noqa: PLC0415 - off by default

    schema_filter = chosen.enabled and SchemaFilter(
        _ranking(embedder, redact),
        top_k=chosen.top_k,
        min_description_words=chosen.min_description_words,
        always_on=chosen.always_on,
    )
    dependencies = needs.enabled and Dependencies(
        {tool: Needs(rule.requires, rule.prefers) for tool, rule in needs.rules.items()},
        boost_per_dep=needs.boost_per_dep,
        max_total_boost=needs.max_total_boost,
        always_on=schema_filter.always_on if schema_filter else INDISPENSABLE,
        joining=joining,
        warn=warn,
    )
    return AidedToolSelection(
        _log,
        tafc=Tafc(tafc.complexity_threshold) if tafc.enabled else None,
        schema_filter=schema_filter or None,
        dependencies=dependencies or None,
    )


def _ranking(embedder: Embedder | None, redact: Redact) -> "ToolRanking":
    from acp_agent.agent.aids.tool_filter import EmbeddingRanking, WordRanking  # noqa: PLC0415 - off by default

    return EmbeddingRanking(embedder, redact=redact) if embedder else WordRanking()
