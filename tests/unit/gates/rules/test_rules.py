"""Globs and rules: what a pattern matches, and what it must not."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ConfigError
from acp_agent.gates.rules.patterns import compile_glob
from acp_agent.gates.rules.permission_rules import Action, Rule, denied_outright, rules_of
from tests.rows import each_row
from tests.unit.gates.chain import rules


@each_row(
    "pattern, yes, no",
    [
        ("*", ["", "a", "a b;c"], ["a\nb"]),
        ("a*c", ["ac", "abc", "a/b c"], ["abd", "a\nc"]),
        ("a?c", ["abc"], ["ac", "a\nc"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "x"]),
        ("[!a]x", ["bx"], ["ax", "\nx"]),
        ("[]]x", ["]x"], ["x"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("[-a]", ["a", "-"], ["b"]),
        ("[b-b]", ["b"], ["a", "c"]),
        ("a\\*", ["a*"], ["ab"]),
        ("**a**", ["a", "bab"], ["b"]),
        ("", [""], ["a"]),
    ],
)
def test_globs(pattern: str, yes: list[str], no: list[str]):
    glob = compile_glob(pattern)
    assert all(glob.matches(text) for text in yes)
    assert not any(glob.matches(text) for text in no)


@given(st.lists(st.sampled_from(["*", "?", "a", "b", "\n"]), max_size=8), st.text("ab\n", max_size=12))
def test_a_glob_means_what_the_regular_expression_means(pattern: list[str], text: str):
    meaning = {"*": "[^\n]*", "?": "[^\n]"}
    expected = re.fullmatch("".join(meaning.get(char, char) for char in pattern), text) is not None
    assert compile_glob("".join(pattern)).matches(text) == expected


def test_a_glob_full_of_stars_is_not_slow():
    start = time.thread_time()
    assert not compile_glob("*a" * 60 + "b").matches("a" * 20_000)
    assert time.thread_time() - start < 30


@each_row(
    "pattern, yes, no",
    [
        ("git *", ["git", "git status", "GIT status -s"], ["gitk", "git-x"]),
        ("git status*", ["git status", "git status -s"], ["git statusx", "git status\x1fx"]),
        ("npm run test:*", ["npm run test:unit", "npm run test:unit --watch"], ["npm run test"]),
        ("python scripts/*", ["python scripts/a.py x"], ["python other/a.py"]),
        ("git branch -d *", ["git branch -d x"], ["git branch -D x"]),
        ("ls", ["ls", "LS"], ["ls -l"]),
        ("git log *", ["git log a"], ["git\x1flog a", "git log\x1fa"]),
    ],
)
def test_allowing_command_patterns_respect_words_and_options(pattern: str, yes: list[str], no: list[str]):
    (rule,) = rules(pattern)
    assert all(rule.matches_command(text) for text in yes)
    assert not any(rule.matches_command(text) for text in no)


def test_denying_patterns_are_wider():
    (rule,) = rules("git push -f*", action=Action.DENY)
    assert rule.matches_command("git push -F")
    assert rule.matches_command("GIT PUSH -fu origin")


def test_paths_match_across_slashes_and_allow_keeps_their_case():
    (allow,) = rules("src/*")
    (deny,) = rules("*.env", action=Action.DENY)
    assert allow.matches_text("src/a/b.py")
    assert not allow.matches_text("SRC/a")
    assert deny.matches_text("x/.ENV")


@pytest.mark.parametrize(("pattern", "reason"), [("[a", "without its ]"), ("a\\", "backslash"), ("[z-a]", "empty")])
def test_a_bad_pattern_names_file_rule_and_reason(pattern: str, reason: str):
    with pytest.raises(ConfigError, match=r"config\.toml rule 3") as caught:
        Rule.parse(pattern, Action.ALLOW, "config.toml rule 3")
    assert pattern in str(caught.value)
    assert reason in str(caught.value)


def test_only_a_whole_tool_is_denied_outright():
    deny, some = rules("*", action=Action.DENY)[0], rules("x*", action=Action.DENY)[0]
    allow = rules("git *")[0]
    assert denied_outright((deny,))
    assert denied_outright((some, deny))
    assert not denied_outright((allow, deny))
    assert not denied_outright((some,))
    assert not denied_outright(())


def test_rules_for_a_server_are_that_servers_alone():
    everything = rules("*")
    github = {"mcp_github_*": everything}
    assert rules_of(github, "mcp_github_issue", "github") == everything
    assert rules_of(github, "mcp_github-x_issue", "github_x") == ()
    assert rules_of({"mcp_github_x_*": rules("*", action=Action.DENY)}, "mcp_github_y", "github") == ()


@pytest.mark.parametrize("name", ["mcp_Git_Hub_*", "mcp_git_hub_issue", "mcp_git_hub_is*"])
def test_a_server_spelled_as_it_is_named_is_meant_by_what_denies_or_asks_and_never_by_what_allows(name: str):
    deny, ask, allow = (rules("*", action=action)[0] for action in (Action.DENY, Action.ASK, Action.ALLOW))
    given = {name: (allow, ask, deny)}
    assert rules_of(given, "mcp_git-hub_issue", "git.hub") == (ask, deny)
    assert rules_of(given, "mcp_git-hub_other", "git_hubs") == ()
    assert rules_of({"mcp_git_*": (deny,)}, "mcp_git-hub_issue", "git_hub") == (), "it is for the server `git`"
    assert rules_of({"mcp_git-hub_*": (allow,)}, "mcp_git-hub_issue", "git_hub") == (allow,)


def test_a_line_end_hides_nothing_from_a_rule_that_denies_or_asks_and_stops_one_that_allows():
    for action in (Action.DENY, Action.ASK):
        rule = Rule.parse("secret*", action)
        assert rule.matches_text("secret/a\nb")
        assert rule.matches_command("secret x\ny")
        assert Rule.parse("*drop table*", action).matches_command("mysql -e x\nDROP\nTABLE y")
    assert not Rule.parse("secret*", Action.ALLOW).matches_text("secret/a\nb")
