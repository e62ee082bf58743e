"""The configuration as a session uses it: policy, rules, tools, verifiers, redaction, filters, roots, protected paths.

A pattern for paths in the user's own file that cannot be understood means that nothing runs. The file of a project
comes with the repository: its author could take every tool away with one odd pattern. Such a pattern only adds to what
the user forbids, so it is left out and the user is told.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from itertools import islice
from typing import NamedTuple, TypeAlias, cast

from anyio import to_thread

from acp_agent.config.call_settings import SandboxMode, SandboxProfile, VerifierSettings
from acp_agent.config.files import credentials_file, data_path, database_file, session_locks_file, snapshots_folder
from acp_agent.config.layers import RULES
from acp_agent.config.llm_settings import ProviderSettings
from acp_agent.config.load import Loaded
from acp_agent.config.policy_file import PlacedRule, merged_rules
from acp_agent.config.rules import PermissionRule, guarded
from acp_agent.config.section import Section, secret_values
from acp_agent.config.tool_settings import ReadRule, ShellSettings
from acp_agent.core.errors import ConfigError, ToolError
from acp_agent.core.secrets import Redact, placeholders, secrecy
from acp_agent.core.services import Memories, Remembered
from acp_agent.extend.sources import SourceKind
from acp_agent.gates.blocklist import BlocklistPolicy, Substitution
from acp_agent.gates.gate import Resolve
from acp_agent.gates.policy import Policy
from acp_agent.gates.rules.permission_rules import Action, Rule
from acp_agent.gates.rules.policy_rules import Effect, PolicyRule, TrustLevel
from acp_agent.gates.selection import Selection, ToolChoice, for_model
from acp_agent.gates.verify.firewall import Firewall
from acp_agent.gates.verify.verifiers import Destructive, Injection, UrlGrounding, UrlMemory, Verifier
from acp_agent.net.proxy import allowed_hosts
from acp_agent.output.filters.engine import FilterEngine, RuleSource
from acp_agent.output.pipeline import Pipeline, Sizes
from acp_agent.output.redaction.redactor import Redactor, compile_extra
from acp_agent.output.redaction.rules import KnownSecrets
from acp_agent.workspace.command_files import SecretsBelow, real_path
from acp_agent.workspace.protected_paths import ProtectedPaths
from acp_agent.workspace.read_policy import MOST_CHOICES, OwnFiles, ProjectDependencies, ReadPolicy, all_of
from acp_agent.workspace.roots import ReadableFolder, ReadableFolders, Root, Roots, is_below
from acp_agent.workspace.sandbox.git_folders import hooks_of_worktrees
from acp_agent.workspace.sandbox.walls import NetworkReach, WallRules

Warn = Callable[[str], None]
"""Shows the user a problem of the configuration, in one line."""


def session_policy(loaded: Loaded, cwd: str, warn: Callable[[str], object] = len) -> Policy:
    """Return the policy in force. If its rules cannot be read, `warn` is called and nothing runs."""
    tools = loaded.settings.tools
    try:
        merged = merged_rules(tools.policy, tools.authorization, loaded.problems, cwd=cwd, config_file=loaded.file)
        rules = tuple(map(_compiled, merged.rules))
    except ConfigError as error:
        if error not in loaded.problems:  # every session reports these anyway
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
        parsed: list[Rule] = []
        sound: list[PermissionRule] = []
        for number, rule in enumerate(rules, start=1):
            try:
                parsed.append(_compiled_rule(where, number, rule))
                sound.append(rule)
            except ConfigError as error:
                warn(str(error))
        whole = len(sound) == len(rules)
        compiled[tool] = tuple(parsed) if whole else compiled_rules(where, guarded(tuple(sound)))
    return compiled


def compiled_rules(where: str, rules: tuple[PermissionRule, ...]) -> tuple[Rule, ...]:
    """Return the compiled rules. Raises ConfigError, which names `where`, the rule's number and its mistake."""
    return tuple(_compiled_rule(where, number, rule) for number, rule in enumerate(rules, start=1))


def _compiled_rule(where: str, number: int, rule: PermissionRule) -> Rule:
    return Rule.parse(rule.pattern, Action(rule.action.value), f"{where} rule {number}")


