"""What becomes of tools' output: the defaults of the seeds, and what a project's file may not do to them."""

import pytest

from tests.unit.config.conftest import told


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
