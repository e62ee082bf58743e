"""The configuration as a session uses it: policy, rules, blocklist, tools, verifiers, redaction, filters."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, partial

from anyio import to_thread

from acp_agent.config import Loaded, PermissionRule, ProviderSettings, ShellSettings, secret_values
from acp_agent.config.layers import RULES
from acp_agent.config.limits_settings import VerifierSettings
from acp_agent.config.policy_file import PlacedRule, merged_rules
from acp_agent.config.rules import guarded
from acp_agent.core.errors import ConfigError, ToolError, ToolErrorCategory
from acp_agent.core.secrets import Redact, placeholders
from acp_agent.core.services import Memories, Remembered
from acp_agent.core.types import ALIASES
from acp_agent.gates.blocklist import BlocklistPolicy, Substitution
from acp_agent.gates.policy import Policy
from acp_agent.gates.rules.permission_rules import Action, Rule
from acp_agent.gates.rules.policy_rules import Effect, PolicyRule, TrustLevel
from acp_agent.gates.selection import ModelSelection, Selection, ToolChoice, for_model
from acp_agent.gates.verify.firewall import Firewall, Resolve
from acp_agent.gates.verify.verifiers import Destructive, Injection, UrlGrounding, UrlMemory, Verifier
from acp_agent.output.filters.engine import FilterEngine, RuleSource
from acp_agent.output.pipeline import Pipeline, Sizes
from acp_agent.output.redaction.redactor import Redactor, compile_extra
from acp_agent.output.redaction.rules import KnownSecrets
from acp_agent.workspace.command_files import SecretsBelow, real_path
from acp_agent.workspace.roots import Roots


def session_policy(loaded: Loaded, cwd: str, warn: Callable[[str], None]) -> Policy:
    """Return the policy in force. If its rules cannot be read, `warn` is called and nothing runs."""
    tools = loaded.settings.tools
    try:
        merged = merged_rules(tools.policy, tools.authorization, loaded.problems, cwd=cwd, config_file=loaded.file)
        rules = tuple(map(_compiled, merged.rules))
    except ConfigError as error:
        if error not in loaded.problems:  # those are told anyway
            warn(str(error))
        return Policy(fault=str(error))
    for refused in merged.refused:
        warn(str(refused))
    on = tools.policy.enabled or tools.authorization.enabled
    return Policy(rules, Effect(tools.policy.default_effect.value) if on else Effect.ALLOW)


def _compiled(placed: PlacedRule) -> PolicyRule:
    rule = placed.rule
    return PolicyRule.parse(
        placed.place,
        Effect(rule.effect.value),
        rule.tool,
        compile_regex=_regex,
        paths=rule.paths,
        env=rule.env,
        variables=os.environ,
        trust=None if rule.trust_level is None else TrustLevel(rule.trust_level.value),
        args_match=rule.args_match,
        capabilities=rule.capabilities,
        phases=rule.phases,
    )


def _regex(pattern: str) -> Callable[[str], bool]:
    from acp_agent.regex import LinearRegex  # noqa: PLC0415 - few sessions need the engine

    return LinearRegex(pattern).found_in


Warn = Callable[[str], None]
"""Shows the user a problem of the configuration, in one line."""


def blocklist_policy(shell: ShellSettings) -> BlocklistPolicy:
    """Return the additions to the blocklist and the exceptions from it in `[tools.shell]`."""
    return BlocklistPolicy(
        shell.blocked_commands,
        shell.allowed_commands,
        Substitution(shell.substitution.value),
        tuple(group.value for group in shell.blocked_groups),
    )


def permission_rules(loaded: Loaded, warn: Warn, known: Collection[str] = ()) -> dict[str, tuple[Rule, ...]]:
    """Return the rules by tool id. A malformed rule, or a rule for an unknown tool, is reported and allows nothing.

    known   the ids of all tools; empty if unknown ids are accepted
    """
    compiled: dict[str, tuple[Rule, ...]] = {}
    for tool, rules in loaded.settings.tools.permissions.items():
        if known and tool not in known and not tool.startswith("mcp_"):  # tools of servers come and go
            warn(f"[tools.permissions.{tool}]: there is no tool of that name ({', '.join(sorted(known))})")
        where = f"{loaded.origins.get(f'{RULES}.{tool}', '')} [[tools.permissions.{tool}]]".strip()
        compiled[tool] = _guarded(where, rules, warn)
    return compiled


def compiled_rules(where: str, rules: tuple[PermissionRule, ...]) -> tuple[Rule, ...]:
    """Return the compiled rules. Raises ConfigError, which names `where`, the rule's number and its mistake."""
    return tuple(_permission_rules_compiled(where, number, rule) for number, rule in enumerate(rules, start=1))


def _guarded(where: str, rules: tuple[PermissionRule, ...], warn: Warn) -> tuple[Rule, ...]:
    compiled: list[Rule] = []
    sound: list[PermissionRule] = []
    for number, rule in enumerate(rules, start=1):
        try:
            compiled.append(_permission_rules_compiled(where, number, rule))
            sound.append(rule)
        except ConfigError as error:
            warn(str(error))
    return tuple(compiled) if len(sound) == len(rules) else compiled_rules(where, guarded(tuple(sound)))


