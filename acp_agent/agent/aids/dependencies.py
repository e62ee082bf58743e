"""Tools that depend on other tools.

A tool is hidden until every tool it requires has succeeded. It ranks higher once the tools it prefers have succeeded.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.types import ToolResult, tool_id


@frozen
class Needs:
    """The dependencies of a tool, by name or alias.

    requires   the tools that must have succeeded before the tool is shown
    prefers    the tools that raise its rank in the tool filter once they have succeeded
    """

    requires: tuple[str, ...] = ()
    prefers: tuple[str, ...] = ()


@frozen
class SelectionChanges:
    """The changes that dependencies make to the tools that passed the filter.

    hidden   the tools that are hidden, each with the tools it waits for
    added    tools that the filter left out and that a hidden tool waits for. Without them it would stay hidden for ever
    """

    hidden: Mapping[str, tuple[str, ...]]
    added: frozenset[str] = frozenset()


class Dependencies:
    """The dependencies of one conversation, and the tools that have succeeded in it.

    needs            the dependencies of each tool, by name or alias
    boost_per_dep    is added to a tool's score for each preferred tool that has succeeded, up to `max_total_boost`
    always_on        tools that are never hidden
    joining          returns True while tools may still be added, for example while an MCP server starts. During this
                     time a required tool that does not exist counts as not yet succeeded. Afterwards it counts as a
                     mistake in the configuration and hides nothing
    warn             is called once for each mistake that the user may want to correct
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
            self._warn_once(f"the requirements of {', '.join(cycle)} form a cycle: ignored")
            self._requires |= dict.fromkeys(cycle, ())
        for tool in sorted(self._always_on & {tool for tool, required in self._requires.items() if required}):
            self._warn_once(f"{tool} is always on (agent.tool_filter.always_on): what it requires is ignored")
        self._completed: set[str] = set()
        self._mentioned: frozenset[str] = frozenset()
        self._lifted = False

    def begin(self, mentioned: frozenset[str]) -> None:
        """Begin a turn. Tools that the user names in the prompt are not hidden in it."""
        self._mentioned = mentioned
        self._lifted = False

    def boosts(self) -> Mapping[str, float]:
        """Return what to add to the score of each tool because tools it prefers have succeeded."""
        done = {tool: len(self._completed.intersection(preferred)) for tool, preferred in self._prefers.items()}
        return {tool: min(count * self._boost, self._most_boost) for tool, count in done.items() if count}

    def changes(self, included: Collection[str], known: Collection[str]) -> SelectionChanges:
        """Return which of the `included` tools are hidden now. `known` are all tools."""
        self._look_for_unknown(known)
        hidden = {tool: missing for tool in included if (missing := self.missing(tool, known))}
        added = self._ways_out(hidden, known) - frozenset(included)
        waiting = {tool for tool in included if tool not in self._always_on}
        if hidden and not added and len(hidden) == len(waiting):
            self._lifted = True
            self._warn_once("every tool that is not always on waits for another: all are shown until the turn ends")
            return SelectionChanges({})
        return SelectionChanges(hidden, added)

    def missing(self, tool: str, known: Collection[str]) -> tuple[str, ...]:
        """Return the tools that `tool` still waits for. Empty if it may be called. `known` are all tools."""
        if self._lifted or tool in self._always_on or tool in self._mentioned:
            return ()
        awaited = (name for name in self._requires.get(tool, ()) if name not in self._completed)
        return tuple(name for name in awaited if name in known or self._joining())

    def refusal(self, tool: str, missing: Sequence[str]) -> ToolResult:
        """Return the result of a call of a tool that still waits for others."""
        awaited = " and ".join(missing)
        message = f"{tool} waits for {awaited} to succeed in this session; it was not run."
        return ToolResult.failed(ToolFailure(ToolErrorCategory.POLICY_BLOCKED, message, f"Call {awaited} first."))

    def completed(self, tool: str) -> None:
        """Note that a call of this tool succeeded."""
        self._completed.add(tool)

    def clear(self) -> None:
        """Forget which tools have succeeded, because a new conversation begins."""
        self._completed.clear()
        self._mentioned = frozenset()
        self._lifted = False

    def status(self, known: Collection[str]) -> str:
        waiting = {tool: missing for tool in known if (missing := self.missing(tool, known))}
        told = "; ".join(f"{tool} waits for {', '.join(missing)}" for tool, missing in waiting.items()) or "none waits"
        lifted = " (lifted for this turn)" if self._lifted else ""
        some, done = len(self._requires), len(self._completed)
        having = f"{some} tool{' depends' if some == 1 else 's depend'} on others"
        return f"Dependencies: {having}, {done} tool{' has' if done == 1 else 's have'} succeeded, {told}{lifted}"

    def _ways_out(self, hidden: Mapping[str, tuple[str, ...]], known: Collection[str]) -> frozenset[str]:
        """Return the tools that the hidden ones wait for and that can be called now. Cycles were ignored before."""
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
        """Warn about required tools that do not exist. The requirements of a tool that does not exist are skipped."""
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
    """Return the required and the preferred tools of each tool, by their own names. Aliases of one tool are merged."""
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
    """Return the groups of tools that require each other, directly or through others."""
    reach = {tool: _reach(tool, requires) for tool in requires}
    groups = {tuple(other for other in requires if other in reach[tool] and tool in reach[other]) for tool in requires}
    return sorted(group for group in groups if group)


def _reach(tool: str, requires: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return all tools that a tool requires, directly or through others. It contains `tool` only in a cycle."""
    found: set[str] = set()
    waiting = [*requires[tool]]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += requires.get(name, ())
    return frozenset(found)