def tool_choice(loaded: Loaded, session: tuple[str, ...] | None, model: str = "") -> ToolChoice:
    """Return which tools a model is offered.

    session   the list of session/new; None if none was sent
    model     `PROVIDER:MODEL`; the configured model by default
    """
    settings = loaded.settings
    return for_model(_general(loaded, session), settings.tools.by_model, model or settings.llm.model or "")


def selection_in_force(
    loaded: Loaded, session: tuple[str, ...] | None, model: Callable[[], str]
) -> Callable[[], Selection]:
    """Return a function that returns the selection for the model that `model` names at the time of the call."""

    @cache
    def of(name: str) -> Selection:
        return Selection(tool_choice(loaded, session, name))

    # `model` is slow, and the selection judges every tool before every request: call it only if the answer matters.
    return (lambda: of(model())) if loaded.settings.tools.by_model else (lambda: of(""))


def every_choice(loaded: Loaded, session: tuple[str, ...] | None) -> Iterator[ToolChoice]:
    """Yield the general choice and the choice of every entry in `by_model`."""
    general = _general(loaded, session)
    yield general
    yield from (for_model(general, {"*": each}, "") for each in loaded.settings.tools.by_model.values())


def _general(loaded: Loaded, session: tuple[str, ...] | None) -> ToolChoice:
    tools = loaded.settings.tools
    return ToolChoice(tools.profile.value, tools.allow, tools.deny, tools.also_allow, session)


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


PREVIEW = 5_000
"""Characters that the model sees of a text that is stored whole. With the notes around them they are under 6 KB."""


def known_secrets(environ: Mapping[str, str], providers: Iterable[ProviderSettings] = ()) -> KnownSecrets:
    """Return the keys of the providers, and the values of all variables whose names mean a secret.

    MCP servers add their secrets later, and a CredentialStore adds the stored keys.
    """
    known = KnownSecrets()
    known.add((*secret_values(environ), *(secret for each in providers for secret in each.secrets(environ))))
    return known


def redactor(loaded: Loaded, known: KnownSecrets, warn: Callable[[str], object] = len) -> Redactor:
    """Return the redactor. It removes known values even if its rules are switched off.

    warn   called with each unusable pattern. The default reports nothing: every session reports its patterns itself
    """
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
    source = RuleSource(filters.filters_path or beside, required=filters.filters_path is not None)
    return FilterEngine(source, summarized=loaded.settings.tools.overflow.summarize_output)


def pipeline(loaded: Loaded, redact: Redactor, filters: FilterEngine | None) -> Pipeline:
    """Return the whole pipeline."""
    threshold = loaded.settings.tools.overflow.threshold
    return Pipeline(Sizes(threshold, min(PREVIEW, threshold)), redact, filters)


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
            raise ToolError.invalid(
                "the note contains nothing but a secret, and secrets are not stored",
                "Save the place where the secret is found instead, such as the name of its variable.",
            )
        return await self._memories.save(text)

    async def search(self, query: str, limit: int) -> tuple[Remembered, ...]:
        """Return the notes that match a query. Its secrets are removed, because no note contains any."""
        return await self._memories.search(await self._redacted(query), limit)

    async def _redacted(self, text: str) -> str:
        return await to_thread.run_sync(self._redact, text, abandon_on_cancel=True)


_Words: TypeAlias = tuple[str, ...]

_BUILD: Mapping[str, Callable[[Sequence[str], Sequence[str]], object]] = {
    "tools.file.deny_read": lambda patterns, folders: ReadPolicy(patterns, folders=folders),
    "tools.protection.protected_paths": lambda patterns, _: ProtectedPaths(patterns),
}
"""Compiles the patterns of a setting to which a project may add. Raises ConfigError."""

_MOST_PROJECT_CHOICES = 2 * MOST_CHOICES
"""The most choices (`{a,b}` is two) in the patterns that a project adds to a setting. Compiling each one takes time."""


def without_faulty_patterns(loaded: Loaded, folders: Sequence[str]) -> tuple[Loaded, tuple[ConfigError, ...]]:
    """Return the configuration without the project's unusable patterns, and their problems.

    An unusable pattern of the user stays and raises ConfigError where it is used.
    """
    if not loaded.untightened:
        return loaded, ()
    faults: list[ConfigError] = []
    for key in (key for key in _BUILD if key in loaded.untightened):
        _, section, field = key.split(".")
        tools = loaded.settings.tools
        settings = cast("Section", getattr(tools, section))
        patterns = cast("_Words", getattr(settings, field))
        users = cast("_Words", loaded.untightened[key])
        kept = _usable(key, _with_few_choices(key, patterns, users, faults), users, folders, faults)
        if kept != patterns:
            tools = tools.model_copy(update={section: settings.model_copy(update={field: kept})})
            loaded = replace(loaded, settings=loaded.settings.model_copy(update={"tools": tools}))
    origins = loaded.origins
    told = (ConfigError(origins[each.key], each.key, each.value, f"{each.expected} (ignored)") for each in faults)
    return replace(loaded, untightened={}), tuple(told)


