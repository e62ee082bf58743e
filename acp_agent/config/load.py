"""Loading the configuration: defaults, user's file, project's file, environment, flags. Later sources take precedence.

A variable ACP_AGENT_<SECTION>__<KEY> sets one setting, and there are two aliases. Other programs use the prefix as
well, so an unknown variable is reported only if its name is close to one of ours.

`[tools.shell]` has an older form of rules for bash: the lists `blocked_commands` and `confirm_patterns`. They are
converted only if the user, not the project, sets `confirm_patterns` and has no rules for bash, because the last
converted rule allows the rest. The rules are, in this order:

    deny   *x*   for each x of `blocked_commands`; the blocklist refuses these as well
    ask    *x*   for each x of `confirm_patterns`, then for each text of `USUAL`
    allow  *

A project's rules are added to the converted ones as to any others.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar, cast

from acp_agent.config.files import (
    CONFIG_VARIABLE,
    DATA_VARIABLE,
    FORK_VARIABLE,
    FRAMES_VARIABLE,
    PROJECT_FILE,
    STRICT_VARIABLE,
    Stamp,
    config_file,
    credentials_file,
    read_credentials,
    read_project,
    read_toml,
    stamp,
)
from acp_agent.config.layers import RULES, Layer, Reader, SettingKey, key_of, keys, sections
from acp_agent.config.mcp_settings import McpServerSettings
from acp_agent.config.rules import PermissionRule, RuleAction, guarded
from acp_agent.config.section import Section, Tightened, secret_values
from acp_agent.config.settings import Settings
from acp_agent.config.vendors import add_vendors, check_models
from acp_agent.core.data import frozen
from acp_agent.core.errors import ConfigError
from acp_agent.core.session_options import AutoApprove, Autonomy, Mode, SessionOptions, tighter
from acp_agent.shape import ValidationError, fields


class ProjectLoosens(ConfigError):
    """A value in a project's file is looser than the user's. It is ignored, and the user need not change anything."""


MOST_ENTRIES = 256
"""The most entries that are read of one list in a project's file. Every tool call is compared with each of them."""


def bounded(reader: Reader, where: str, table: Mapping[str, object], prefix: str = "") -> Mapping[str, object]:
    """Return a project's table with every list cut to its first 256 entries. Report each cut as a ProjectLoosens."""
    kept = dict(table)
    for name, value in table.items():
        dotted = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            kept[name] = bounded(reader, where, cast("dict[str, object]", value), dotted)
        elif isinstance(value, list) and len(entries := cast("list[object]", value)) > MOST_ENTRIES:
            kept[name] = entries[:MOST_ENTRIES]
            ignored = f"the other {len(entries) - MOST_ENTRIES} are ignored"
            expected = f"at most {MOST_ENTRIES} entries in a project's file; {ignored}"
            reader.report(where, dotted, entries[:3], expected, ProjectLoosens)
    return kept


def tighten(reader: Reader, user: Layer, project: Layer) -> Mapping[str, object]:
    """Apply the project's layer to the user's, in place. Report each refused value as a ProjectLoosens.

    Return the user's value of each setting that was changed.
    """
    changed: dict[str, object] = {}
    for name, wish in project.values.items():
        key, where = key_of(name), project.origins[name]
        assert key is not None
        may = key.project_may
        before = user.values.get(name, key.default)
        outcome = may.tighten(before, wish) if may else Tightened(before, (wish,))
        words = f"{may.words}, since a project may only tighten" if may else "it only in the user's own configuration"
        for refused in outcome.refused:
            said = refused.model_dump() if isinstance(refused, Section) else refused
            reader.report(where, name, said, f"{words} (ignored)", ProjectLoosens)
        if outcome.value != before or (name not in user.values and not outcome.refused):
            user.put(name, outcome.value, f"{where} over {user.origins.get(name, 'default')}")
            changed[name] = before
    return changed


Table: TypeAlias = Mapping[str, object]
"""The parsed content of a file."""
S = TypeVar("S", bound=Section)


