"""Retries, the utility gate, phases and hallucination detection: defaults, what is refused, what a project may do."""

import pytest
from pydantic import ValidationError

from acp_agent.config.keys import SettingKey
from acp_agent.config.layers import Reader, moved
from acp_agent.config.limits_settings import (
    HallucinationDetection,
    PhaseSettings,
    RetrySettings,
    UtilitySettings,
)
from acp_agent.config.rules import PolicyRuleSettings
from acp_agent.config.section import Section
from acp_agent.core.errors import ConfigError
from acp_agent.core.phase import Phase


class Hung(Section):
    """As ToolSettings and AgentSettings hold them."""

    retry: RetrySettings = RetrySettings()
    utility: UtilitySettings = UtilitySettings()
    phases: PhaseSettings = PhaseSettings()
    hallucination_detection: HallucinationDetection = False


def test_only_retries_are_on_when_nobody_sets_anything():
    settings = Hung()
    assert settings.retry == RetrySettings(
        max_attempts=2, base_ms=500, max_ms=5000, budget_secs=30, parameter_reformat_provider=""
    )
    assert settings.utility == UtilitySettings(enabled=False, threshold=0.0)
    assert not settings.phases.enabled
    assert not settings.hallucination_detection


@pytest.mark.parametrize(
    "table",
    [
        {"retry": {"max_attempts": -1}},
        {"retry": {"max_attempts": 11}},
        {"retry": {"max_attempts": 1.5}},
        {"retry": {"base_ms": -1}},
        {"retry": {"max_ms": -1}},
        {"retry": {"budget_secs": -1}},
        {"retry": {"budget_secs": float("nan")}},
        {"retry": {"budget_secs": float("inf")}},
        {"retry": {"parameter_reformat_provider": "ollama"}},
        {"retry": {"parameter_reformat_provider": ":qwen"}},
        {"utility": {"threshold": float("nan")}},
        {"utility": {"threshold": float("-inf")}},
        {"utility": {"threshold": 2}},
        {"utility": {"exempt_tools": [""]}},
        {"phases": {"enabled": "yes"}},
        {"phases": {"planner": True}},
        {"hallucination_detection": 1},
    ],
)
def test_what_cannot_be_meant_is_refused(table):
    with pytest.raises(ValidationError):
        Hung.model_validate(table)


@pytest.mark.parametrize(
    ("section", "field", "user", "project", "value"),
    [
        (RetrySettings, "max_attempts", 2, 0, 0),
        (RetrySettings, "max_attempts", 2, 5, 2),
        (RetrySettings, "budget_secs", 30.0, 5.0, 5.0),
        (RetrySettings, "budget_secs", 30.0, 60.0, 30.0),
        (UtilitySettings, "enabled", False, True, True),
        (UtilitySettings, "enabled", True, False, True),
        (UtilitySettings, "threshold", 0.1, 0.3, 0.3),
        (UtilitySettings, "threshold", 0.1, 0.0, 0.1),
        (PhaseSettings, "enabled", False, True, False),
        (PhaseSettings, "enabled", True, False, False),
        (Hung, "hallucination_detection", False, True, True),
        (Hung, "hallucination_detection", True, False, True),
    ],
)
def test_a_project_may_only_tighten(section, field, user, project, value):
    may = SettingKey(field, section, field).project_may
    assert may is not None
    assert may.tighten(user, project).value == value


def test_a_project_exempts_no_further_tool():
    may = SettingKey("exempt_tools", UtilitySettings, "exempt_tools").project_may
    assert may is not None
    assert may.tighten(("read", "grep"), ("bash", "grep")).value == ("grep",)


@pytest.mark.parametrize("field", ["base_ms", "max_ms", "parameter_reformat_provider"])
def test_a_project_names_no_model_and_no_waits(field):
    assert SettingKey(field, RetrySettings, field).project_may is None


def test_a_policy_rule_may_name_phases():
    rule = PolicyRuleSettings.model_validate({"effect": "deny", "tool": "*", "phases": ["planner", "autonomous"]})
    assert rule.phases == (Phase.PLANNER, Phase.AUTONOMOUS)
    with pytest.raises(ValidationError):
        PolicyRuleSettings.model_validate({"effect": "deny", "tool": "*", "phases": ["later"]})


# ----------------------------------------------------------------------------------------------- moved keys


class Told:
    def __init__(self) -> None:
        self.reports: list[ConfigError] = []

    def __call__(self, where: str, name: str, value: object, expected: str) -> ConfigError:
        self.reports.append(ConfigError(where, name, str(value), expected))
        return self.reports[-1]


def test_the_two_old_keys_of_agent_count_under_their_new_names_and_are_told():
    told = Told()
    table = moved("c.toml", {"agent": {"max_tool_retries": 5, "max_retry_duration_secs": 9, "x": 1}, "llm": {}}, told)
    assert table == {"agent": {"x": 1}, "tools": {"retry": {"max_attempts": 5, "budget_secs": 9}}, "llm": {}}
    assert [str(each) for each in told.reports] == [
        "c.toml: agent.max_tool_retries = 5: expected the new name, tools.retry.max_attempts; it counts as that",
        "c.toml: agent.max_retry_duration_secs = 9: expected the new name, tools.retry.budget_secs; it counts as that",
    ]


def test_the_new_name_counts_where_both_are_there():
    told = Told()
    table = moved(
        "c", {"agent": {"max_tool_retries": 5}, "tools": {"enabled": True, "retry": {"max_attempts": 1}}}, told
    )
    assert table == {"agent": {}, "tools": {"enabled": True, "retry": {"max_attempts": 1}}}
    assert told.reports[0].expected == "the new name, tools.retry.max_attempts, whose value counts"


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"agent": {"max_tool_iterations": 3}},
        {"agent": "x"},
        {"agent": [{"max_tool_retries": 1}]},
        {"agent": {"max_tool_retries": 1}, "tools": "x"},
        {"agent": {"max_tool_retries": 1}, "tools": {"retry": 3}},
    ],
)
def test_everything_else_stays_as_it_is(table):
    told = Told()
    assert moved("c", table, told) == table
    assert not told.reports


def test_a_tables_caller_keeps_its_own():
    given = {"agent": {"max_tool_retries": 1}, "tools": {"retry": {"base_ms": 1}}}
    moved("c", given, Told())
    assert given == {"agent": {"max_tool_retries": 1}, "tools": {"retry": {"base_ms": 1}}}


def test_a_file_is_read_that_way():
    reader = Reader()
    layer = reader.table("c.toml", {"agent": {"max_tool_iterations": 3}})
    assert layer.values == {"agent.max_tool_iterations": 3}
    assert not reader.problems
    reader.table("c.toml", {"agent": {"max_tool_retries": 3}})
    assert reader.problems[0].key == "agent.max_tool_retries"
