"""The tools that the model is shown: all are shown unless configured, and by which numbers."""

import json

import pytest

from acp_agent.agent.aids.arguments import DEFAULT_THRESHOLD, fit_threshold
from acp_agent.config.call_settings import DependencySettings, TafcSettings, ToolFilterSettings, ToolNeeds
from acp_agent.config.layers import SettingKey
from acp_agent.config.section import Section
from acp_agent.shape import ValidationError, fields
from tests.rows import each_row

SECTIONS = (TafcSettings, ToolFilterSettings, DependencySettings)


def test_all_is_off_and_the_defaults_are_those_of_the_requirements():
    tafc, chosen, needs = (section() for section in SECTIONS)
    assert (tafc.enabled, tafc.complexity_threshold) == (False, 0.6)
    assert (chosen.enabled, chosen.top_k, chosen.min_description_words) == (False, 10, 3)
    assert {"memory_search", "memory_save"} < {*chosen.always_on}
    assert {"bash", "read", "edit", "write"} < {*chosen.always_on}
    assert (needs.enabled, needs.boost_per_dep, needs.max_total_boost, needs.rules) == (False, 0.15, 0.20, {})


@each_row("threshold", [0.4, 0, 1, -0.1, 3, float("nan"), float("inf"), float("-inf")])
def test_a_threshold_is_brought_into_its_range_as_the_loop_does(threshold):
    read = TafcSettings.model_validate({"complexity_threshold": threshold}).complexity_threshold
    assert read == fit_threshold(threshold)
    assert TafcSettings().complexity_threshold == DEFAULT_THRESHOLD


def test_rules_are_read_by_tool():
    table = {
        "rules": {"edit": {"requires": ["read"]}, "mcp_ci_deploy": {"requires": ["mcp_ci_check"], "prefers": ["bash"]}}
    }
    assert DependencySettings.model_validate(table).rules == {
        "edit": ToolNeeds(requires=("read",)),
        "mcp_ci_deploy": ToolNeeds(requires=("mcp_ci_check",), prefers=("bash",)),
    }


@each_row(
    "section, table",
    [
        (TafcSettings, {"complexity_threshold": "high"}),
        (TafcSettings, {"threshold": 0.5}),
        (ToolFilterSettings, {"top_k": 0}),
        (ToolFilterSettings, {"top_k": 2.5}),
        (ToolFilterSettings, {"min_description_words": -1}),
        (ToolFilterSettings, {"always_on": "read"}),
        (ToolFilterSettings, {"always_on": [""]}),
        (DependencySettings, {"boost_per_dep": -0.1}),
        (DependencySettings, {"max_total_boost": float("nan")}),
        (DependencySettings, {"max_total_boost": 1.5}),
        (DependencySettings, {"rules": {"": {}}}),
        (DependencySettings, {"rules": {"edit": ["read"]}}),
        (DependencySettings, {"rules": {"edit": {"require": ["read"]}}}),
        (DependencySettings, {"rules": {"edit": {"requires": "read"}}}),
    ],
)
def test_what_cannot_be_meant_is_refused(section, table):
    with pytest.raises(ValidationError):
        section.model_validate(table)


@pytest.mark.parametrize("section", [TafcSettings, ToolFilterSettings])
def test_a_project_may_switch_off_what_the_user_has_on_and_nothing_else(section):
    mark = SettingKey("enabled", section, "enabled").project_may
    assert mark is not None
    assert mark.tighten(True, False).value is False
    assert mark.tighten(False, True).value is False
    others = {*fields(section)} - {"enabled"}
    assert all(SettingKey(name, section, name).project_may is None for name in others)


def test_what_waits_for_what_is_the_users_alone():
    assert all(SettingKey(name, DependencySettings, name).project_may is None for name in fields(DependencySettings))


@pytest.mark.parametrize("section", [*SECTIONS, ToolNeeds])
def test_every_setting_is_described_and_its_examples_are_good(section: type[Section]):
    for name, info in fields(section).items():
        assert (info.description or "").endswith("."), name
        for example in info.examples or []:
            SettingKey(name, section, name).read(example)
    json.dumps(section.model_json_schema())
