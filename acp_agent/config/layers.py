"""One source of settings as a layer of typed values, and the problems found while reading it."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import cache
from typing import NamedTuple, cast

from acp_agent.config.llm_settings import ProviderSettings
from acp_agent.config.mcp_settings import SERVERS, McpServerSettings
from acp_agent.config.rules import TOOL_NAME, PermissionRule
from acp_agent.config.section import ADDED, INSIDE, NARROWER, ProjectMay, Section, one_line, shown
from acp_agent.config.settings import Settings
from acp_agent.core.data import frozen
from acp_agent.core.errors import ConfigError
from acp_agent.core.types import Json, JsonObject, tool_id
from acp_agent.shape import NotPlain, ShapeField, ValidationError, fields, read_plainly

RULES = "tools.permissions"
PROVIDERS = "llm.providers"


@frozen
class SettingKey:
    """One setting: its dotted name as the user wrote it, and the model and field that hold it.

    item    the key in a field that maps names to values, such as `bash` in `tools.permissions`; else ""
    """

    name: str
    section: type[Section]
    field: str
    item: str = ""

    @property
    def setting(self) -> str:
        """The dotted name under which the value is stored. All names of a tool share one list of rules."""
        return f"{RULES}.{tool_id(self.item)}" if self.item else self.name

    @property
    def info(self) -> ShapeField:
        """The field of the section, with its description, default and marks."""
        return fields(self.section)[self.field]

    @property
    def project_may(self) -> ProjectMay | None:
        """What a project's file may change in this setting, or None if it may change nothing."""
        return next((mark for mark in self.info.marks if isinstance(mark, ProjectMay)), None)

    @property
    def default(self) -> object:
        """The value in force if no source sets it."""
        return () if self.item else self.info.default

    def read(self, raw: object) -> object:
        """Return the typed value of a raw one from a file or a variable. Raises ValidationError."""
        return self._value(self.section.model_validate(self._table(raw)))

    def fits(self, raw: object) -> bool:
        """Return whether a raw value can be read without pydantic, and is not None. `read` accepts more values."""
        try:
            return self._value(read_plainly(self.section, self._table(raw))) is not None
        except NotPlain:
            return False

    def _table(self, raw: object) -> dict[str, object]:
        return {self.field: {self.item: raw} if self.item else raw}

    def _value(self, model: object) -> object:
        value: object = getattr(model, self.field)
        return cast("dict[str, object]", value)[self.item] if self.item else value


@cache
def sections(model: type[Section] = Settings, prefix: str = "") -> Mapping[str, type[Section]]:
    """Return every table by its dotted name. The first is the whole configuration, with an empty name."""
    found = {prefix: model}
    for name, info in fields(model).items():
        if isinstance(info.type, type) and issubclass(info.type, Section):
            found |= sections(info.type, f"{prefix}.{name}" if prefix else name)
    return found


@cache
def keys() -> Mapping[str, SettingKey]:
    """Return every setting by its dotted name. `tools.permissions` is one setting."""
    tables = sections()
    dotted = (
        SettingKey(f"{table}.{field}" if table else field, model, field)
        for table, model in tables.items()
        for field in fields(model)
    )
    return {key.name: key for key in dotted if key.name not in tables}


def key_of(name: str) -> SettingKey | None:
    """Return the setting of a dotted name, or None. `tools.permissions.bash` is the setting of one tool's rules."""
    known = keys()
    if name in known:
        return known[name]
    table, _, tool = name.rpartition(".")
    named = table == RULES and re.fullmatch(TOOL_NAME, tool)
    return SettingKey(name, known[RULES].section, known[RULES].field, item=tool) if named else None


class Complaint(NamedTuple):
    """One fault in a value: its dotted name with list indexes, the value there, and what was expected.

    entry   the index of the faulty entry in a list, or None if the fault is not in one entry
    """

    key: str
    value: object
    expected: str
    entry: int | None = None


@cache
def _schema_of(section: type[Section]) -> JsonObject:
    """Return the JSON Schema of a section. Making it takes longer than everything else about a fault."""
    return section.model_json_schema()


