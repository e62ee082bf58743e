"""The settings that select tools and treat their output."""

import pytest

from acp_agent.config.section import ProjectMay, Section
from acp_agent.config.tool_settings import (
    DenyGroup,
    ModelTools,
    Profile,
    ProtectionSettings,
    ShellSettings,
    ToolSettings,
)
from acp_agent.shape import ValidationError, fields
from tests.rows import each_row
from tests.unit.config.conftest import told


def may(section: type[Section], field: str) -> ProjectMay | None:
    return next((mark for mark in fields(section)[field].marks if isinstance(mark, ProjectMay)), None)


def after(section: type[Section], field: str, user: object, project: object) -> object:
    mark = may(section, field)
    assert mark is not None
    return mark.tighten(user, project).value


def test_everything_is_there_by_default():
    settings = ToolSettings()
    assert settings.profile is Profile.FULL
    assert (settings.allow, settings.deny, settings.also_allow, settings.by_model) == ((), (), (), {})


def test_a_file_is_read():
    settings = ToolSettings.model_validate(
        {
            "profile": "coding",
            "allow": ["group:fs"],
            "deny": ["bash"],
            "also_allow": ["mcp:git"],
            "by_model": {"ollama:*": {"profile": "minimal", "deny": ["grep"]}, "a:b": {"allow": []}},
        }
    )
    assert settings.profile is Profile.CODING
    assert [*settings.by_model] == ["ollama:*", "a:b"]
    assert settings.by_model["ollama:*"] == ModelTools(profile=Profile.MINIMAL, deny=("grep",))
    assert settings.by_model["a:b"].allow == ()
    assert settings.by_model["a:b"].profile is None


@each_row(
    "table",
    [
        {"profile": "messaging"},
        {"allow": "read"},
        {"deny": [""]},
        {"deny": [1]},
        {"by_model": {"": {}}},
        {"by_model": {"a": {"profil": "full"}}},
        {"by_model": {"a": "minimal"}},
        {"alsoAllow": ["read"]},
    ],
)
def test_what_does_not_fit_is_refused(table: dict[str, object]):
    with pytest.raises(ValidationError):
        ToolSettings.model_validate(table)


def test_a_project_may_only_take_tools_away():
    assert after(ToolSettings, "profile", Profile.CODING, Profile.FULL) is Profile.CODING
    assert after(ToolSettings, "profile", Profile.CODING, Profile.MINIMAL) is Profile.MINIMAL
    assert after(ToolSettings, "deny", ("bash",), ("read",)) == ("bash", "read")
    assert after(ToolSettings, "allow", (), ("read",)) == ("read",)
    assert after(ToolSettings, "allow", ("read",), ("read", "bash")) == ("read",)
    assert after(ToolSettings, "allow", ("read",), ("bash",)) == ("read",)
    assert after(ToolSettings, "also_allow", ("mcp:a", "mcp:b"), ("mcp:a", "bash")) == ("mcp:a",)
    assert may(ToolSettings, "by_model") is None


def test_a_project_may_only_protect_more():
    assert after(ProtectionSettings, "protected_paths", ("a",), ("b",)) == ("a", "b")
    assert may(ProtectionSettings, "unprotected_paths") is None
    assert after(ShellSettings, "blocked_groups", (DenyGroup.EVAL,), (DenyGroup.DISK,)) == (
        DenyGroup.EVAL,
        DenyGroup.DISK,
    )


def test_groups_are_read_by_name():
    assert ShellSettings.model_validate({"blocked_groups": ["eval", "env_dump"]}).blocked_groups == (
        DenyGroup.EVAL,
        DenyGroup.ENV_DUMP,
    )
    assert ShellSettings.model_validate({"blocked_groups": []}).blocked_groups == ()
    with pytest.raises(ValidationError):
        ShellSettings.model_validate({"blocked_groups": ["everything"]})


def test_the_defaults_are_those_of_the_requirements(loading):
    tools = loading().settings.tools

    overflow = tools.overflow
    assert (overflow.threshold, overflow.retention_days, overflow.summarize_output) == (50_000, 7, False)
    assert (overflow.max_overflow_bytes, overflow.max_conversation_bytes) == (10_485_760, 209_715_200)
    assert (tools.result_cache.enabled, tools.result_cache.ttl_secs) == (True, 300)
    assert (tools.filters.enabled, tools.filters.filters_path) == (True, None)
    assert (tools.filters.security.enabled, tools.filters.security.extra_patterns) == (True, ())


def test_an_empty_filters_path_is_an_unset_one(loading):
    loaded = loading("[tools.filters]\nfilters_path = ''")

    assert not loaded.problems
    assert loaded.settings.tools.filters.filters_path is None


def test_a_relative_filters_path_is_told_and_not_used(loading):
    loaded = loading("[tools.filters]\nfilters_path = 'mine.toml'")

    (problem,) = told(loaded)
    assert 'tools.filters.filters_path = "mine.toml": expected an absolute path' in problem
    assert loaded.settings.tools.filters.filters_path is None


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ("filters.security.enabled = false", "tools.filters.security.enabled = false: expected true"),
        ("filters.security.extra_patterns = ['rm .*']", "expected it only in the user's own configuration"),
        ("filters.filters_path = '/evil.toml'", "expected it only in the user's own configuration"),
        ("overflow.retention_days = 1", "expected it only in the user's own configuration"),
        ("overflow.max_conversation_bytes = 1", "expected it only in the user's own configuration"),
        ("overflow.summarize_output = true", "tools.overflow.summarize_output = true: expected false"),
        ("overflow.threshold = 60_000", "tools.overflow.threshold = 60000: expected a smaller number"),
        ("result_cache.ttl_secs = 0", "tools.result_cache.ttl_secs = 0.0: expected a smaller number (0 is no limit)"),
    ],
)
def test_a_project_can_hide_nothing_and_keep_nothing_longer(loading, wish, message):
    loaded = loading("", f"tools.{wish}")

    (problem,) = told(loaded)
    assert message in problem
    assert loaded.settings.tools == loading("").settings.tools


def test_a_project_can_switch_conveniences_off(loading):
    loaded = loading(
        "tools.overflow.summarize_output = true\ntools.filters.security.enabled = false",
        "tools.overflow.summarize_output = false\ntools.result_cache.enabled = false\ntools.filters.enabled = false\n"
        "tools.filters.security.enabled = true",
    )

    tools = loaded.settings.tools
    assert not loaded.problems
    assert [tools.overflow.summarize_output, tools.result_cache.enabled, tools.filters.enabled] == [False] * 3
    assert tools.filters.security.enabled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("overflow.threshold = 999", "a whole number from 1000 to 10000000"),
        ("overflow.retention_days = 0", "a whole number from 1 to 3650"),
        ("overflow.max_overflow_bytes = -1", "a whole number from 0 to 1000000000"),
        ("result_cache.ttl_secs = -1", "a number from 0 to 86400"),
        ("filters.security.extra_patterns = ['']", "text that is not empty"),
        ("filters.security.enabled = 'off'", "true or false"),
        ("filters.rules = []", "one of "),
    ],
)
def test_what_makes_no_sense_is_told_with_what_was_expected(loading, text, expected):
    (problem,) = told(loading(f"tools.{text}"))

    assert f"expected {expected}" in problem
