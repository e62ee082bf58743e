"""What permission rules say about calls that run no command (requirements S3.7, S3.9, S3.10)."""

import json
import posixpath
from collections.abc import Callable

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.ports import Invocation
from acp_agent.core.types import Access, PathSubject, UrlSubject
from acp_agent.gates.rules import Action, Rule

Resolve = Callable[[str, Access], str]
"""FileSystem.resolve: raises Refused for a path outside the roots."""


def arguments_text(invocation: Invocation) -> str:
    """The arguments as canonical JSON, one spelling for equal arguments."""
    return json.dumps(invocation.call.arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def rule_action(invocation: Invocation, rules: tuple[Rule, ...], resolve: Resolve) -> Action | None:
    """What the rules say of all values of a call: any denied, else any unsettled or asked, else allowed."""
    if not rules:
        return None
    actions = [_first(rules, exact, loose) for exact, loose in _values(invocation, resolve)]
    for action in (Action.DENY, Action.ASK, None):
        if action in actions:
            return action
    return Action.ALLOW


def _first(rules: tuple[Rule, ...], exact: tuple[str, ...], loose: tuple[str, ...]) -> Action | None:
    """The first matching rule's action. Allowing rules see only what is real, the others every spelling."""
    for rule in rules:
        if any(rule.matches_text(text) for text in (exact if rule.action is Action.ALLOW else (*exact, *loose))):
            return rule.action
    return None


def _values(invocation: Invocation, resolve: Resolve) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """What rules are held against: resolved paths (and as given), URLs, else the arguments as JSON (S3.10)."""
    values: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for subject in invocation.subjects:
        match subject:
            case PathSubject(path, access):
                values.append((_real(path, access, resolve), (path,)))
            case UrlSubject(url):
                values.append(((url,), ()))
            case _:
                continue
    if values:
        return values
    return [((arguments_text(invocation),), ())]


def _real(path: str, access: Access, resolve: Resolve) -> tuple[str, ...]:
    """The resolved path, absolute and relative to the session's folder; none when it is not allowed at all."""
    try:
        real, folder = resolve(path, access), resolve(".", Access.LIST)
    except (Refused, ToolError):
        return ()
    inside = real.startswith(f"{folder.rstrip('/')}/")
    return (real, posixpath.relpath(real, folder)) if inside else (real,)
