"""/policy: the rules of a session, and the verdict on a call without making it."""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import assert_never

from acp_agent.config import Loaded
from acp_agent.core.conduct import SessionOptions
from acp_agent.core.types import Access, CommandSubject, PathSubject, Subject, UrlSubject
from acp_agent.gates.gate import Gates
from acp_agent.gates.policy import PolicyGate
from acp_agent.session.session import SessionWorkspace
from acp_agent.session.toolset.gate_settings import session_policy
from acp_agent.session.verdicts import Finding, call_with, judged
from acp_agent.text import visible

_MOST_STEPS = 20
"""The most rules of the policy that a check names, if the policy decides."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_PATH = re.compile(r"\S*/\S*|~|\.\.?|\S*\.[A-Za-z]\w*")
_WORDS = {"allow": "allowed", "ask": "asked about", "deny": "denied", "blocked": "blocked, and nothing lifts that"}
_USAGE = "Usage: `/policy status` or `/policy check COMMAND`, a path or a URL; `check command X` says which it is"


class Kind(StrEnum):
    """The kind of text that /policy check judges."""

    COMMAND = "command"
    PATH = "path"
    URL = "url"


class PolicyCommand:
    """The command /policy for one session. It uses the configuration and the gates in force.

    gates   the gates of the session
    """

    def __init__(self, loaded: Loaded, workspace: SessionWorkspace, active: SessionOptions, gates: Gates) -> None:
        self._loaded = loaded
        self._workspace = workspace
        self._active = active
        self._gates = gates

    def answer(self, text: str) -> str:
        """Answer `/policy TEXT`."""
        verb, *rest = text.split(maxsplit=1) or ["status"]
        given = "".join(rest).strip()
        if verb == "check" and given:
            return self._check(given)
        return "\n".join(f"- {line}" for line in self._status()) if verb == "status" and not given else _USAGE

    # ------------------------------------------------------------------------------------------ status

    def _status(self) -> Iterator[str]:
        if self._loaded.fault is not None:
            yield f"Nothing runs: {self._loaded.fault}"
            return
        tools, active = self._loaded.settings.tools, self._active
        policy = session_policy(self._loaded, self._workspace.cwd, _untold)
        yield f"{policy.status[:1].upper()}{policy.status[1:]}"
        rules = ", ".join(f"{tool} {len(rules)}" for tool, rules in tools.permissions.items() if rules)
        yield f"Permission rules: {rules or 'none'}"
        yield f"Mode: {active.mode}; approval: {active.auto_approve}; autonomy: {active.autonomy}"
        yield _folders("Folders", self._workspace.folders)
        if tools.file.allowed_paths:
            yield _folders("And for file tools", tools.file.allowed_paths)
        if tools.shell.allowed_paths:
            yield _folders("And for commands", tools.shell.allowed_paths)
        yield f"Gates, in their order: {', '.join(gate.name for gate in self._gates.in_order)}"

    # ------------------------------------------------------------------------------------------- check

    def _check(self, text: str) -> str:
        word, *rest = text.split(maxsplit=1)
        kind, target = (Kind(word), rest[0]) if rest and word in set(Kind) else (_kind(text), text)
        return "\n".join(
            (f"{_code(target)}, as a {'URL' if kind is Kind.URL else kind}:", "", *self._found(kind, target))
        )

    def _found(self, kind: Kind, target: str) -> Iterator[str]:
        if not self._gates.in_order:
            yield f"- denied: {self._loaded.fault or 'nothing runs in this session'}"
            return
        match kind:
            case Kind.COMMAND:
                yield from self._judge("run", CommandSubject(target))
            case Kind.PATH:
                yield from self._judge("read", PathSubject(target, Access.READ))
                yield from self._judge("write", PathSubject(target, Access.WRITE))
            case Kind.URL:
                yield from self._judge("fetch", UrlSubject(target))
            case _:
                assert_never(kind)

    def _judge(self, verb: str, subject: Subject) -> Iterator[str]:
        """Judge a call of the model with this subject."""
        facts = self._gates.facts(call_with(subject))
        found = judged(facts, self._gates.in_order)
        yield f"- {verb}: {_told(found)}"
        policy = next((gate for gate in self._gates.in_order if isinstance(gate, PolicyGate)), None)
        if policy is not None and found.gate == policy.name:
            yield from (f"  - {visible(step)}" for step in policy.trace(facts)[-_MOST_STEPS:])


def _kind(text: str) -> Kind:
    """Guess the kind from the text alone: a URL has a scheme, a path is one word with a slash or an extension."""
    if _URL.fullmatch(text):
        return Kind.URL
    return Kind.PATH if _PATH.fullmatch(text) else Kind.COMMAND


def _told(found: Finding) -> str:
    by = f" by {found.gate}" if found.gate else ""
    rule = f", rule {_code(found.rule)}" if found.rule else ""
    why = "; ".join(map(visible, found.reasons))
    return f"**{_WORDS[found.word]}**{by}{rule}{f': {why}' if why else ''}"


def _folders(what: str, folders: Sequence[str]) -> str:
    return f"{what}: {', '.join(map(_code, folders))}"


def _code(text: str) -> str:
    """Return a text as markdown code on one line."""
    shown = visible(text)
    ticks = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}"


def _untold(problem: str) -> None:
    """Ignore a problem, because the user was told when the session began."""
    del problem