class Files:
    """The files of one load: their tables, and their stamps from before they were read.

    known    the earlier tables by path. They stay in force for a file that is missing, empty or unreadable now: a
             program that saves a file may empty it first, and a lost file must not lift a ban
    fault    the reason why the content of the user's own file is unknown
    """

    def __init__(self, reader: Reader, known: Mapping[str, Table]) -> None:
        self._reader = reader
        self._known = known
        self.fault: ConfigError | None = None
        self.tables = dict[str, Table]()
        self.stamps = dict[str, Stamp]()

    def users(self, file: str, *, named: bool) -> Table | None:
        """Return the user's table, or None if it cannot be read. A file that the user named must exist."""
        table, problem = self._read(file, partial(read_toml, file))
        if table is None and problem is None and named:
            why = "expected this file to exist, since --config or $ACP_AGENT_CONFIG names it"
            problem = ConfigError(file, "", "", why)
            self._reader.problems.append(problem)
        if table is None:
            self.fault = problem
        return table if problem else (table or {})

    def projects(self, cwd: str) -> Table:
        """Return the project's table, empty if there is none or it cannot be read."""
        return self._read(f"{cwd}/{PROJECT_FILE}", partial(read_project, cwd, PROJECT_FILE))[0] or {}

    def look_for_policy(self, settings: Settings, cwd: str | None) -> None:
        """Record the stamp of the policy file, which the gates read later. Report a file that has gone missing."""
        policy = settings.tools.policy
        if cwd is None or policy.policy_file is None or not policy.enabled:
            return
        path = os.path.join(cwd, os.path.expanduser(policy.policy_file))
        self.stamps[path] = stamp(path)
        if path in self._known and self.stamps[path] is None:
            self._reader.report(
                path, "tools.policy.policy_file", policy.policy_file, "this file to exist, as it did before"
            )
        if path in self._known or self.stamps[path] is not None:
            self.tables[path] = {}

    def _read(self, path: str, read: Callable[[], Table | None]) -> tuple[Table | None, ConfigError | None]:
        """Return the current or the earlier table of a file, and the problem with the file now."""
        self.stamps[path] = stamp(path)
        before = self._known.get(path)
        problem = None
        try:
            table = read()
            if before and not table:
                problem = ConfigError(path, "", "", f"expected it not to be {'gone' if table is None else 'empty'}")
        except ConfigError as error:
            table, problem = None, error
        if problem is not None:
            if before is not None:
                why = f"{problem.expected}; its earlier content stays in force"
                table, problem = before, ConfigError(path, "", "", why)
            self._reader.problems.append(problem)
        if table is not None:
            self.tables[path] = table
        return table, problem


PREFIX = "ACP_AGENT_"
ALIASES = {"ACP_AGENT_MODEL": "llm.model", "ACP_AGENT_MAX_TOOL_ITERATIONS": "agent.max_tool_iterations"}
_NOT_SETTINGS = (CONFIG_VARIABLE, DATA_VARIABLE, FORK_VARIABLE, FRAMES_VARIABLE, STRICT_VARIABLE)
_ALIKE = 0.8
"""The similarity from 0 to 1 above which an unknown name counts as a misspelt one of ours."""
_YES_NO = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def read_environment(reader: Reader, environ: Mapping[str, str]) -> Layer:
    """Return the layer of the environment. An empty variable is unset. The full name takes precedence over an alias."""
    layer = Layer()
    ours = {name: text for name, text in environ.items() if name.startswith(PREFIX) and text}
    for variable in sorted(ours, key=lambda name: (name not in ALIASES, name)):
        section, separator, field = variable.removeprefix(PREFIX).lower().partition("__")
        name = ALIASES.get(variable, f"{section}.{field.replace('__', '.')}" if separator else "")
        key = key_of(name)
        if key is not None and name != RULES:  # a variable sets the rules of one tool
            # An incomplete list of rules must not replace the complete one of a file.
            reader.take(layer, key, _reading(key, ours[variable]), variable, parts=not key.item)
        elif variable not in _NOT_SETTINGS and (expected := _meant(variable)):
            reader.report("environment", variable, ours[variable], expected)
    return layer


def _meant(variable: str) -> str:
    """Return what was expected in place of an unknown variable, or "" if it seems to belong to another program."""
    names = (f"{PREFIX}{name.replace('.', '__').upper()}" for name in keys() if name != RULES)
    spelled = {name.replace("__", "_")[len(PREFIX) :]: name for name in (*names, *_NOT_SETTINGS, *ALIASES)}
    name = variable[len(PREFIX) :]
    from difflib import get_close_matches  # noqa: PLC0415 - few configurations have an unknown key

    close = get_close_matches(name.replace("__", "_"), spelled, n=1, cutoff=_ALIKE)
    if close:
        return spelled[close[0]]
    return "a name such as ACP_AGENT_TOOLS__SHELL__TIMEOUT" if "__" in name else ""


