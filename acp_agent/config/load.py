"""All sources put together: defaults < user's file < project's file < environment < flags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from acp_agent.config.credentials import credentials_file, read_credentials
from acp_agent.config.environment import read_environment
from acp_agent.config.files import Stamp, stamp
from acp_agent.config.keys import RULES, key_of, sections
from acp_agent.config.layers import Layer, Reader
from acp_agent.config.legacy_rules import add_legacy_rules
from acp_agent.config.masking import secret_values
from acp_agent.config.mcp_settings import McpServerSettings
from acp_agent.config.places import CONFIG_VARIABLE, PROJECT_FILE, config_file
from acp_agent.config.project import bounded, tighten
from acp_agent.config.rules import guarded
from acp_agent.config.section import Section
from acp_agent.config.settings import Settings
from acp_agent.config.sources import Files, Table
from acp_agent.config.vendors import add_vendors, check_models
from acp_agent.core.conduct import AutoApprove
from acp_agent.core.errors import ConfigError

LEVEL_FLAG = "--auto-approve"
"""What `acp-agent run --yes` starts its server with. It is hidden: people set the level in a file or in the editor."""


class Flags(NamedTuple):
    """What the command line may set. None = not given."""

    config: str | None = None
    model: str | None = None
    mode: str | None = None
    auto_approve: str | None = None

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> "Flags":
        """The flags of `--name value` pairs, as the command line hands them to the server."""
        return cls(
            **{
                name.removeprefix("--").replace("-", "_"): value
                for name, value in zip(argv[::2], argv[1::2], strict=True)
            }
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """The configuration in force and how it came about.

    problems    what the user should hear of; the rest of the configuration works
    origins     dotted name to where its value comes from; absent = default. Providers as `llm.providers.NAME`
    file        the user's configuration file, whether it exists or not
    fault       why it is not clear what the user forbids: nothing may run by this
    tables      what the files say, by path, as far as they were ever readable
    stamps      the states the files were in before they were read, by path
    servers     MCP servers the project's file names: none of them is started before the user says so
    untightened what the user had in place of each value that the project's file made tighter, by dotted name
    """

    settings: Settings
    problems: tuple[ConfigError, ...]
    origins: Mapping[str, str]
    file: str
    fault: ConfigError | None = None
    tables: Mapping[str, Table] = field(default_factory=dict[str, Table], repr=False)  # secrets may be in there
    stamps: Mapping[str, Stamp] = field(default_factory=dict[str, Stamp])
    servers: tuple[McpServerSettings, ...] = ()
    untightened: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)


def load(flags: Flags, environ: Mapping[str, str], cwd: str | None = None, before: Loaded | None = None) -> Loaded:
    """Read every source. Never raises for what a user wrote: that lands in `problems`.

    cwd     the session's folder, absolute, for the project's own file; None for no project
    before  what a running session goes by (T2.15): a file that cannot be read any more says what it said then
    """
    reader = Reader(secret_values(environ))
    files = Files(reader, before.tables if before else {})
    file = config_file(flags.config, environ)
    table = files.users(file, named=bool(flags.config or environ.get(CONFIG_VARIABLE)))
    layer, environment = Layer(), read_environment(reader, environ)
    reader.table(file, table or {}).put_over(layer)
    if table is not None:
        add_legacy_rules(reader, layer, environment)
    servers, untightened = _tightened(reader, layer, files, cwd)
    origins = dict(layer.origins)
    for above in (environment, _flags(reader, flags)):
        above.put_over(layer)
    add_vendors(reader, layer, environ, _stored(reader, files, environ))
    check_models(reader, layer)
    for name in reader.doubtful:
        layer.values[name] = guarded(layer.rules(name))
    if table is None:  # it may have held rules that deny
        layer.put("acp.auto_approve", AutoApprove.SUGGEST, f"{file} cannot be read")
    settings = Settings.model_validate(_tree(Settings, "", layer.values))
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


def _tightened(
    reader: Reader, layer: Layer, files: Files, cwd: str | None
) -> tuple[tuple[McpServerSettings, ...], Mapping[str, object]]:
    """Apply the project's file to the user's layer. Return its MCP servers and what the user had (`tighten`)."""
    if cwd is None:
        return (), {}
    where = f"{cwd}/{PROJECT_FILE}"
    project = reader.table(where, bounded(reader, where, files.projects(cwd)))
    servers = project.take_servers()
    return servers, tighten(reader, layer, project)


def _stored(reader: Reader, files: Files, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The providers `acp-agent login` stored keys of. A login is a change that running sessions take up."""
    try:
        file = credentials_file(environ)
    except ConfigError:
        return ()  # whoever needs the data folder tells
    files.stamps[file] = stamp(file)
    try:
        return tuple(credential.provider for credential in read_credentials(file))
    except ConfigError as error:
        reader.problems.append(error)
        return ()


def _flags(reader: Reader, flags: Flags) -> Layer:
    layer = Layer()
    given = (
        ("llm.model", "--model", flags.model),
        ("acp.mode", "--mode", flags.mode),
        ("acp.auto_approve", LEVEL_FLAG, flags.auto_approve),
    )
    for name, flag, value in given:
        if value is not None:
            reader.take(layer, key_of(name), value, flag)
    return layer


def _tree(model: type[Section], prefix: str, values: Mapping[str, object]) -> dict[str, object]:
    """Dotted names back into tables."""
    tables, tree = sections(model, prefix), dict[str, object]()
    for entry in model.model_fields:
        name = f"{prefix}.{entry}" if prefix else entry
        if name in tables:
            tree[entry] = _tree(tables[name], name, values)
        elif name == RULES:
            tree[entry] = {
                key.rpartition(".")[2]: rules for key, rules in values.items() if key.startswith(f"{RULES}.")
            }
        elif name in values:
            tree[entry] = values[name]
    return tree
