"""One source of settings at a time: what it says, checked key by key, and what is wrong with it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from acp_agent.config.keys import PROVIDERS, RULES, Key, key_of, keys, sections
from acp_agent.config.masking import one_line, shown
from acp_agent.config.mcp_settings import SERVERS, McpServerSettings
from acp_agent.config.provider_settings import ProviderSettings
from acp_agent.config.rules import PermissionRule
from acp_agent.config.section import ADDED, INSIDE, NARROWER
from acp_agent.core.errors import ConfigError
from acp_agent.core.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing wrong: the key's dotted name with list places, the value there, what was expected.

    index   the place in the list the value sits in, None when it is not about one place
    """

    key: str
    value: object
    expected: str
    index: int | None = None


def complaints(key: Key, error: ValidationError) -> list[Complaint]:
    """Everything pydantic found wrong with a value for `key`."""
    schema = cast("JsonObject", key.section.model_json_schema())
    return [_complaint(key, schema, detail) for detail in error.errors(include_url=False)]


def _complaint(key: Key, schema: JsonObject, detail: ErrorDetails) -> Complaint:
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
        case _:
            expected = _words(schema, _at(schema, detail["loc"]))
    return Complaint(name, value, expected, place[0] if place and isinstance(place[0], int) else None)


def one_of(names: JsonObject | list[str]) -> str:
    """The words for a closed set of names."""
    return "one of " + ", ".join(names)


def _at(schema: JsonObject, path: tuple[int | str, ...]) -> JsonObject:
    """The part of a JSON schema that describes the value at `path`."""
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
    """`node` with `$ref` followed and an optional value reduced to the value."""
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
    """Every number of ours has an upper limit; the lower one may be left out of the range itself."""
    above = node.get("exclusiveMinimum")
    start = f" above {above}, at most" if above is not None else f" from {node.get('minimum')} to"
    return f"{start} {node.get('maximum')}"


_MOVED = {
    "max_tool_retries": ("retry", "max_attempts"),
    "max_retry_duration_secs": ("retry", "budget_secs"),
}
"""Key of `[agent]` to table of `[tools]` and key in it."""


def moved(
    where: str, table: Mapping[str, object], report: Callable[[str, str, object, str], ConfigError]
) -> Mapping[str, object]:
    """A file's table with old keys under their new names; `report` is told of each. What has the new name counts.

    where   the file, for the report
    """
    agent = _table(table.get("agent"))
    old = {name: value for name, value in agent.items() if name in _MOVED}
    if not old:
        return table
    tools = _table(table.get("tools"))
    if tools != table.get("tools", {}):
        return table  # no table: said elsewhere
    for name, value in old.items():
        section, key = _MOVED[name]
        new, there = f"tools.{section}.{key}", tools.get(section, {})
        known = _table(there)
        if known != there:
            continue
        taken = key in known
        tools = {**tools, section: {**known, key: known.get(key, value)}}
        told = f"the new name, {new}" + (", whose value counts" if taken else "; it counts as that")
        report(where, f"agent.{name}", value, told)
        agent.pop(name)
    return {**table, "agent": agent, "tools": tools}


def _table(value: object) -> dict[str, object]:
    return dict(cast("dict[str, object]", value)) if isinstance(value, dict) else {}


_TOOLS, _READING, _BY_MODEL = "tools", "tools.file", "tools.by_model"
_SAID = ("tools.autonomy_level", "acp.auto_approve")
"""Settings that do something by being set at all (config/conduct.py)."""

_TABLES = (PROVIDERS, SERVERS)
"""Lists of which one entry may be wrong and the others count."""

_FORBIDDING = (_READING, "tools.policy", "tools.authorization")
"""Tables in which a name that is no setting may be a misspelt ban: whoever judges by them looks for the problem."""

_MOST_NAMED = 5
_MOST = 50
"""Problems that are listed. A file may come from a stranger, and nobody reads more."""


class _Strange(NamedTuple):
    """A dotted name that is no setting, its value, and the table it stands in."""

    name: str
    value: object
    table: str


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source says.

    values    typed values by dotted name; a tool's rules by its id
    origins   where each comes from: a file, a variable, a flag
    partial   names of values that could not be understood whole; what could is in `values`
    unclear   mistakes that leave open what is forbidden
    """

    values: dict[str, object] = field(default_factory=dict[str, object])
    origins: dict[str, str] = field(default_factory=dict[str, str])
    partial: set[str] = field(default_factory=set[str])
    unclear: list[ConfigError] = field(default_factory=list[ConfigError])

    def put(self, name: str, value: object, origin: str) -> None:
        """Set one value."""
        self.values[name] = value
        self.origins[name] = origin

    def join(self, name: str, rules: tuple[PermissionRule, ...], origin: str) -> None:
        """Put rules behind those this source has for the same tool under another of its names."""
        before = self.origins.get(name, origin)
        self.put(name, (*self.rules(name), *rules), origin if before == origin else f"{before} and {origin}")

    def put_over(self, lower: "Layer") -> None:
        """Let this layer's values count instead of those of a lower one.

        What is left of a faulty value joins or gives way to what was there: half a list must not stand in for a whole.
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
        """The providers this layer names."""
        return cast("tuple[ProviderSettings, ...]", self.values.get(PROVIDERS, ()))

    def take_servers(self) -> tuple[McpServerSettings, ...]:
        """The MCP servers this layer names, taken out of it."""
        self.origins.pop(SERVERS, None)
        return cast("tuple[McpServerSettings, ...]", self.values.pop(SERVERS, ()))

    def rules(self, name: str) -> tuple[PermissionRule, ...]:
        """The rules this layer has under a dotted name."""
        return cast("tuple[PermissionRule, ...]", self.values.get(name, ()))


