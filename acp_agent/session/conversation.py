"""One conversation as the model sees it: the history, its compaction, the hooks of turns, and the agent."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from acp_agent.agent.aids.phases import PhaseCalls, Reflection, RememberedSummaries
from acp_agent.agent.compaction import Compactor, SummarySettings, Thresholds
from acp_agent.agent.history import History, restored
from acp_agent.agent.hooks import Hooks, ToolSelection
from acp_agent.agent.prompt import system_prompt
from acp_agent.agent.turn import PARAGRAPH, Agent, Limits
from acp_agent.config.settings import Settings
from acp_agent.core.data import frozen
from acp_agent.core.errors import LoginRequired, MissingKey
from acp_agent.core.events import EventSink, Notice, Severity, TextDelta
from acp_agent.core.ports import Embedder, Provider, Toolset
from acp_agent.core.secrets import Redact
from acp_agent.core.services import Summaries
from acp_agent.core.sessions import SessionSnapshot
from acp_agent.core.types import ToolSpec
from acp_agent.log import Log
from acp_agent.session.models import SessionModels
from acp_agent.session.session import Session

_log = Log(__name__)


def history_of(saved: SessionSnapshot, redact: Redact, damaged: Callable[[], None]) -> History:
    """Return the history of a stored session. `damaged` is called if a part of it cannot be read."""
    texts = (each.text for each in saved.unfinished_messages if isinstance(each, TextDelta))
    said = "".join(text.removeprefix(PARAGRAPH) for text in texts)
    return restored(saved.history, damaged, redact(said) if saved.usage.under_way else None, saved.finished_calls)


class Conversation:
    """The conversation of one session, with the configuration from the session's start.

    limits      the limits at which turns stop by themselves
    agent       the agent that runs the turns; None before the first turn
    toolset     returns the session's tools, for the calls that the agent makes by itself
    hooks       the hooks of turns, such as the selection of tools that the model sees
    history     the earlier messages; None for a new conversation
    """

    def __init__(
        self,
        settings: Settings,
        models: SessionModels,
        emit: EventSink,
        redact: Redact,
        summaries: Summaries,
        toolset: Callable[[], Toolset],
        hooks: Hooks,
        history: History | None = None,
    ) -> None:
        own = settings.agent
        self.limits = Limits(
            own.max_tool_iterations,
            own.context_budget_tokens,
            max_parallel_tools=own.max_parallel_tools,
            max_calls=own.max_tool_calls_per_answer,
        )
        self.agent: Agent | None = None
        self.history = History() if history is None else history
        self._is_restored = history is not None
        self._models = models
        self._summed_up_by = own.compress_provider
        self._reflection = Reflection(self._model)
        phases = PhaseCalls(note_bytes=settings.memory.max_note_bytes, redact=redact)
        self._phases = phases if settings.tools.phases.enabled else None
        kept = RememberedSummaries(summaries, self._phases, toolset) if self._phases else summaries
        self._redact = redact
        self._thresholds = Thresholds(own.compaction_soft, own.compaction_hard, automatic=own.compaction)
        self.compactor = self.compactor_of(self.history, emit, self._budget, kept)
        self._selection = hooks.selection
        self.hooks = replace(hooks, observer=self._reflection, phases=self._phases, limiter=self.compactor)

    def highest_id(self, prefix: str) -> int:
        """Return the highest N of the ids `<prefix>N` that a restored conversation names; 0 if it names none.

        Return 0 for a new one too: its model may name a run that has not begun.
        """
        return self.history.highest_id(prefix) if self._is_restored else 0

    def compactor_of(
        self, history: History, emit: EventSink, budget: Callable[[], int], kept: Summaries | None = None
    ) -> Compactor:
        """Return the compactor of this conversation or of a sub-agent's, with the session's settings.

        budget   returns the tokens that the conversation may fill
        kept     the store of its summaries
        """
        summaries = SummarySettings(partial(self._summarizer, emit), kept, self._redact)
        return Compactor(history, emit, summaries, budget, self._thresholds)

    def prepare(
        self,
        provider: Provider,
        prompt: str,
        toolset: Toolset,
        emit: EventSink,
        specs: Sequence[ToolSpec] | None = None,
        *,
        began: Callable[[], None],
        session_ended: Callable[[], bool],
    ) -> Agent:
        """Return the agent, which is made at the first call. It uses this model and this system prompt from now on.

        specs           the tools that the toolset has now; None if they are not known
        began           called when a turn begins
        session_ended   returns whether the turn was cancelled because the session ends
        """
        if self.agent is None:
            hooks = replace(self.hooks, began=began, session_ended=session_ended)
            self.agent = Agent(provider, toolset, self.history, emit, self.limits, prompt, hooks=hooks)
        self.agent.use(provider, prompt, specs)
        return self.agent

    def status(self) -> Sequence[str]:
        phases = self._phases.status() if self._phases else ()
        context = self.compactor.status() if self._budget() else ()
        return (*context, *self._selection.status(), *self._reflection.status(), *phases)

    def clear(self) -> None:
        """Forget all messages and everything that was derived from them."""
        self.history.clear()
        self.compactor.clear()
        self._selection.clear()
        self._reflection.clear()
        if self._phases is not None:
            self._phases.clear()

    def _budget(self) -> int:
        window = self._models.window()
        return self.limits.budget(window) if window else 0

    async def _summarizer(self, emit: EventSink) -> Provider:
        """Return the model that writes summaries. Notify the user first, since it takes time. Raises AgentError."""
        provider = await self._models.for_chores(self._summed_up_by)
        said = f"Summing up the conversation, with {provider.name}:{provider.model} …"
        await emit(Notice(Severity.INFO, said))
        return provider

    def _model(self) -> str:
        provider = self.agent and self.agent.provider
        return f"{provider.name}:{provider.model}" if provider else "no model"


@frozen
class DefinedAgent:
    """The defined agent to which the user handed the session over (`/handoff`).

    provider   returns its model, or None for the session's. Raises AgentError
    prompt     returns its system prompt with these tools
    """

    provider: Callable[[], Awaitable[Provider | None]]
    prompt: Callable[[Sequence[ToolSpec]], Awaitable[str]]


class SessionAgent:
    """The agent of one session. It is made when first needed, because a session can exist without a model.

    cwd      the session's folder, links resolved
    notes    returns the notes of the project, for the system prompt
    defined  returns the agent to which the session was handed over; None for the session's own. Raises AgentError
    """

    def __init__(
        self,
        session: Session,
        cwd: str,
        models: SessionModels,
        toolset: Toolset,
        conversation: Conversation,
        emit: EventSink,
        notes: Callable[[], Awaitable[str]],
        defined: Callable[[], DefinedAgent | None] = lambda: None,
    ) -> None:
        self._session = session
        self._cwd = cwd
        self._defined = defined
        self._models = models
        self._toolset = toolset
        self._conversation = conversation
        self._emit = emit
        self._notes = notes
        self._prompt: tuple[object, str] = None, ""  # what the last system prompt is made of, and the prompt

    async def agent(self) -> Agent:
        """Return the agent that runs turns. Raises AgentError, with advice, if there is no model.

        Raises LoginRequired if a key is missing and the editor offers a login.
        """
        defined = self._defined()
        try:
            other = None if defined is None else await defined.provider()
            provider = other or await self._models.answering()
        except MissingKey as error:
            if self._session.editor.offers_login:
                raise LoginRequired(str(error)) from None
            raise
        # The system prompt also names the tools that the selection currently hides. So it is the same in every call and
        # can be cached.
        specs = self._toolset.specs()
        tools = specs if self._models.take_tools(provider) else ()
        session = self._session
        if defined is not None:
            prompt = await defined.prompt(tools)
        else:
            prompt = self._own_prompt(tools, await self._notes())
        return self._conversation.prepare(
            provider,
            prompt,
            self._toolset,
            self._emit,
            specs,
            began=session.transcript.save_soon,
            session_ended=lambda: session.turns.session_ended,
        )

    def _own_prompt(self, tools: Sequence[ToolSpec], notes: str) -> str:
        """Return the system prompt, the same object until it changes: requests then reuse its bytes."""
        folders, in_editor = self._session.workspace.additional, self._session.editor.owns_buffers
        mode = self._session.active.mode
        made_of = tuple(tools), notes, folders, in_editor, mode
        if self._prompt[0] != made_of:
            prompt = system_prompt(
                self._cwd, folders, sys.platform, mode, tools=tools, notes=notes, in_editor=in_editor
            )
            self._prompt = made_of, prompt
        return self._prompt[1]


def tool_selection(
    settings: Settings,
    embedder: Embedder | None,
    joining: Callable[[], bool],
    warn: Callable[[str], None],
    redact: Redact,
) -> ToolSelection:
    """Return the selection of tools for one conversation.

    joining   returns whether an MCP server is still starting
    redact    removes secrets from prompts that the embedding model compares
    """
    tafc, chosen, needs = settings.tools.tafc, settings.agent.tool_filter, settings.tools.dependencies
    if not (tafc.enabled or chosen.enabled or needs.enabled):
        return ToolSelection()
    from acp_agent.agent.aids import selection  # noqa: PLC0415
    from acp_agent.agent.aids.arguments import Tafc  # noqa: PLC0415 - off by default
    from acp_agent.agent.aids.dependencies import Dependencies, Needs  # noqa: PLC0415

    schema_filter = chosen.enabled and selection.SchemaFilter(
        selection.EmbeddingRanking(embedder, redact=redact) if embedder else selection.WordRanking(),
        top_k=chosen.top_k,
        min_description_words=chosen.min_description_words,
        always_on=chosen.always_on,
    )
    dependencies = needs.enabled and Dependencies(
        {tool: Needs(rule.requires, rule.prefers) for tool, rule in needs.rules.items()},
        boost_per_dep=needs.boost_per_dep,
        max_total_boost=needs.max_total_boost,
        always_on=schema_filter.always_on if schema_filter else selection.INDISPENSABLE,
        joining=joining,
        warn=warn,
    )
    return selection.AidedToolSelection(
        _log,
        tafc=Tafc(tafc.complexity_threshold) if tafc.enabled else None,
        schema_filter=schema_filter or None,
        dependencies=dependencies or None,
    )