def complaints(key: SettingKey, error: ValidationError) -> list[Complaint]:
    """Return all the faults in a value for `key`."""
    schema, found = _schema_of(key.section), list[Complaint]()
    inside = {detail["loc"][:end] for detail in error.problems for end in range(len(detail["loc"]))}
    for detail in error.problems:
        if detail["type"] == "too_short" and detail["loc"] in inside:
            continue  # the list counts as too short only because its entries are faulty
        place = detail["loc"][2 if key.item else 1 :]
        name = key.name + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
        value: object = detail["input"]
        match detail["type"]:
            case "missing":
                expected, value = "it to be set", None
            case "extra_forbidden":
                parent = _at(schema, detail["loc"][:-1])
                expected = one_of(cast("JsonObject", parent.get("properties", {})))
            case "value_error":
                expected = detail["msg"].removeprefix("Value error, ")
            case "string_too_long" | "too_long" as kind:
                most = detail.get("ctx", {})["max_length"]
                expected = f"at most {most} {'entries' if kind == 'too_long' else 'characters'}"
            case "too_short":
                expected = "at least one entry"
            case _:
                expected = _words(schema, _at(schema, detail["loc"]))
        found.append(Complaint(name, value, expected, place[0] if place and isinstance(place[0], int) else None))
    return found


def one_of(names: Iterable[str]) -> str:
    """Return the phrase that lists the names that are allowed."""
    return "one of " + ", ".join(names)


def _at(schema: JsonObject, path: tuple[int | str, ...]) -> JsonObject:
    """Return the part of a JSON schema that describes the value at `path`."""
    node = schema
    for step in path:
        node = _resolved(schema, node)
        inner = node.get("items") if isinstance(step, int) else _member(node, step)
        node = inner if isinstance(inner, dict) else node
    return _resolved(schema, node)


def _member(node: JsonObject, name: str) -> Json:
    properties = node.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    extra = node.get("additionalProperties")
    if isinstance(extra, dict):
        return extra
    patterns = node.get("patternProperties")
    return next(iter(patterns.values()), None) if isinstance(patterns, dict) else None


def _resolved(schema: JsonObject, node: JsonObject) -> JsonObject:
    """Return `node` with `$ref` followed. For an optional value, return the schema of the value."""
    choices = node.get("anyOf")
    if isinstance(choices, list):
        node = next(choice for choice in choices if isinstance(choice, dict) and choice.get("type") != "null")
    reference = node.get("$ref")
    definitions = schema.get("$defs")
    if isinstance(reference, str) and isinstance(definitions, dict):
        target = definitions[reference.rpartition("/")[2]]
        assert isinstance(target, dict)
        return target
    return node


def _words(schema: JsonObject, node: JsonObject) -> str:
    values = node.get("enum")
    if isinstance(values, list):
        return one_of([f'"{value}"' for value in values])
    match node.get("type"):
        case "integer":
            return "a whole number" + _range(node)
        case "number":
            return "a number" + _range(node)
        case "boolean":
            return "true or false"
        case "string":
            pattern = node.get("pattern")
            return f"text that matches {pattern}" if pattern else "text that is not empty"
        case "array":
            items = node.get("items")
            inner = _resolved(schema, items) if isinstance(items, dict) else {}
            return "a list of " + {"string": "texts", "object": "tables"}.get(str(inner.get("type")), "values")
        case _:
            return "a table"


def _range(node: JsonObject) -> str:
    """Return the phrase for a range. Every numeric setting has a maximum and a minimum, which may be exclusive."""
    above = node.get("exclusiveMinimum")
    start = f" above {above}, at most" if above is not None else f" from {node.get('minimum')} to"
    return f"{start} {node.get('maximum')}"


_MOVED = {
    "max_tool_retries": ("retry", "max_attempts"),
    "max_retry_duration_secs": ("retry", "budget_secs"),
}
"""Old keys of `[agent]`, each with its new table in `[tools]` and its new key there."""


def moved(
    where: str, table: Mapping[str, object], report: Callable[[str, str, object, str], ConfigError]
) -> Mapping[str, object]:
    """Return a file's table with old keys under their new names. A value under the new name takes precedence.

    where    the file, for the report
    report   is called for each old key
    """
    agent = _table(table.get("agent"))
    old = {name: value for name, value in agent.items() if name in _MOVED}
    if not old:
        return table
    tools = _table(table.get("tools"))
    if tools != table.get("tools", {}):
        return table  # not a table, which is reported elsewhere
    for name, value in old.items():
        section, key = _MOVED[name]
        new, there = f"tools.{section}.{key}", tools.get(section, {})
        known = _table(there)
        if known != there:
            continue
        taken = key in known
        tools = {**tools, section: {**known, key: known.get(key, value)}}
        told = f"the new name, {new}" + (", whose own value is used" if taken else ", which gets this value")
        report(where, f"agent.{name}", value, told)
        agent.pop(name)
    return {**table, "agent": agent, "tools": tools}


