"""The limits: what they are when nobody sets them, what is refused, and what a project may do to them."""

import pytest
from pydantic import ValidationError

from acp_agent.config.keys import SettingKey
from acp_agent.config.limits_settings import AnomalySettings, MaxToolCalls, RateLimitSettings, VerifierSettings
from acp_agent.config.section import Section


class Hung(Section):
    """As ToolSettings holds them."""

    max_tool_calls_per_session: MaxToolCalls = None
    rate_limit: RateLimitSettings = RateLimitSettings()
    anomaly: AnomalySettings = AnomalySettings()
    verifiers: VerifierSettings = VerifierSettings()


def test_nothing_is_limited_and_all_but_grounding_is_watched_when_nobody_sets_anything():
    settings = Hung()
    assert settings.max_tool_calls_per_session is None
    assert settings.rate_limit.calls_per_hour == 0
    assert settings.anomaly == AnomalySettings(enabled=True, window_size=20, failure_threshold=0.7, auto_block=True)
    assert settings.verifiers == VerifierSettings(destructive=True, injection=True, url_grounding=False, firewall=True)


@pytest.mark.parametrize(
    "table",
    [
        {"max_tool_calls_per_session": 0},
        {"max_tool_calls_per_session": -1},
        {"max_tool_calls_per_session": True},
        {"max_tool_calls_per_session": "50"},
        {"rate_limit": {"calls_per_hour": -1}},
        {"rate_limit": {"calls_per_hour": 1.5}},
        {"rate_limit": {"per_hour": 1}},
        {"anomaly": {"window_size": 0}},
        {"anomaly": {"window_size": 10**9}},
        {"anomaly": {"failure_threshold": float("nan")}},
        {"anomaly": {"failure_threshold": float("inf")}},
        {"anomaly": {"failure_threshold": -0.1}},
        {"anomaly": {"failure_threshold": 0}},
        {"anomaly": {"failure_threshold": 1}},  # no rate is above it: that is enabled = false
        {"anomaly": {"failure_threshold": 70}},
        {"anomaly": {"auto_block": "yes"}},
        {"verifiers": {"firewal": False}},
    ],
)
def test_what_cannot_be_meant_is_refused(table):
    with pytest.raises(ValidationError):
        Hung.model_validate(table)


@pytest.mark.parametrize(
    ("section", "field", "user", "project", "value"),
    [
        (Hung, "max_tool_calls_per_session", None, 50, 50),
        (Hung, "max_tool_calls_per_session", 50, None, 50),
        (Hung, "max_tool_calls_per_session", 50, 100, 50),
        (RateLimitSettings, "calls_per_hour", 0, 10, 10),
        (RateLimitSettings, "calls_per_hour", 10, 0, 10),
        (RateLimitSettings, "calls_per_hour", 10, 20, 10),
        (AnomalySettings, "enabled", True, False, True),
        (AnomalySettings, "enabled", False, True, True),
        (AnomalySettings, "auto_block", True, False, True),
        (AnomalySettings, "failure_threshold", 0.7, 0.9, 0.7),
        (AnomalySettings, "failure_threshold", 0.7, 0.5, 0.5),
        *((VerifierSettings, name, True, False, True) for name in VerifierSettings.model_fields),
        *((VerifierSettings, name, False, True, True) for name in VerifierSettings.model_fields),
    ],
)
def test_a_project_only_tightens(section, field, user, project, value):
    mark = SettingKey(field, section, field).project_may
    assert mark is not None
    tightened = mark.tighten(user, project)
    assert tightened.value == value
    assert bool(tightened.refused) == (value != project)


def test_the_size_of_the_window_is_the_users_alone():
    assert SettingKey("window_size", AnomalySettings, "window_size").project_may is None


@pytest.mark.parametrize("section", [Hung, RateLimitSettings, AnomalySettings, VerifierSettings])
def test_every_setting_is_described(section):
    for name, info in section.model_fields.items():
        described = info.description or ""
        is_table = isinstance(info.annotation, type) and issubclass(info.annotation, Section)
        assert is_table or described.endswith("."), name
