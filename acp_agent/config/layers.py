"""One source of settings at a time: what it says, checked key by key, and what is wrong with it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from pydantic import ValidationError

from acp_agent.config.expected import complaints, one_of
from acp_agent.config.keys import PROVIDERS, RULES, Key, key_of, keys, sections
from acp_agent.config.masking import one_line, shown
from acp_agent.config.provider_settings import ProviderSettings
from acp_agent.config.rules import PermissionRule
from acp_agent.core.errors import ConfigError

_MOST = 50
"""Problems that are listed. A file may come from a stranger, and nobody reads more."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source says.

    values   typed values by dotted name
    origins  where each comes from: a file, a variable, a flag
    """

    values: dict[str, object] = field(default_factory=dict[str, object])
    origins: dict[str, str] = field(default_factory=dict[str, str])

    def put(self, name: str, value: object, origin: str) -> None:
        """Set one value."""
        self.values[name] = value
        self.origins[name] = origin

    def providers(self) -> tuple[ProviderSettings, ...]:
        """The providers this layer names."""
        return cast("tuple[ProviderSettings, ...]", self.values.get(PROVIDERS, ()))

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
        layer = Layer()
        for name, raw in self._flat(where, table, ""):
            self.take(layer, key_of(name), raw, where)
        return layer

    def take(self, layer: Layer, key: Key | None, raw: object, origin: str, *, parts: bool = True) -> None:
        """Put one raw value into a layer and report what is wrong with it.

        Of a faulty list of tables the good ones are taken, unless `parts` is false.
        """
        assert key is not None, origin
        try:
            layer.put(key.name, key.read(raw), origin)
        except ValidationError as error:
            found = complaints(key, error)
            for complaint in found:
                self.report(origin, complaint.key, complaint.value, complaint.expected)
            if key.item:
                self.doubtful.add(key.name)
            bad = {complaint.index for complaint in found}
            if parts and isinstance(raw, list) and None not in bad and (key.name == PROVIDERS or key.item):
                entries = cast("list[object]", raw)
                layer.put(key.name, key.read([entry for at, entry in enumerate(entries) if at not in bad]), origin)

    def report(
        self, where: str, name: str, value: object, expected: str, kind: type[ConfigError] = ConfigError
    ) -> None:
        """Note a problem with the value of a dotted name; the value is shown without secrets."""
        if len(self.problems) < _MOST:
            text = shown(name.rpartition(".")[2], value, self._secrets)
            self.problems.append(kind(where, one_line(name), text, expected))

    def _flat(self, where: str, table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
        tables, known = sections(), keys()
        for name, value in table.items():
            dotted = f"{prefix}.{name}" if prefix else name
            if "." not in name and dotted != RULES and key_of(dotted):
                yield dotted, value
            elif prefix == RULES:
                self.report(where, dotted, value, "a tool's name in front of its rules")
            elif "." in name or (dotted != RULES and dotted not in tables):
                names = [other.rpartition(".") for other in (*tables, *known) if other]
                self.report(where, dotted, value, one_of([last for parent, _, last in names if parent == prefix]))
            elif isinstance(value, dict):
                yield from self._flat(where, cast("dict[str, object]", value), dotted)
            else:
                self.report(where, dotted, value, "a table")
