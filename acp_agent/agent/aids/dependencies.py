"""Tools that wait for others: hidden until all they require has succeeded, favoured by what they prefer (L5)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from acp_agent.core.aliases import tool_id
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.types import ToolResult


@dataclass(frozen=True, slots=True)
class Needs:
    """What a tool depends on, by name or alias: `requires` gates it, `prefers` lifts its rank in the filter."""

    requires: tuple[str, ...] = ()
    prefers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gated:
    """What becomes of the tools the filter left in.

    hidden   those that wait, each with what it waits for (the spec's dependency_exclusions)
    added    what hidden ones wait for and the filter had left out: else nobody could ever set them free
    """

    hidden: Mapping[str, tuple[str, ...]]
    added: frozenset[str] = frozenset()


class Dependencies:
    """The dependencies of one conversation, and which tools have succeeded in it.

    needs            by tool, by name or alias
    boost_per_dep    added to a tool's score for each preferred tool that has succeeded, `max_total_boost` at most
    always_on        tools that no gate holds back
    joining          whether tools may still come, as while an MCP server starts: a required tool nobody offers counts
                     until then as one that has not succeeded, and from then on as a mistake, which gates nothing
    warn             told once of each thing the user may want to mend
    """

    def __init__(
        self,
        needs: Mapping[str, Needs],
        *,
        boost_per_dep: float,
        max_total_boost: float,
        always_on: Collection[str],
        joining: Callable[[], bool],
        warn: Callable[[str], None],
    ) -> None:
        self._boost = boost_per_dep
        self._most_boost = max_total_boost
        self._always_on = frozenset(always_on)
        self._joining = joining
        self._warn = warn
        self._warned: set[str] = set()
        self._requires, self._prefers = _graph(needs)
        for cycle in _cycles(self._requires):
            self._warn_once(f"what {', '.join(cycle)} require leads back to themselves: ignored")
            self._requires |= dict.fromkeys(cycle, ())
        for tool in sorted(self._always_on & {tool for tool, required in self._requires.items() if required}):
            self._warn_once(f"{tool} is always on (agent.tool_filter.always_on): what it requires is ignored")
        self._completed: set[str] = set()
        self._mentioned: frozenset[str] = frozenset()
        self._lifted = False

    def begin(self, mentioned: frozenset[str]) -> None:
        """A turn begins; tools the user names are not held back in it."""
        self._mentioned = mentioned
        self._lifted = False

    def boosts(self) -> Mapping[str, float]:
        """What is added to tools' scores for the tools they prefer that have succeeded."""
        done = {tool: len(self._completed.intersection(preferred)) for tool, preferred in self._prefers.items()}
        return {tool: min(count * self._boost, self._most_boost) for tool, count in done.items() if count}

    def gate(self, included: Collection[str], known: Collection[str]) -> Gated:
        """Which of the tools the filter left in are hidden now. `known`: all there are."""
        self._look_for_unknown(known)
        hidden = {tool: missing for tool in included if (missing := self.missing(tool, known))}
        added = self._ways_out(hidden, known) - frozenset(included)
        waiting = {tool for tool in included if tool not in self._always_on}
        if hidden and not added and len(hidden) == len(waiting):
            self._lifted = True
            self._warn_once("every tool that is not always on waits for another: all are shown until the turn ends")
            return Gated({})
        return Gated(hidden, added)

    def missing(self, tool: str, known: Collection[str]) -> tuple[str, ...]:
        """What a tool still waits for; nothing where it may be used. `known`: all tools there are."""
        if self._lifted or tool in self._always_on or tool in self._mentioned:
            return ()
        awaited = (name for name in self._requires.get(tool, ()) if name not in self._completed)
        return tuple(name for name in awaited if name in known or self._joining())

    def refusal(self, tool: str, missing: Sequence[str]) -> ToolResult:
        """The answer to a call of a tool that waits (L5)."""
        awaited = " and ".join(missing)
        message = f"{tool} waits for {awaited} to succeed in this session; it was not run."
        return ToolResult.failed(ToolFailure(ToolErrorCategory.POLICY_BLOCKED, message, f"Call {awaited} first."))

    def completed(self, tool: str) -> None:
        """A call has succeeded."""
        self._completed.add(tool)

    def clear(self) -> None:
        """The conversation begins anew: nothing has succeeded in it."""
        self._completed.clear()
        self._mentioned = frozenset()
        self._lifted = False

    def status(self, known: Collection[str]) -> str:
        """One line for /status."""
        waiting = {tool: missing for tool in known if (missing := self.missing(tool, known))}
        told = "; ".join(f"{tool} waits for {', '.join(missing)}" for tool, missing in waiting.items()) or "none waits"
        lifted = " (lifted for this turn)" if self._lifted else ""
        return f"Dependencies: tools={len(self._requires)}, succeeded={len(self._completed)}, {told}{lifted}"

    def _ways_out(self, hidden: Mapping[str, tuple[str, ...]], known: Collection[str]) -> frozenset[str]:
        """What can be called to set hidden tools free in the end: there is no cycle."""
        ways: set[str] = set()
        seen: set[str] = set()
        waiting = [name for missing in hidden.values() for name in missing if name in known]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            missing = self.missing(name, known)
            waiting += [each for each in missing if each in known]
            if not missing:
                ways.add(name)
        return frozenset(ways)

    def _look_for_unknown(self, known: Collection[str]) -> None:
        """Warn of required tools nobody offers. Only of tools there are: the others are not held back by anything."""
        if self._joining():
            return
        for tool, required in self._requires.items():
            if tool in known and (unknown := [name for name in required if name not in known]):
                self._warn_once(f"{tool} requires {', '.join(unknown)}, not offered in this session: ignored")

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(f"tools.dependencies: {text}")


def _graph(needs: Mapping[str, Needs]) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Required and preferred tools by tool, all by their own names; several names of one tool become one."""
    requires: dict[str, tuple[str, ...]] = {}
    prefers: dict[str, tuple[str, ...]] = {}
    for name, each in needs.items():
        tool = tool_id(name)
        requires[tool] = (*requires.get(tool, ()), *map(tool_id, each.requires))
        prefers[tool] = (*prefers.get(tool, ()), *map(tool_id, each.prefers))
    return (
        {tool: tuple(dict.fromkeys(names)) for tool, names in requires.items()},
        {tool: tuple(dict.fromkeys(names)) for tool, names in prefers.items()},
    )


def _cycles(requires: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """The groups of tools that require each other, directly or through others."""
    reach = {tool: _reach(tool, requires) for tool in requires}
    groups = {tuple(other for other in requires if other in reach[tool] and tool in reach[other]) for tool in requires}
    return sorted(group for group in groups if group)


def _reach(tool: str, requires: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """All a tool requires in the end, by depth-first search; itself only where there is a cycle."""
    found: set[str] = set()
    waiting = [*requires[tool]]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += requires.get(name, ())
    return frozenset(found)
