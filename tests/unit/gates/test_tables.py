"""The whole chain against hostile and everyday commands; the summary is printed."""

import os
from collections import Counter

import pytest

from acp_agent.core.conduct import Conduct
from tests.unit.gates import everyday, hostile
from tests.unit.gates.chain import Chain, command, full_auto, rules

pytestmark = pytest.mark.anyio


@pytest.fixture
def fate(tmp_path):
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "a").mkdir()
    (tmp_path / "other").mkdir()
    (root / "link-out").symlink_to(tmp_path / "other")

    async def of(text: str, patterns: tuple[str, ...], conduct: Conduct) -> str:
        chain = Chain(os.fspath(root), os.fspath(tmp_path / "grants.toml"), rules(*patterns), conduct)
        return await chain.fate(command(text))

    return of


async def test_what_must_never_run_is_blocked_even_where_everything_is_allowed(fate):
    missed = [text for text in hostile.U if await fate(text, ("*",), full_auto()) != "blocked"]
    print(f"\nU: {len(hostile.U) - len(missed)} of {len(hostile.U)} blocked")
    assert missed == []


@pytest.mark.parametrize(("name", "table"), [("A", hostile.A), ("B", hostile.B), ("C", hostile.C)])
async def test_hidden_commands_runner_options_and_outside_paths_never_run_silently(fate, name: str, table):
    fates = [(text, await fate(text, patterns, Conduct())) for text, patterns in table]
    print(f"\n{name}: {len(table)} commands under their natural rules: {dict(Counter(end for _, end in fates))}")
    assert [text for text, end in fates if end == "silent"] == []


async def test_everyday_commands_run_silently_under_everyday_rules(fate):
    fates = [(text, await fate(text, everyday.RULES, Conduct())) for text in everyday.COMMANDS]
    print(f"\neveryday: {len(fates)} commands: {dict(Counter(end for _, end in fates))}")
    assert [text for text, end in fates if end in ("blocked", "refused")] == []
    assert sum(end == "silent" for _, end in fates) >= 0.95 * len(fates)


async def test_everyday_constructs_are_never_refused(fate):
    fates = [(text, await fate(text, everyday.RULES, Conduct())) for text in everyday.CONSTRUCTS]
    print(f"\nconstructs: {len(fates)} commands: {dict(Counter(end for _, end in fates))}")
    assert [text for text, end in fates if end in ("blocked", "refused")] == []


def test_the_tables_are_as_large_as_they_should_be():
    assert len(hostile.U) + len(hostile.A) + len(hostile.B) + len(hostile.C) >= 200
    assert len(everyday.COMMANDS) >= 150
    for table in (hostile.U, hostile.A, hostile.B, hostile.C, everyday.COMMANDS, everyday.CONSTRUCTS):
        assert len(set(table)) == len(table)
