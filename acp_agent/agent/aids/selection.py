"""A selection of tools that is made of the aids that are switched on."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from acp_agent.agent.aids.arguments import Tafc, strip
from acp_agent.agent.aids.dependencies import Dependencies, Gated
from acp_agent.agent.aids.tool_filter import FilterResult, Inclusion, SchemaFilter, mentioned
from acp_agent.agent.tool_selection import Received
from acp_agent.core.aliases import tool_id
from acp_agent.core.messages import Message, ToolUsePart
from acp_agent.core.types import ToolResult, ToolSpec


class DebugLog(Protocol):
    """A log for why tools are shown or not, such as acp_agent.log.Log."""

    def debug(self, event: str, **fields: object) -> None:
        """Write an event, a fixed phrase, with its fields."""
        ...


class AidedToolSelection:
    """A selection of up to three parts. A part that is None is switched off and costs nothing."""

    def __init__(
        self,
        log: DebugLog,
        *,
        tafc: Tafc | None = None,
        schema_filter: SchemaFilter | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        self._log = log
        self._tafc = tafc
        self._filter = schema_filter
        self._dependencies = dependencies
        self._specs: Sequence[ToolSpec] = ()
        self._shown: tuple[str, ...] = ()

    async def begin(self, prompt: Message, specs: Sequence[ToolSpec]) -> None:
        self._specs = tuple(specs)
        boosts: Mapping[str, float] = {}
        if self._dependencies is not None:
            self._dependencies.begin(mentioned(prompt.text, specs))
            boosts = self._dependencies.boosts()
        if self._filter is not None:
            await self._filter.begin(prompt.text, specs, boosts)

    def offered(self, specs: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        self._specs = tuple(specs)
        dressed = specs if self._tafc is None else [self._tafc.dressed(spec) for spec in specs]
        if self._filter is None and self._dependencies is None:
            return tuple(dressed)
        selection = self._selection(specs)
        gated = self._gated(selection)
        shown = tuple(
            spec
            for spec in dressed
            if spec.name in gated.added or spec.name in selection.included.keys() - gated.hidden
        )
        self._explain(selection, gated, tuple(spec.name for spec in shown))
        return shown

    def received(self, message: Message) -> Received:
        answered: dict[str, ToolResult] = {}
        unseen = frozenset[str]()
        if self._tafc is not None:
            stripped = strip(message)
            message, answered = stripped.message, stripped.answered
            unseen = frozenset(answered)
        known = {spec.name for spec in self._specs}
        for use in message.tool_uses:
            name = _meant(use.name, known)
            if self._filter is not None:
                self._filter.refer(name)
            if self._dependencies is not None and (missing := self._dependencies.missing(name, known)):
                answered[use.id] = self._dependencies.refusal(name, missing)
        return Received(message, answered, unseen)

    def finished(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]]) -> None:
        if self._dependencies is None:
            return
        known = {spec.name for spec in self._specs}
        for use, result in outcomes:
            if result.failure is None:
                self._dependencies.completed(_meant(use.name, known))

    def clear(self) -> None:
        for part in (self._filter, self._dependencies):
            if part is not None:
                part.clear()
        self._shown = ()

    def status(self) -> Sequence[str]:
        lines: list[str] = []
        if self._tafc is not None:
            lines.append(self._tafc.status(self._specs))
        if self._filter is not None:
            lines.append(self._filter.status(self._specs))
        if self._dependencies is not None:
            lines.append(self._dependencies.status([spec.name for spec in self._specs]))
        return lines

    def _selection(self, specs: Sequence[ToolSpec]) -> FilterResult:
        if self._filter is None:
            return FilterResult({spec.name: Inclusion.UNFILTERED for spec in specs}, {})
        return self._filter.select(specs)

    def _gated(self, selection: FilterResult) -> Gated:
        if self._dependencies is None:
            return Gated({})
        return self._dependencies.gate(selection.included, selection.included.keys() | selection.excluded.keys())

    def _explain(self, selection: FilterResult, gated: Gated, shown: tuple[str, ...]) -> None:
        if shown == self._shown:
            return
        self._shown = shown
        self._log.debug(
            "tools offered",
            included={name: str(selection.included.get(name, Inclusion.PREREQUISITE)) for name in shown},
            excluded={name: str(rank) for name, rank in selection.excluded.items() if name not in gated.added},
            dependency_exclusions={name: f"waits for {', '.join(missing)}" for name, missing in gated.hidden.items()},
        )


def _meant(name: str, known: Iterable[str]) -> str:
    """Return the known tool that a call means: by its name in any case, or by an alias."""
    return next((each for each in (name, name.lower(), tool_id(name)) if each in known), name)
