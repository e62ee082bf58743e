"""`[memory]`, titles and instructions."""

import pytest

from acp_agent.config.layers import SettingKey
from acp_agent.config.settings import (
    NOTE_FILES,
    AcpSettings,
    InstructionSettings,
    MemorySettings,
    SessionsSettings,
    TitleSource,
)
from acp_agent.shape import ValidationError, fields
from tests.rows import each_row

ALL = [
    (section, field)
    for section in (MemorySettings, SessionsSettings, InstructionSettings)
    for field, info in fields(section).items()
    if info.type is not SessionsSettings  # a table of its own
]


def test_both_are_on_when_nobody_sets_anything():
    assert MemorySettings() == MemorySettings(enabled=True, max_notes=1000, max_note_bytes=8192)
    assert InstructionSettings() == InstructionSettings(enabled=True, files=NOTE_FILES, max_chars=16_384)
    assert NOTE_FILES[:2] == ("AGENTS.md", "CLAUDE.md")


def test_the_default_names_are_names_that_may_be_set():
    assert InstructionSettings.model_validate({"files": list(NOTE_FILES)}).files == NOTE_FILES


@each_row(
    "section, table",
    [
        (MemorySettings, {"enabled": "yes"}),
        (MemorySettings, {"max_notes": 0}),
        (MemorySettings, {"max_notes": 10**6}),
        (MemorySettings, {"max_note_bytes": 1}),
        (MemorySettings, {"max_note_bytes": 10**9}),
        (MemorySettings, {"notes": 5}),
        (InstructionSettings, {"max_chars": -1}),
        (InstructionSettings, {"max_chars": 10**7}),
        (InstructionSettings, {"max_chars": 1.5}),
        (InstructionSettings, {"files": "AGENTS.md"}),
        (InstructionSettings, {"files": [f"{number}.md" for number in range(21)]}),
        *(
            (InstructionSettings, {"files": [name]})
            for name in ("", "/etc/passwd", "../AGENTS.md", "a/../../b", "~/x", "./a", "a//b", "a/", "a\0b", "a\nb", 5)
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(section, table):
    with pytest.raises(ValidationError):
        section.model_validate(table)


@each_row(
    "section, field, user, project, value",
    [
        (MemorySettings, "enabled", True, False, False),
        (MemorySettings, "enabled", False, True, False),
        (InstructionSettings, "enabled", True, False, False),
        (InstructionSettings, "enabled", False, True, False),
        (InstructionSettings, "max_chars", 1000, 10, 10),
        (InstructionSettings, "max_chars", 1000, 2000, 1000),
        (InstructionSettings, "files", ("a", "b"), ("b",), ("b",)),
        (InstructionSettings, "files", ("a", "b"), ("b", ".env"), ("b",)),
    ],
)
def test_a_project_only_tightens(section, field, user, project, value):
    mark = SettingKey(field, section, field).project_may
    assert mark is not None
    assert mark.tighten(user, project).value == value


@pytest.mark.parametrize(
    ("section", "field"),
    [
        (MemorySettings, "max_notes"),
        (MemorySettings, "max_note_bytes"),
        *((SessionsSettings, field) for field in fields(SessionsSettings)),
    ],
)
def test_what_all_projects_share_is_the_users_alone(section, field):
    assert SettingKey(field, section, field).project_may is None


@each_row("section, field", ALL)
def test_every_setting_is_described(section, field):
    assert (fields(section)[field].description or "").endswith(".")


def test_by_default_every_model_can_be_chosen_and_a_model_writes_titles() -> None:
    assert AcpSettings().available_models == ()
    assert SessionsSettings() == SessionsSettings(titles=TitleSource.MODEL, title_max_chars=60, title_provider="")


def test_models_are_named_with_their_provider() -> None:
    assert AcpSettings.model_validate({"available_models": ["ollama:qwen3:8b"]}).available_models
    for wrong in ("qwen3", ":m", "a: b"):
        with pytest.raises(ValidationError, match="PROVIDER:MODEL"):
            AcpSettings.model_validate({"available_models": [wrong]})
        with pytest.raises(ValidationError, match="PROVIDER:MODEL"):
            SessionsSettings(title_provider=wrong)
    with pytest.raises(ValidationError):
        SessionsSettings(title_max_chars=9)
