"""All sources put together: defaults < user's file < project's file < environment < flags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from acp_agent.config.environment import read_environment
from acp_agent.config.files import read_project, read_toml
from acp_agent.config.keys import RULES, key_of, sections
from acp_agent.config.layers import Layer, Reader
from acp_agent.config.legacy_rules import add_legacy_rules
from acp_agent.config.masking import secret_values
from acp_agent.config.places import CONFIG_VARIABLE, PROJECT_FILE, config_file
from acp_agent.config.project import tighten
from acp_agent.config.rules import guarded
from acp_agent.config.section import Section
from acp_agent.config.settings import Settings
from acp_agent.config.vendors import add_vendors
from acp_agent.core.conduct import AutoApprove
from acp_agent.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line may set. None = not given."""

    config: str | None = None
    model: str | None = None
    mode: str | None = None

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> "Flags":
        """The flags of `--name value` pairs, as the command line hands them to the server."""
        return cls(**{name.removeprefix("--"): value for name, value in zip(argv[::2], argv[1::2], strict=True)})


@dataclass(frozen=True, slots=True)
class Loaded:
    """The configuration in force and how it came about.

    problems    what the user should hear of; the rest of the configuration works
    origins     dotted name to where its value comes from; absent = default. Providers as `llm.providers.NAME`
    file        the user's configuration file, whether it exists or not
    """

    settings: Settings
    problems: tuple[ConfigError, ...]
    origins: Mapping[str, str]
    file: str


def load(flags: Flags, environ: Mapping[str, str], cwd: str | None = None) -> Loaded:
    """Read every source. Never raises for what a user wrote: that lands in `problems`.

    cwd     the session's folder, absolute, for the project's own file; None for no project
    """
    reader = Reader(secret_values(environ))
    file = config_file(flags.config, environ)
    layer, readable = _users_file(reader, file, named=bool(flags.config or environ.get(CONFIG_VARIABLE)))
    environment = read_environment(reader, environ)
    if readable:
        add_legacy_rules(reader, layer, environment)
    if cwd is not None:
        tighten(reader, layer, _projects_file(reader, cwd))
    for above in (environment, _flags(reader, flags)):
        layer.values.update(above.values)
        layer.origins.update(above.origins)
    add_vendors(reader, layer, environ)
    _check_model(reader, layer)
    for name in reader.doubtful:
        layer.values[name] = guarded(layer.rules(name))
    if not readable:  # it may have held rules that deny
        layer.put("acp.auto_approve", AutoApprove.SUGGEST, f"{file} cannot be read")
    return Loaded(
        Settings.model_validate(_tree(Settings, "", layer.values)), tuple(reader.problems), layer.origins, file
    )


def _flags(reader: Reader, flags: Flags) -> Layer:
    layer = Layer()
    for name, flag, value in (("llm.model", "--model", flags.model), ("acp.mode", "--mode", flags.mode)):
        if value is not None:
            reader.take(layer, key_of(name), value, flag)
    return layer


def _users_file(reader: Reader, file: str, *, named: bool) -> tuple[Layer, bool]:
    """The user's layer, and whether the file could be read. A file somebody named has to be there."""
    try:
        table = read_toml(file)
    except ConfigError as error:
        reader.problems.append(error)
        return Layer(), False
    if table is None and named:
        reader.problems.append(
            ConfigError(file, "", "", "expected this file to exist, since --config or $ACP_AGENT_CONFIG names it")
        )
    return reader.table(file, table or {}), table is not None or not named


def _projects_file(reader: Reader, cwd: str) -> Layer:
    try:
        table = read_project(cwd, PROJECT_FILE)
    except ConfigError as error:
        reader.problems.append(error)
        return Layer()
    return reader.table(f"{cwd}/{PROJECT_FILE}", table or {})


def _check_model(reader: Reader, layer: Layer) -> None:
    """A model of a provider nobody knows is no model: another one might cost money."""
    model, names = layer.values.get("llm.model"), [provider.name for provider in layer.providers()]
    if isinstance(model, str) and model.partition(":")[0] not in names:
        expected = f"a provider that is configured ({', '.join(names)}) before the colon"
        reader.report(layer.origins["llm.model"], "llm.model", model, expected)
        del layer.values["llm.model"], layer.origins["llm.model"]


def _tree(model: type[Section], prefix: str, values: Mapping[str, object]) -> dict[str, object]:
    """Dotted names back into tables."""
    tables, tree = sections(model, prefix), dict[str, object]()
    for field in model.model_fields:
        name = f"{prefix}.{field}" if prefix else field
        if name in tables:
            tree[field] = _tree(tables[name], name, values)
        elif name == RULES:
            tree[field] = {
                key.rpartition(".")[2]: rules for key, rules in values.items() if key.startswith(f"{RULES}.")
            }
        elif name in values:
            tree[field] = values[name]
    return tree