def _table(value: object) -> dict[str, object]:
    return dict(cast("dict[str, object]", value)) if isinstance(value, dict) else {}


_TOOLS, _READING, _BY_MODEL = "tools", "tools.file", "tools.by_model"
_EFFECTIVE_WHEN_SET = ("tools.autonomy_level", "acp.auto_approve")
"""Settings for which a default that the user wrote differs from no value: see `load.level_at_start`."""

_TABLES = (PROVIDERS, SERVERS)
"""Lists of tables. Their valid entries are used even if another entry is faulty."""

_FORBIDDING = (_READING, "tools.policy", "tools.authorization")
"""Tables in which an unknown name may be a misspelt ban. Each such name is reported as a problem of its own."""

_MOST_NAMED = 5
_MOST = 50
"""The most problems that are listed. A file may come from a stranger, and nobody reads more of them."""


class _UnknownName(NamedTuple):
    """A dotted name that is no setting, with its value and its table."""

    name: str
    value: object
    table: str


@frozen
class Layer:
    """The values of one source.

    values    typed values by dotted name; a tool's rules by its id
    origins   the file, variable or flag of each value
    partial   the names of values that were partly faulty; `values` holds the good part
    unclear   faults after which it is not known what the user forbids
    """

    values: dict[str, object] = field(default_factory=dict[str, object])
    origins: dict[str, str] = field(default_factory=dict[str, str])
    partial: set[str] = field(default_factory=set[str])
    unclear: list[ConfigError] = field(default_factory=list[ConfigError])

    def put(self, name: str, value: object, origin: str) -> None:
        self.values[name] = value
        self.origins[name] = origin

    def put_over(self, lower: "Layer") -> None:
        """Write this layer's values over those of a lower layer.

        The good part of a faulty list is appended to the lower list, and any other partly faulty value is dropped: an
        incomplete list must not replace a complete one.
        """
        for name, value in self.values.items():
            key, now = key_of(name), value
            if name in self.partial and key is not None:
                now = lower.values.get(name, key.default)
                if isinstance(value, tuple):
                    both = (*cast("tuple[object, ...]", now), *cast("tuple[object, ...]", value))
                    now = tuple(dict.fromkeys(both))
            lower.put(name, now, self.origins[name])
        lower.unclear.extend(self.unclear)

    def providers(self) -> tuple[ProviderSettings, ...]:
        return cast("tuple[ProviderSettings, ...]", self.values.get(PROVIDERS, ()))

    def take_servers(self) -> tuple[McpServerSettings, ...]:
        """Remove the MCP servers from this layer and return them."""
        self.origins.pop(SERVERS, None)
        return cast("tuple[McpServerSettings, ...]", self.values.pop(SERVERS, ()))

    def rules(self, name: str) -> tuple[PermissionRule, ...]:
        """Return the rules of this layer under a dotted name."""
        return cast("tuple[PermissionRule, ...]", self.values.get(name, ()))