def _with_few_choices(key: str, patterns: _Words, users: _Words, faults: list[ConfigError]) -> _Words:
    """Return the patterns without those of the project that exceed its choices (`{a,b}` is two)."""
    from acp_agent.workspace.glob import alternatives  # noqa: PLC0415 - few projects have patterns

    kept, left = list[str](), _MOST_PROJECT_CHOICES
    for pattern in patterns:
        if pattern in users:
            kept.append(pattern)
            continue
        if left < 0:
            continue
        left -= sum(1 for _ in islice(alternatives(pattern), min(left, MOST_CHOICES) + 1))
        if left >= 0:
            kept.append(pattern)
        else:
            most = f"at most {_MOST_PROJECT_CHOICES} choices in a project's patterns; this one and those after it"
            faults.append(ConfigError("configuration", key, repr(pattern[:100]), most))
    return tuple(kept)


def _usable(key: str, patterns: _Words, users: _Words, folders: Sequence[str], faults: list[ConfigError]) -> _Words:
    """Return all usable patterns, or only the user's if even those cannot be compiled together."""
    build = _BUILD[key]
    try:
        build(patterns, folders)
    except ConfigError as error:
        too_much = error
    else:
        return patterns
    try:
        build(users, folders)
    except ConfigError:
        return patterns

    def good() -> Iterator[str]:
        for pattern in patterns:
            try:
                build((pattern,), folders)
            except ConfigError as error:
                faults.append(error)
            else:
                yield pattern

    kept = tuple(good())
    try:
        build(kept, folders)
    except ConfigError:
        faults.append(too_much)
        return users
    return kept


class _Reach(NamedTuple):
    """The folders that file tools or commands may use, and the files in them that they may read."""

    folders: tuple[str, ...]
    reading: ReadPolicy
    dependencies: ProjectDependencies


def _resolved(folders: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(os.path.realpath, folders))