class Reader:
    """Turns what sources say into layers and collects what is wrong. `secrets` never show in a message.

    doubtful    names of rule lists of which a part could not be understood, in any source
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(secrets)
        self.problems: list[ConfigError] = []
        self.doubtful: set[str] = set()

    def table(self, where: str, table: Mapping[str, object]) -> Layer:
        """The layer of a parsed file."""
        layer, strange = Layer(), list[_Strange]()
        for name, raw in self._flat(layer, where, moved(where, table, self.report), strange):
            self.take(layer, key_of(name), raw, where)
        if len(strange) > 1:
            named = ", ".join(one.name for one in strange[:_MOST_NAMED])
            more = f" and {len(strange) - _MOST_NAMED} more" if len(strange) > _MOST_NAMED else ""
            expected = "names of settings; `acp-agent config init` writes a file with all of them"
            self.report(where, f"{named}{more}", None, expected)
        for one in strange if len(strange) == 1 else ():
            self.report(where, one.name, one.value, one_of(_settings_in(one.table)))
        return layer

    def take(self, layer: Layer, key: Key | None, raw: object, origin: str, *, parts: bool = True) -> None:
        """Put one raw value into a layer and report what is wrong with it.

        Of a faulty list the good entries are taken: of tables, unless `parts` is false, and where each entry forbids
        something. Where a fault leaves open what is forbidden, `layer.unclear` gets it.
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
            bad = {complaint.index for complaint in found}
            if key.project_may is ADDED:
                self._take_good_entries(layer, key, raw, origin)
            elif parts and isinstance(raw, list) and None not in bad and (key.name in _TABLES or key.item):
                entries = cast("list[object]", raw)
                _put(layer, key, [entry for at, entry in enumerate(entries) if at not in bad], origin)
            elif key.name in _SAID:  # a wrong word is a word all the same: the default counts as chosen
                layer.put(key.name, key.default, f"{origin}, not understood")
                layer.partial.add(key.name)

    def _take_good_entries(self, layer: Layer, key: Key, raw: object, origin: str) -> None:
        """What can be understood of a list in which every entry forbids something; a lone text is one entry."""
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
        """Note a problem with the value of a dotted name; the value is shown without secrets."""
        if len(self.problems) >= _MOST:  # nobody reads it, and to show a value takes time
            return kind(where, one_line(name), "", expected)
        problem = kind(where, one_line(name), shown(name.rpartition(".")[2], value, self._secrets), expected)
        self.problems.append(problem)
        return problem

    def _flat(
        self, layer: Layer, where: str, table: Mapping[str, object], strange: list["_Strange"], prefix: str = ""
    ) -> Iterator[tuple[str, object]]:
        """The values by dotted name. Names of no setting go to `strange`, unless they may have forbidden something."""
        tables = sections()
        for name, value in table.items():
            dotted = f"{prefix}.{name}" if prefix else name
            if "." not in name and dotted != RULES and key_of(dotted):
                yield dotted, value
            elif prefix == RULES:
                self.report(where, dotted, value, "a tool's name in front of its rules")
            elif "." in name or (dotted != RULES and dotted not in tables):
                if prefix not in _FORBIDDING:
                    strange.append(_Strange(dotted, value, prefix))
                    continue
                problem = self.report(where, dotted, value, one_of(_settings_in(prefix)))
                if prefix == _READING:  # a misspelt deny_read, perhaps
                    layer.unclear.append(problem)
            elif isinstance(value, dict):
                yield from self._flat(layer, where, cast("dict[str, object]", value), strange, dotted)
            else:
                problem = self.report(where, dotted, value, "a table")
                if dotted.partition(".")[0] == _TOOLS:  # [[tools.shell]], say: with all that stands in it
                    layer.unclear.append(problem)


@cache
def _settings_in(table: str) -> list[str]:
    """The settings and tables that may stand in a table."""
    names = (name.rpartition(".") for name in (*sections(), *keys()) if name)
    return [last for parent, _, last in names if parent == table]


def _put(layer: Layer, key: Key, raw: object, origin: str) -> None:
    """Put the value of a key into a layer. Raises pydantic.ValidationError."""
    value = key.read(raw)
    if key.item:
        layer.join(key.setting, cast("tuple[PermissionRule, ...]", value), origin)
    else:
        layer.put(key.name, value, origin)


def _leaves_open(key: Key) -> bool:
    """Whether nobody can tell what is forbidden once a value of this key is left out.

    What may not be read; the lists of all that is allowed, which allow everything when empty; another choice of tools
    for some models.
    """
    of_reading = key.name.startswith(f"{_READING}.") and key.project_may is not INSIDE
    return of_reading or key.project_may is NARROWER or key.name == _BY_MODEL