class Reader:
    """Reads sources into layers and collects their problems. `secrets` never appear in a message.

    problems    the problems found so far, at most 50
    doubtful    the names of rule lists that are partly faulty in any source
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(secrets)
        self.problems: list[ConfigError] = []
        self.doubtful: set[str] = set()

    def table(self, where: str, table: Mapping[str, object]) -> Layer:
        """Return the layer of a parsed file."""
        layer, unknown = Layer(), list[_UnknownName]()
        for name, raw in self._flat(layer, where, moved(where, table, self.report), unknown):
            self.take(layer, key_of(name), raw, where)
        if len(unknown) > 1:
            named = ", ".join(one.name for one in unknown[:_MOST_NAMED])
            more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
            expected = "names of settings; `acp-agent config init` writes a file with all of them"
            self.report(where, f"{named}{more}", None, expected)
        for one in unknown if len(unknown) == 1 else ():
            self.report(where, one.name, one.value, one_of(_settings_in(one.table)))
        return layer

    def take(self, layer: Layer, key: SettingKey | None, raw: object, origin: str, *, parts: bool = True) -> None:
        """Put one raw value into a layer and report its faults.

        The good entries of a faulty list are taken if each entry forbids something, or if the entries are tables and
        `parts` is true. A fault after which it is not known what the user forbids is added to `layer.unclear`.
        """
        assert key is not None, origin
        try:
            _put(layer, key, raw, origin)
        except ValidationError as error:
            found = complaints(key, error)
            reported = [self.report(origin, each.key, each.value, each.expected) for each in found]
            if key.item:
                self.doubtful.add(key.setting)
            if _leaves_open(key):
                layer.unclear.extend(reported)
            bad = {complaint.entry for complaint in found}
            if key.project_may is ADDED:
                self._take_good_entries(layer, key, raw, origin)
            elif parts and isinstance(raw, list) and None not in bad and (key.name in _TABLES or key.item):
                entries = cast("list[object]", raw)
                _put(layer, key, [entry for at, entry in enumerate(entries) if at not in bad], origin)
            elif key.name in _EFFECTIVE_WHEN_SET:  # the user tried to set it, so the default counts as set
                layer.put(key.name, key.default, f"{origin}, not understood")
                layer.partial.add(key.name)

    def _take_good_entries(self, layer: Layer, key: SettingKey, raw: object, origin: str) -> None:
        """Take the valid entries of a list in which every entry forbids something. A single text is one entry."""
        entries = cast("list[object]", raw) if isinstance(raw, list) else [raw]
        good: list[object] = []
        for entry in entries:
            with suppress(ValidationError):
                good += cast("tuple[object, ...]", key.read([entry]))
        layer.put(key.name, tuple(good), origin)
        layer.partial.add(key.name)

    def report(
        self, where: str, name: str, value: object, expected: str, kind: type[ConfigError] = ConfigError
    ) -> ConfigError:
        """Add a problem with the value of a dotted name and return it. The message shows the value without secrets."""
        if len(self.problems) >= _MOST:  # the problem is not listed, so its value need not be formatted
            return kind(where, one_line(name), "", expected)
        problem = kind(where, one_line(name), shown(name.rpartition(".")[2], value, self._secrets), expected)
        self.problems.append(problem)
        return problem

    def _flat(
        self, layer: Layer, where: str, table: Mapping[str, object], unknown: list["_UnknownName"], prefix: str = ""
    ) -> Iterator[tuple[str, object]]:
        """Yield the values by dotted name. Add unknown names to `unknown`, and possible misspelt bans to `unclear`."""
        tables = sections()
        for name, value in table.items():
            dotted = f"{prefix}.{name}" if prefix else name
            if "." not in name and dotted != RULES and key_of(dotted):
                yield dotted, value
            elif prefix == RULES:
                self.report(where, dotted, value, "a tool's name in front of its rules")
            elif "." in name or (dotted != RULES and dotted not in tables):
                if prefix not in _FORBIDDING:
                    unknown.append(_UnknownName(dotted, value, prefix))
                    continue
                problem = self.report(where, dotted, value, one_of(_settings_in(prefix)))
                if prefix == _READING:  # a misspelt deny_read, perhaps
                    layer.unclear.append(problem)
            elif isinstance(value, dict):
                yield from self._flat(layer, where, cast("dict[str, object]", value), unknown, dotted)
            else:
                problem = self.report(where, dotted, value, "a table")
                if dotted.partition(".")[0] == _TOOLS:  # such as [[tools.shell]], which loses all settings in it
                    layer.unclear.append(problem)


@cache
def _settings_in(table: str) -> list[str]:
    """Return the names of the settings and tables that a table may contain."""
    names = (name.rpartition(".") for name in (*sections(), *keys()) if name)
    return [last for parent, _, last in names if parent == table]


def _put(layer: Layer, key: SettingKey, raw: object, origin: str) -> None:
    """Validate a value and put it into a layer. Raises ValidationError."""
    value = key.read(raw)
    if key.item:  # rules are appended to those that this source has under another of the tool's names
        value = (*layer.rules(key.setting), *cast("tuple[PermissionRule, ...]", value))
        before = layer.origins.get(key.setting, origin)
        origin = origin if before == origin else f"{before} and {origin}"
    layer.put(key.setting, value, origin)


def _leaves_open(key: SettingKey) -> bool:
    """Return True if dropping a faulty value of this key could lift a ban of the user.

    Such keys say what may not be read, list all that is allowed (an empty list allows everything), or choose other
    tools for some models.
    """
    of_reading = key.name.startswith(f"{_READING}.") and key.project_may is not INSIDE
    return of_reading or key.project_may is NARROWER or key.name == _BY_MODEL
