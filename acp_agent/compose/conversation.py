"""What one conversation consists of besides its model and its tools: history, room, and the loop's hooks."""

from collections.abc import Callable, Sequence

from acp_agent.agent.aids.phases import PhaseCalls, RememberedSummaries
from acp_agent.agent.aids.reflection import Reflection, Reputation
from acp_agent.agent.compaction import Compactor, SummarySettings, Thresholds
from acp_agent.agent.history import History, restored
from acp_agent.agent.hooks import Hooks
from acp_agent.agent.offer import ToolSelection
from acp_agent.agent.turn import Agent, Limits
from acp_agent.compose.models import SessionModels
from acp_agent.config.settings import Settings
from acp_agent.core.events import EventSink, Notice, Severity, TextDelta
from acp_agent.core.memory import Summaries, Summary
from acp_agent.core.ports import Provider, Toolset
from acp_agent.core.redaction import Redact
from acp_agent.core.sessions import SessionSnapshot


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