def _reading(key: SettingKey, text: str) -> object:
    """Return the raw value of a variable's text.

    A list is JSON, or texts with commas between them. Any other value is the first valid one of these: the text itself,
    yes or no, and JSON. Those that have just the setting's type come first, because the others need pydantic.
    """
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        parsed = text
    if isinstance(key.default, tuple):
        return parsed if text[0] in "[{" else [word.strip() for word in text.split(",") if word.strip()]
    readings = [each for each in (text, _YES_NO.get(text.lower()), parsed) if each is not None]
    for reading in filter(key.fits, readings):
        return reading
    for reading in readings:
        with suppress(ValidationError):
            if key.read(reading) is not None:
                return reading
    return parsed


USUAL = (
    "rm ", "git push -f", "git push --force", "drop table", "drop database", "truncate ", "$(", "`", "<(", ">(", "<<<",
    "eval ",
)  # fmt: skip
"""The texts that the older form asks about in addition to `confirm_patterns`."""

CONFIRM, BLOCKED, BASH_RULES = "tools.shell.confirm_patterns", "tools.shell.blocked_commands", "tools.permissions.bash"
_LONGEST = 400  # characters of a text; a shortened text matches more commands, so it is stricter
_WILD = re.compile(r"[*?\[\\]")


def legacy_rules(blocked: tuple[str, ...], confirm: tuple[str, ...]) -> tuple[PermissionRule, ...]:
    """Return the rules for bash that replace the two lists. A `*` in a text is a literal star."""

    def anywhere(texts: Iterable[str], action: RuleAction) -> Iterator[PermissionRule]:
        for text in filter(str.strip, texts):
            escaped = _WILD.sub(lambda found: "\\" + found[0], text[:_LONGEST])
            yield PermissionRule(pattern=f"*{escaped}*", action=action)

    denied, asked = anywhere(blocked, RuleAction.DENY), anywhere(dict.fromkeys((*confirm, *USUAL)), RuleAction.ASK)
    return (*denied, *asked, PermissionRule(pattern="*", action=RuleAction.ALLOW))


def add_legacy_rules(reader: Reader, user: Layer, environment: Layer) -> None:
    """Add the converted rules to the user's layer if they use the older form. Call it before `tighten`.

    Nothing is converted if a part of `[tools.shell]` is faulty, because a ban may be missing. Without rules the user is
    asked about every command.
    """
    said = {**user.values, **environment.values}
    confirm = cast("tuple[str, ...]", said.get(CONFIRM, ()))
    has_rules = BASH_RULES in said or BASH_RULES in reader.doubtful
    unclear = any(problem.key.startswith("tools.shell") for problem in reader.problems)
    if not confirm or has_rules or unclear:
        return
    origin = (environment if CONFIRM in environment.values else user).origins[CONFIRM]
    blocked = cast("tuple[str, ...]", said.get(BLOCKED, ()))
    user.put(BASH_RULES, legacy_rules(blocked, confirm), f"{CONFIRM} in {origin}")


LEVEL_FLAG = "--auto-approve"
"""The hidden flag with which `acp-agent run --yes` starts its server. Users set the level in a file or the editor."""
_OPTION_FLAGS = {"auto_approve": LEVEL_FLAG, "mode": "--mode"}
_MODEL_FLAG = "--model"


class Flags(NamedTuple):
    """The settings of the command line. None means that the flag was not given."""

    config: str | None = None
    model: str | None = None
    mode: str | None = None
    auto_approve: str | None = None
    titles: str | None = None

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> "Flags":
        """Return the flags of `--name value` pairs, the form in which the command line passes them to the server."""
        names = (name.removeprefix("--").replace("-", "_") for name in argv[::2])
        return cls(**dict(zip(names, argv[1::2], strict=True)))


