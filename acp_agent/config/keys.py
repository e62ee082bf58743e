"""The names of all settings, found by walking the models, and the reading of one value for one of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import cast

from pydantic.fields import FieldInfo

from acp_agent.config.rules import TOOL_NAME
from acp_agent.config.section import ProjectMay, Section
from acp_agent.config.settings import Settings
from acp_agent.core.aliases import tool_id

RULES = "tools.permissions"
PROVIDERS = "llm.providers"


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: its dotted name as it was written, the model and field that hold it.

    item    the entry of a field that maps names to values (`bash` of `tools.permissions`), else ""
    """

    name: str
    section: type[Section]
    field: str
    item: str = ""

    @property
    def setting(self) -> str:
        """The dotted name its value is kept under: a tool has one list of rules, whatever its name in a source."""
        return f"{RULES}.{tool_id(self.item)}" if self.item else self.name

    @property
    def info(self) -> FieldInfo:
        """The field: its description, default and marks."""
        return self.section.model_fields[self.field]

    @property
    def project_may(self) -> ProjectMay | None:
        """What a project's file may do to it; None for nothing."""
        return next((mark for mark in self.info.metadata if isinstance(mark, ProjectMay)), None)

    @property
    def default(self) -> object:
        """The value in force when nobody sets it."""
        return () if self.item else self.info.get_default(call_default_factory=True, validated_data={})

    def read(self, raw: object) -> object:
        """The typed value of what a file or variable says. Raises pydantic.ValidationError."""
        model = self.section.model_validate({self.field: {self.item: raw} if self.item else raw})
        value: object = getattr(model, self.field)
        return cast("dict[str, object]", value)[self.item] if self.item else value


@cache
def sections(model: type[Section] = Settings, prefix: str = "") -> Mapping[str, type[Section]]:
    """Every table by dotted name, the unnamed top one first."""
    found = {prefix: model}
    for field, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            found |= sections(info.annotation, f"{prefix}.{field}" if prefix else field)
    return found


@cache
def keys() -> Mapping[str, Key]:
    """Every setting by dotted name, `tools.permissions` as one."""
    tables = sections()
    dotted = (
        Key(f"{table}.{field}" if table else field, model, field)
        for table, model in tables.items()
        for field in model.model_fields
    )
    return {key.name: key for key in dotted if key.name not in tables}


def key_of(name: str) -> Key | None:
    """The setting of a dotted name; `tools.permissions.bash` names the rules of one tool."""
    known = keys()
    if name in known:
        return known[name]
    table, _, tool = name.rpartition(".")
    named = table == RULES and re.fullmatch(TOOL_NAME, tool)
    return Key(name, known[RULES].section, known[RULES].field, item=tool) if named else None