class FolderRules:
    """The rules of a configuration for a session's folders: the roots, the walls around commands, the protected paths.

    Each part is made at its first use. Sessions with the same folders may share one object. Unusable patterns of a
    project are left out.

    given     the configuration that was passed in
    folders   the session's folders
    loaded    the configuration without the project's unusable patterns
    faults    the problems of the unusable patterns
    """

    def __init__(self, given: Loaded, cwd: str, additional: Sequence[str] = ()) -> None:
        self.given = given
        self.folders = (cwd, *additional)
        tools = given.settings.tools
        allowed = filter(os.path.isdir, dict.fromkeys((*tools.file.allowed_paths, *tools.shell.allowed_paths)))
        self.loaded, self.faults = without_faulty_patterns(given, (*self.folders, *allowed))
        self._resolved = _resolved(self.folders)

    def are_for(self, given: Loaded, folders: Sequence[str]) -> bool:
        """Return whether these rules hold for a configuration and folders: not if a link to a folder has changed."""
        return self.given is given and self.folders == tuple(folders) and self._resolved == _resolved(folders)

    @cached_property
    def protected(self) -> ProtectedPaths:
        """The protected paths: those that must not be changed without the user's knowledge. Raises ConfigError."""
        protection, obeyed = self.loaded.settings.tools.protection, self.loaded.settings.agent.instructions.files
        hooks = hooks_of_worktrees(self._resolved)
        return ProtectedPaths(
            protection.protected_paths, protection.unprotected_paths, self._written_by_us, obeyed, hooks
        )

    def roots(
        self,
        *,
        for_shell: bool = False,
        open_root: Callable[[str], Root] | None = None,
        skills: Callable[[], Sequence[ReadableFolder]] = tuple,
    ) -> Roots:
        """Return new roots, with the paths below them that file tools or commands may use.

        skills   returns the folders of the user's own skills, which may be read if the user agrees

        Raises ConfigError if a folder cannot be opened, or if a pattern for denied paths is malformed.
        """
        if self.loaded.fault is not None:
            raise self.loaded.fault
        (cwd, *extra), reading, dependencies = self._of_commands if for_shell else self._of_files
        policy = all_of(self._own_files, self.protected, reading)

        def found(path: str, resolved: str) -> ReadableFolder | None:
            mine = next((each for each in skills() if is_below(resolved, each.path)), None)
            return dependencies.find(path, resolved) if mine is None or secrecy(resolved) else mine

        readable = ReadableFolders(found, open_root or Root)
        return Roots(cwd, extra, policy=policy, open_root=open_root, readable=readable)

    def walls(self, skills: Sequence[ReadableFolder] = ()) -> WallRules | None:
        """Return what the walls around commands are made from; None if they are switched off.

        skills   the folders of the user's own skills, whose scripts commands may run

        Raises ConfigError if a pattern is malformed.
        """
        sandbox = self.loaded.settings.tools.sandbox
        if sandbox.mode is SandboxMode.OFF or sandbox.profile is SandboxProfile.OFF:
            return None
        protected = self.protected

        def protects(path: str) -> bool:
            found = protected.find(path)
            return found is not None and not found.everyday

        return WallRules(
            roots=self._of_commands.folders,
            protects=protects,
            refuses=self._of_commands.reading,
            allow_write=sandbox.allow_write,
            allow_read=(*sandbox.allow_read, *(each.path for each in skills)),
            hidden=(*sandbox.deny_read, *self._ours),
            read_only=sandbox.profile is SandboxProfile.READ_ONLY,
            network=NetworkReach.ALL if sandbox.profile is SandboxProfile.NETWORK_ALLOW_ALL else NetworkReach.SESSION,
            hosts=allowed_hosts(sandbox.network_allow),
        )

    @cached_property
    def _of_files(self) -> _Reach:
        file = self.loaded.settings.tools.file
        return self._reach(file.allowed_paths, file.allow_read)

    @cached_property
    def _of_commands(self) -> _Reach:
        # Any word of a command may be a path, so a list of allowed files would make every command ask.
        tools = self.loaded.settings.tools
        carve_out = tools.file.read_policy is ReadRule.CARVE_OUT
        return self._reach(tools.shell.allowed_paths, tools.file.allow_read if carve_out else ())

    def _reach(self, allowed: Sequence[str], allow_read: Sequence[str]) -> _Reach:
        """Return what tools may use. Raises ConfigError for a malformed pattern, because it may be meant to deny."""
        file, folders = self.loaded.settings.tools.file, (*self.folders, *filter(os.path.isdir, allowed))
        carve_out = file.read_policy is ReadRule.CARVE_OUT
        try:
            reading = ReadPolicy(file.deny_read, allow_read, carve_out=carve_out, folders=folders)
        except ConfigError as error:
            where = self.loaded.origins.get(error.key, error.where)
            raise ConfigError(where, error.key, error.value, error.expected) from error
        return _Reach(folders, reading, ProjectDependencies([os.path.realpath(each) for each in folders], os.environ))

    @cached_property
    def _own_files(self) -> OwnFiles:
        """The policy for our own files: tools may not read the credentials or the snapshots, or delete the locks."""
        closed = (credentials_file, database_file, session_locks_file, snapshots_folder)
        return OwnFiles(self._written_by_us, [place(os.environ) for place in closed])

    @cached_property
    def _ours(self) -> tuple[str, ...]:
        """The data folder, the configuration, and what the user keeps outside the data folder."""
        settings, found = self.loaded.settings, [data_path(os.environ), self.loaded.file]
        if settings.acp.permission_file:
            found.append(settings.acp.permission_file)
        if settings.audit.file:
            found += [settings.audit.file, f"{settings.audit.file}.head"]
        if settings.tools.policy.policy_file:
            found.append(os.path.join(self.folders[0], settings.tools.policy.policy_file))
        return tuple(found)

    @cached_property
    def _written_by_us(self) -> tuple[str, ...]:
        """Our own files, and the places of the user's own definitions, which tools may read and not change."""
        beside = os.path.dirname(self.loaded.file)
        definitions = (os.path.join(beside, name) for name in (*SourceKind, "hooks.toml")) if self.loaded.file else ()
        return (*self._ours, *definitions)
