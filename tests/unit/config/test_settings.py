"""The settings of long conversations, questions and language servers."""

import pytest

from acp_agent.config.section import OFF, SMALLER, ProjectMay, Tightened
from acp_agent.config.settings import AcpSettings, AgentSettings, LspSettings
from acp_agent.shape import ValidationError, fields
from tests.unit.config.conftest import Load, told


def test_the_defaults_are_those_of_the_requirements() -> None:
    settings = AgentSettings()
    assert (settings.compaction_soft, settings.compaction_hard) == (0.6, 0.9)
    assert settings.compaction
    assert not settings.compress_context
    assert settings.compress_provider == ""


@pytest.mark.parametrize(
    ("user", "variable", "message"),
    [
        ("compaction_soft = 0.8\ncompaction_hard = 0.8", "", "~/config.toml: agent.compaction_soft = 0.8"),
        ("compaction_soft = 0.9\ncompaction_hard = 0.85", "", "~/config.toml: agent.compaction_soft = 0.9"),
        ("compaction_hard = 0.5", "", "~/config.toml: agent.compaction_hard = 0.5"),
        ("compaction_soft = 0.8", "0.7", "~/config.toml: agent.compaction_soft = 0.8"),
    ],
)
def test_thresholds_that_cross_are_told_and_the_defaults_hold(
    loading: Load, user: str, variable: str, message: str
) -> None:
    environ = {"ACP_AGENT_AGENT__COMPACTION_HARD": variable} if variable else {}
    loaded = loading(f"[agent]\nmax_tool_iterations = 7\n{user}\n", environ=environ)
    (problem,) = told(loaded)
    assert problem.startswith(f"{message}: expected compaction_soft below compaction_hard")
    agent = loaded.settings.agent
    assert (agent.compaction_soft, agent.compaction_hard, agent.max_tool_iterations) == (0.6, 0.9, 7)
    assert loaded.origins.keys().isdisjoint(("agent.compaction_soft", "agent.compaction_hard"))


@pytest.mark.parametrize(("soft", "hard"), [(0.3, 0.5), (0.9, 0.95)])
def test_both_thresholds_may_lie_on_one_side_of_a_default(loading: Load, soft: float, hard: float) -> None:
    loaded = loading(f"[agent]\ncompaction_soft = {soft}\ncompaction_hard = {hard}\n")
    assert not loaded.problems
    assert (loaded.settings.agent.compaction_soft, loaded.settings.agent.compaction_hard) == (soft, hard)


@pytest.mark.parametrize(
    "wrong",
    [{"compaction_soft": 0.0}, {"compaction_hard": 1.0}, {"compaction_soft": float("nan")}, {"compaction_hard": "0.9"}],
)
def test_thresholds_are_parts_of_the_context(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        AgentSettings.model_validate(wrong)


@pytest.mark.parametrize("wrong", ["ollama", ":x", "a b:c"])
def test_the_model_for_summaries_is_named_with_its_provider(wrong: str) -> None:
    with pytest.raises(ValidationError, match="PROVIDER:MODEL"):
        AgentSettings(compress_provider=wrong)
    assert AgentSettings(compress_provider="ollama:qwen3:8b").compress_provider == "ollama:qwen3:8b"


def test_questions_are_on_and_stand_as_long_as_the_turn() -> None:
    assert AcpSettings() == AcpSettings(elicitation=True, elicitation_timeout_secs=0)


@pytest.mark.parametrize("table", [{"elicitation": "yes"}, {"elicitation_timeout_secs": -1}, {"elicit": True}])
def test_what_is_no_setting_is_refused(table: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        AcpSettings.model_validate(table)


def test_a_project_may_only_switch_them_off() -> None:
    marks = {
        name: [each for each in field.marks if isinstance(each, ProjectMay)]
        for name, field in fields(AcpSettings).items()
    }
    (mark,) = marks["elicitation"]
    assert mark.tighten(True, False) == Tightened(False)
    assert mark.tighten(False, True) == Tightened(False, (True,))
    assert marks["elicitation_timeout_secs"] == []  # the user's alone


def test_everything_is_on_and_bounded_when_nobody_sets_anything():
    assert LspSettings().model_dump() == {
        "enabled": True,
        "auto_diagnostics_on_save": True,
        "max_diagnostics_per_file": 20,
        "max_diagnostic_files": 5,
        "max_references": 100,
        "max_workspace_symbols": 50,
        "request_timeout_secs": 10.0,
    }


def test_a_project_may_only_tighten():
    for name, field in fields(LspSettings).items():
        assert (OFF if field.type is bool else SMALLER) in field.marks, name


@pytest.mark.parametrize(
    "table", [{"max_references": 0}, {"request_timeout_secs": 0}, {"request_timeout_secs": float("inf")}, {"on": True}]
)
def test_what_cannot_be_meant_is_refused(table):
    with pytest.raises(ValidationError):
        LspSettings.model_validate(table)