@frozen
class Loaded:
    """The configuration in force, and how it was made.

    problems    problems for the user; the rest of the configuration is in force
    origins     the source of each value by dotted name, absent for a default. Providers are `llm.providers.NAME`
    file        the path of the user's configuration file, which need not exist
    fault       the reason why it is unknown what the user forbids. With a fault no tool may run
    tables      the tables of the files by path, from their last readable state
    stamps      the stamps of the files by path, taken before they were read
    servers     the MCP servers of the project's file. None is started before the user agrees
    untightened the user's value of each setting that the project's file made stricter, by dotted name
    """

    settings: Settings
    problems: tuple[ConfigError, ...]
    origins: Mapping[str, str]
    file: str
    fault: ConfigError | None = None
    tables: Mapping[str, Table] = field(default_factory=dict[str, Table], repr=False)  # it may hold secrets
    stamps: Mapping[str, Stamp] = field(default_factory=dict[str, Stamp])
    servers: tuple[McpServerSettings, ...] = ()
    untightened: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)

    def is_current(self) -> bool:
        """Return whether the files are as they were when they were read. Each costs a `stat`."""
        return all(stamp(file) == before for file, before in self.stamps.items())


def load(flags: Flags, environ: Mapping[str, str], cwd: str | None = None, before: Loaded | None = None) -> Loaded:
    """Read every source. A mistake in a source raises nothing; it is listed in `problems`.

    cwd     the session's folder, absolute, which may hold a project's file; None for no project
    before  the configuration of a running session. If a file has become unreadable, its content from there is used
    """
    reader = Reader(secret_values(environ))
    files = Files(reader, before.tables if before else {})
    file = config_file(flags.config, environ)
    table = files.users(file, named=bool(flags.config or environ.get(CONFIG_VARIABLE)))
    layer, environment = Layer(), read_environment(reader, environ)
    reader.table(file, table or {}).put_over(layer)
    if table is not None:
        add_legacy_rules(reader, layer, environment)
    where = f"{cwd}/{PROJECT_FILE}"
    project = reader.table(where, bounded(reader, where, {} if cwd is None else files.projects(cwd)))
    servers = project.take_servers()
    untightened = tighten(reader, layer, project)
    origins = dict(layer.origins)
    environment.put_over(layer)
    _read_flags(reader, flags).put_over(layer)
    _complete(reader, layer, environ, files)
    for name in reader.doubtful:
        layer.values[name] = guarded(layer.rules(name))
    if table is None:  # the file may have held deny rules
        layer.put("acp.auto_approve", AutoApprove.SUGGEST, f"{file} cannot be read")
    settings = _section(Settings, "", layer.values) or Settings.model_construct()
    files.look_for_policy(settings, cwd)
    return Loaded(
        settings,
        tuple(reader.problems),
        layer.origins,
        file,
        files.fault or next(iter(layer.unclear), None),
        files.tables,
        files.stamps,
        servers,
        {name: before for name, before in untightened.items() if layer.origins[name] == origins[name]},
    )


def _complete(reader: Reader, layer: Layer, environ: Mapping[str, str], files: Files) -> None:
    """Add what no source names, and drop values that do not fit together. All sources were read."""
    add_vendors(reader, layer, environ, _stored(reader, files, environ))
    check_models(reader, layer)
    _check_thresholds(reader, layer)


_THRESHOLDS = ("agent.compaction_soft", "agent.compaction_hard")


def _check_thresholds(reader: Reader, layer: Layer) -> None:
    """Report the thresholds of compaction and drop both, unless the soft one is below the hard one.

    They may come from different sources, and each was read without the other.
    """
    soft, hard = (cast("float", layer.values.get(name, keys()[name].default)) for name in _THRESHOLDS)
    if soft < hard:
        return
    name = next(filter(layer.values.__contains__, _THRESHOLDS))
    expected = f"compaction_soft below compaction_hard ({soft:g} and {hard:g} are ignored)"
    reader.report(layer.origins[name], name, layer.values[name], expected)
    for name in _THRESHOLDS:
        layer.values.pop(name, None)
        layer.origins.pop(name, None)


def _read_flags(reader: Reader, flags: Flags) -> Layer:
    layer = Layer()
    for name, flag, value in (
        ("llm.model", _MODEL_FLAG, flags.model),
        ("acp.mode", _OPTION_FLAGS["mode"], flags.mode),
        ("acp.auto_approve", LEVEL_FLAG, flags.auto_approve),
        ("memory.sessions.titles", "--titles", flags.titles),
    ):
        if value is not None:
            reader.take(layer, key_of(name), value, flag)
    return layer


