"""The names of all settings, which come from the models, and the validation of one value for one setting."""

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
    def info(self) -> FieldInfo:
        """The field of the model, with its description, default and marks."""
        return self.section.model_fields[self.field]

    @property
    def project_may(self) -> ProjectMay | None:
        """What a project's file may change in this setting, or None if it may change nothing."""
        return next((mark for mark in self.info.metadata if isinstance(mark, ProjectMay)), None)

    @property
    def default(self) -> object:
        """The value in force if no source sets it."""
        return () if self.item else self.info.get_default(call_default_factory=True, validated_data={})

    def read(self, raw: object) -> object:
        """Return the typed value of a raw one from a file or a variable. Raises pydantic.ValidationError."""
        model = self.section.model_validate({self.field: {self.item: raw} if self.item else raw})
        value: object = getattr(model, self.field)
        return cast("dict[str, object]", value)[self.item] if self.item else value


@cache
def sections(model: type[Section] = Settings, prefix: str = "") -> Mapping[str, type[Section]]:
    """Return every table by its dotted name. The first is the whole configuration, with an empty name."""
    found = {prefix: model}
    for field, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            found |= sections(info.annotation, f"{prefix}.{field}" if prefix else field)
    return found


@cache
def keys() -> Mapping[str, SettingKey]:
    """Return every setting by its dotted name. `tools.permissions` is one setting."""
    tables = sections()
    dotted = (
        SettingKey(f"{table}.{field}" if table else field, model, field)
        for table, model in tables.items()
        for field in model.model_fields
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
