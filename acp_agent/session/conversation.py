"""What one conversation consists of besides its model and its tools: history, room, and the loop's hooks."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from acp_agent.agent.aids.phases import PhaseCalls, RememberedSummaries
from acp_agent.agent.aids.reflection import Reflection, Reputation
from acp_agent.agent.compaction import Compactor, SummarySettings, Thresholds
from acp_agent.agent.history import History, restored
from acp_agent.agent.hooks import Hooks
from acp_agent.agent.offer import AllTools, ToolSelection
from acp_agent.agent.prompt import system_prompt
from acp_agent.agent.turn import Agent, Limits
from acp_agent.config import Loaded
from acp_agent.config.settings import Settings
from acp_agent.core.errors import MissingKey
from acp_agent.core.events import EventSink, Notice, Severity, TextDelta
from acp_agent.core.ports import Embedder, Provider, Toolset
from acp_agent.core.redaction import Redact
from acp_agent.core.services import Summaries, Summary
from acp_agent.core.sessions import SessionSnapshot
from acp_agent.log import Log
from acp_agent.protocol.server import auth_required
from acp_agent.session.models import SessionModels
from acp_agent.session.session import Session


def history_of(saved: SessionSnapshot, redact: Redact, damaged: Callable[[], None]) -> History:
    """What the model knows of a session that goes on; `damaged` is told where that is not all it knew."""
    said = "".join(each.text for each in saved.unfinished_messages if isinstance(each, TextDelta))
    return restored(saved.history, damaged, redact(said) if saved.usage.under_way else None, saved.finished_calls)


class Conversation:
    """Built once a session, by the configuration it began with.

    limits    where its turns stop by themselves
    agent     what runs its turns; None before the first
    toolset   gives the session's tools, for the calls the agent makes by itself
    offer     what of the tools the model is shown
    history   what was said before; None where this is the beginning
    """

    def __init__(
        self,
        settings: Settings,
        models: SessionModels,
        emit: EventSink,
        redact: Redact,
        summaries: Summaries,
        toolset: Callable[[], Toolset],
        offer: ToolSelection,
        history: History | None = None,
    ) -> None:
        own = settings.agent
        self.limits = Limits(
            own.max_tool_iterations, own.context_budget_tokens, max_calls=own.max_tool_calls_per_answer
        )
        self.agent: Agent | None = None
        self.history = History() if history is None else history
        self._models = models
        self._emit = emit
        self._summed_up_by = own.compress_provider
        self._reflection = Reflection(Reputation(self._model))
        phases = PhaseCalls(note_bytes=settings.memory.max_note_bytes, redact=redact)
        self._phases = phases if settings.tools.phases.enabled else None
        kept = _Kept(summaries, self._phases, toolset) if self._phases else summaries
        self.compactor = Compactor(
            self.history,
            emit,
            SummarySettings(self._summarizer, kept, redact),
            self._budget,
            Thresholds(own.compaction_soft, own.compaction_hard, automatic=own.compaction),
        )
        self._offer = offer
        hooks = Hooks(self._offer, self._reflection, room=self.compactor)
        self.hooks = (
            hooks if self._phases is None else Hooks(self._offer, self._reflection, self._phases, self.compactor)
        )

    def status(self) -> Sequence[str]:
        """Lines for /status."""
        phases = self._phases.status() if self._phases else ()
        context = self.compactor.status() if self._budget() else ()
        return (*context, *self._offer.status(), *self._reflection.status(), *phases)

    def clear(self) -> None:
        """Forget all that was said, and what was learnt from it (A17.3)."""
        self.history.clear()
        self.compactor.clear()
        self._offer.clear()
        self._reflection.clear()
        if self._phases is not None:
            self._phases.clear()

    def _budget(self) -> int:
        window = self._models.window()
        return self.limits.budget(window) if window else 0

    async def _summarizer(self) -> Provider:
        """The model that sums up. The user hears of it before he waits for it. Raises AgentError."""
        provider = await self._models.for_chores(self._summed_up_by)
        said = f"Summing up the conversation, with {provider.name}:{provider.model} …"
        await self._emit(Notice(Severity.INFO, said))
        return provider

    def _model(self) -> str:
        provider = self.agent and self.agent.provider
        return f"{provider.name}:{provider.model}" if provider else "no model"


class _Kept:
    """Summaries that go to the store and, as an autonomous call, to the memory (S7)."""

    def __init__(self, kept: Summaries, phases: PhaseCalls, toolset: Callable[[], Toolset]) -> None:
        self._kept = kept
        self._phases = phases
        self._toolset = toolset

    async def add(self, summary: Summary) -> None:
        """As the port says."""
        await RememberedSummaries(self._kept, self._phases, self._toolset()).add(summary)


class SessionLoop:
    """The loop of one session. It is made when it is needed: sessions work without a model, too.

    cwd      the session's folder, links resolved
    loaded   the configuration in force
    notes    gives what the project says of itself, for the system prompt
    """

    def __init__(
        self,
        session: Session,
        cwd: str,
        loaded: Callable[[], Loaded],
        models: SessionModels,
        toolset: Toolset,
        conversation: Conversation,
        emit: EventSink,
        notes: Callable[[Loaded], Awaitable[str]],
    ) -> None:
        self._session = session
        self._cwd = cwd
        self._loaded = loaded
        self._models = models
        self._toolset = toolset
        self._conversation = conversation
        self._emit = emit
        self._notes = notes

    async def agent(self) -> Agent:
        """What runs turns. Raises AgentError, with advice, when there is no model to run it.

        Raises RpcError -32000 where a key is missing and the editor can have the user log in: it shows how.
        """
        try:
            provider = await self._models.answering()
        except MissingKey as error:
            if self._session.client.terminal_login:
                raise auth_required(str(error)) from None
            raise
        prompt = await self._system_prompt()
        conversation = self._conversation
        if conversation.agent is None:
            conversation.agent = Agent(
                provider,
                self._toolset,
                conversation.history,
                self._emit,
                conversation.limits,
                prompt,
                hooks=replace(conversation.hooks, began=self._began, abandoned=self._abandoned),
            )
        conversation.agent.provider = provider  # the user may have chosen another one
        conversation.agent.system_prompt = prompt
        return conversation.agent

    def _began(self) -> None:
        self._session.story.keep_soon()

    def _abandoned(self) -> bool:
        return self._session.turns.abandoned

    async def _system_prompt(self) -> str:
        """For the model that answered last: one that knows no tools is told of none.

        Tools the offer hides for the moment are named all the same: the prompt stays the same from call to call, which
        caches it, and a model that names a hidden tool is shown it.
        """
        place = self._session.place
        tools = self._toolset.specs() if self._models.take_tools() else ()
        notes = await self._notes(self._loaded())
        mode = self._session.active.mode
        return system_prompt(self._cwd, place.additional, sys.platform, mode, tools=tools, notes=notes)


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