def _permission_rules_compiled(where: str, number: int, rule: PermissionRule) -> Rule:
    return Rule.parse(rule.pattern, Action(rule.action.value), f"{where} rule {number}")


def tool_choice(loaded: Loaded, session: tuple[str, ...] | None, model: str = "") -> ToolChoice:
    """Return the choice for a model as `PROVIDER:MODEL`, by default the configured one.

    session   the list of session/new; None if none was sent
    """
    return for_model(_general(loaded, session), _by_model(loaded), model or loaded.settings.llm.model or "")


def selection_in_force(
    loaded: Loaded, session: tuple[str, ...] | None, model: Callable[[], str]
) -> Callable[[], Selection]:
    """Return a function that returns the selection for the model that `model` names at the time of the call."""

    @cache
    def of(name: str) -> Selection:
        return Selection(tool_choice(loaded, session, name), ALIASES)

    return lambda: of(model())


def every_choice(loaded: Loaded, session: tuple[str, ...] | None) -> Iterator[ToolChoice]:
    """Yield the general choice and the choice of every entry in `by_model`."""
    general = _general(loaded, session)
    yield general
    yield from (for_model(general, (each._replace(pattern="*"),), "") for each in _by_model(loaded))


def _general(loaded: Loaded, session: tuple[str, ...] | None) -> ToolChoice:
    tools = loaded.settings.tools
    return ToolChoice(tools.profile.value, tools.allow, tools.deny, tools.also_allow, session)


def _by_model(loaded: Loaded) -> Iterator[ModelSelection]:
    for glob, each in loaded.settings.tools.by_model.items():
        yield ModelSelection(glob, each.profile and each.profile.value, each.allow, each.deny, each.also_allow)


def verifiers(on: VerifierSettings, resolve: Resolve, shell: Roots, urls: UrlMemory) -> tuple[Verifier, ...]:
    """Return the verifiers that are switched on.

    resolve   returns the real path of a tool's path
    shell     the directories that commands may name
    urls      the URLs that the user has typed
    """
    real, below = partial(real_path, folder=shell.cwd), SecretsBelow(shell)
    every: tuple[tuple[bool, Verifier], ...] = (
        (on.destructive, Destructive()),
        (on.injection, Injection()),
        (on.firewall, Firewall(resolve, real, below)),
        (on.url_grounding, UrlGrounding(urls)),
    )
    return tuple(verifier for wanted, verifier in every if wanted)


_PREVIEW = 5_000
"""Characters that the model sees of a text that is stored whole. With the notes around them they are under 6 KB."""


def known_secrets(environ: Mapping[str, str], providers: Iterable[ProviderSettings] = ()) -> KnownSecrets:
    """Return the keys of the providers, and the values of all variables whose names mean a secret.

    MCP servers add their secrets later, and a CredentialStore adds the stored keys.
    """
    known = KnownSecrets()
    known.add((*secret_values(environ), *(secret for each in providers for secret in each.secrets(environ))))
    return known


def redactor(loaded: Loaded, known: KnownSecrets, warn: Warn) -> Redactor:
    """Return the redactor. It removes known values even if its rules are switched off."""
    security = loaded.settings.tools.filters.security
    for problem in compile_extra(security.extra_patterns)[1]:
        warn(f"tools.filters.security.extra_patterns: {problem}")
    return Redactor(known, extra_patterns=security.extra_patterns, enabled=security.enabled)


def filter_engine(loaded: Loaded) -> FilterEngine | None:
    """Return the filters of the user's file, or the built-in ones; None if they are switched off.

    The problems of the file are in `warnings`.
    """
    filters = loaded.settings.tools.filters
    if not filters.enabled:
        return None
    beside = os.path.join(os.path.dirname(loaded.file), "filters.toml") if loaded.file else ""
    return FilterEngine(RuleSource(filters.filters_path or beside, required=filters.filters_path is not None))


def pipeline(loaded: Loaded, redact: Redactor, filters: FilterEngine | None) -> Pipeline:
    """Return the whole pipeline."""
    threshold = loaded.settings.tools.overflow.threshold
    return Pipeline(Sizes(threshold, min(_PREVIEW, threshold)), redact, filters)


class RedactedMemories:
    """Memories that redact every text before they pass it on."""

    def __init__(self, memories: Memories, redact: Redact) -> None:
        self._memories = memories
        self._redact = redact

    @property
    def method(self) -> str:
        """The method by which searches find notes."""
        return self._memories.method

    async def save(self, content: str) -> tuple[Remembered, bool]:
        """Store a note without its secrets. Raises ToolError (invalid_parameters) if it contains only a secret."""
        text = await self._redacted(content)
        words = text
        for mark in placeholders(text):
            words = words.replace(mark, "")
        if text.strip() and not words.strip():
            raise ToolError(
                ToolErrorCategory.INVALID_PARAMETERS,
                "the note is nothing but a secret, and secrets are not remembered",
                "Save where the secret is found instead, such as the name of its variable.",
            )
        return await self._memories.save(text)

    async def search(self, query: str, limit: int) -> tuple[Remembered, ...]:
        """Return the notes that match a query. Its secrets are removed, because no note contains any."""
        return await self._memories.search(await self._redacted(query), limit)

    async def _redacted(self, text: str) -> str:
        return await to_thread.run_sync(self._redact, text, abandon_on_cancel=True)