def _stored(reader: Reader, files: Files, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the providers with stored keys. The stamp of their file makes running sessions reload after a login."""
    try:
        file = credentials_file(environ)
    except ConfigError:
        return ()  # the code that needs the data folder reports it
    files.stamps[file] = stamp(file)
    try:
        return tuple(credential.provider for credential in read_credentials(file))
    except ConfigError as error:
        reader.problems.append(error)
        return ()


def _section(model: type[S], prefix: str, values: Mapping[str, object]) -> S | None:
    """Build the section `prefix` from valid values by dotted name. Return None if all its values are the defaults."""
    tables, members = sections(model, prefix), dict[str, object]()
    for entry in fields(model):
        name = f"{prefix}.{entry}" if prefix else entry
        if name in tables:
            if (table := _section(tables[name], name, values)) is not None:
                members[entry] = table
        elif name == RULES:
            if rules := {key.rpartition(".")[2]: each for key, each in values.items() if key.startswith(f"{RULES}.")}:
                members[entry] = rules
        elif name in values:
            members[entry] = values[name]
    if not members:
        return None
    return model.model_validate(members) if prefix else model.model_construct(**members)


def options_at_start(loaded: Loaded) -> SessionOptions:
    """Return the mode, the approval level and the read-only state of a new session under this configuration."""
    acp, autonomy, said = loaded.settings.acp, loaded.settings.tools.autonomy_level, loaded.origins
    level = acp.auto_approve if "acp.auto_approve" in said else None
    if level is None or said["acp.auto_approve"] != LEVEL_FLAG:
        level = level_at_start(autonomy if "tools.autonomy_level" in said else None, level)
    return SessionOptions(acp.mode, level, readonly=autonomy is Autonomy.READONLY)


def options_opened(loaded: Loaded, saved: SessionOptions) -> tuple[SessionOptions, str]:
    """Return the same as `resumed_options`, for a session that this process opens for the first time.

    A level, mode or model of the command line replaces what the user chose in the session. A level or mode of the
    command line is not stored.
    """
    flagged = {name for name, flag in _OPTION_FLAGS.items() if loaded.origins.get(f"acp.{name}") == flag}
    saved = replace(saved, chosen=tuple(name for name in saved.chosen if name not in flagged))
    if loaded.origins.get("llm.model") == _MODEL_FLAG:
        saved = replace(saved, model="")
    return resumed_options(loaded, saved)


def resumed_options(loaded: Loaded, saved: SessionOptions) -> tuple[SessionOptions, str]:
    """Return the options of a session that continues under this configuration, and a message for the user or "".

    They are the options of a new session, except for what the user chose in this session. A choice does not lift what
    the configuration forbids now: `readonly` always holds. If the project's file sets a mode or level, the stricter of
    it and the user's choice holds. The user may choose looser options afterwards.
    """
    start = options_at_start(loaded)
    of_project = {name for name, origin in loaded.origins.items() if f"{PROJECT_FILE} over " in origin}  # see `tighten`
    sets_level = not of_project.isdisjoint(("acp.auto_approve", "tools.autonomy_level"))
    most = SessionOptions(
        start.mode if "acp.mode" in of_project else Mode.CODE,
        start.auto_approve if sets_level else AutoApprove.FULL_AUTO,
        readonly=start.readonly,
    )
    now = saved.resumed(start, most)
    stricter: list[str] = []
    if now.mode is not saved.mode and tighter(now.mode, saved.mode) is now.mode:
        stricter.append(f"mode {now.mode} instead of {saved.mode}")
    if now.auto_approve is not saved.auto_approve and tighter(now.auto_approve, saved.auto_approve) is now.auto_approve:
        stricter.append(f"approval {now.auto_approve} instead of {saved.auto_approve}")
    if now.readonly and not saved.readonly:
        stricter.append("read-only")
    told = "The configuration is stricter now, so this session may do less than before: "
    return now, told + ", ".join(stricter) if stricter else ""


def level_at_start(autonomy: Autonomy | None, auto_approve: AutoApprove | None) -> AutoApprove:
    """Return the approval level a session starts with. An argument is None if no file, variable or flag sets it.

    The autonomy `full` means full-auto if `auto_approve` is not set. If both are set, the stricter one holds:
    `supervised` and `readonly` allow at most auto-edit, and `full` allows what `auto_approve` allows. A project's file
    can lower both and raise neither. The mode limits the tools in a gate of its own. The user may choose another level
    in the editor later.
    """
    if auto_approve is None:
        return AutoApprove.FULL_AUTO if autonomy is Autonomy.FULL else AutoApprove.SUGGEST
    most = AutoApprove.FULL_AUTO if autonomy in (None, Autonomy.FULL) else AutoApprove.AUTO_EDIT
    return tighter(most, auto_approve)
