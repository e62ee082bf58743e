"""The policy's settings: what a rule may say, whose rules come first, and that what is wrong denies."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.layers import Layer, Reader, SettingKey
from acp_agent.config.load import ProjectLoosens
from acp_agent.config.policy_file import MAX_BYTES, MergedRules, merged_rules
from acp_agent.config.rules import (
    DENIES,
    MAX_RULES,
    AuthorizationSettings,
    PolicyEffect,
    PolicyRuleSettings,
    PolicySettings,
    TrustThreshold,
)
from acp_agent.core.errors import ConfigError
from acp_agent.shape import ValidationError, fields
from tests.rows import each_row

RULES = SettingKey("tools.policy.rules", PolicySettings, "rules")
DENY_BASH = {"effect": "deny", "tool": "bash"}
ALLOW_READ = {"effect": "allow", "tool": "read"}


def rules(*tables: dict) -> tuple[PolicyRuleSettings, ...]:
    return tuple(PolicyRuleSettings.model_validate(table) for table in tables)


def test_everything_is_off_and_denies_by_default():
    assert not PolicySettings().enabled
    assert not AuthorizationSettings().enabled
    assert PolicySettings().default_effect is PolicyEffect.DENY


@pytest.mark.parametrize("section", [PolicySettings, AuthorizationSettings, PolicyRuleSettings])
def test_every_setting_is_described_and_its_examples_are_good(section):
    for name, info in fields(section).items():
        assert info.description
        assert info.description.endswith(".")
        for example in info.examples or []:
            SettingKey(name, section, name).read(example)


def test_a_rule_may_say_all_this():
    table = {
        "effect": "allow",
        "tool": " Shell ",
        "paths": ["/a/*"],
        "env": ["CI"],
        "trust_level": "provisional",
        "args_match": "^git ",
        "capabilities": ["net"],
    }
    (rule,) = rules(table)
    assert rule.trust_level is TrustThreshold.PROVISIONAL
    assert rule.paths == ("/a/*",)


@each_row(
    "wrong, told",
    [
        ({"effect": "ask"}, 'tools.policy.rules[1].effect = "ask": expected one of "allow", "deny"'),
        ({"efect": "deny"}, 'tools.policy.rules[1].efect = "deny": expected one of effect, tool'),
        ({"tool": ""}, 'tools.policy.rules[1].tool = ""'),
        ({"tool": "  "}, 'tools.policy.rules[1].tool = "  "'),
        ({"paths": "/a"}, 'tools.policy.rules[1].paths = "/a": expected a list of texts'),
        ({"paths": [""]}, "tools.policy.rules[1].paths"),
        ({"env": ["$CI"]}, "tools.policy.rules[1].env"),
        ({"trust_level": "blocked"}, "tools.policy.rules[1].trust_level"),
        ({"args_match": "ä" * 513}, "expected a regular expression of at most 1024 bytes"),
        ({"args_match": ""}, "tools.policy.rules[1].args_match"),
    ],
)
def test_a_wrong_rule_is_told_with_file_number_and_reason(wrong, told):
    reader, layer = Reader(), Layer()
    reader.take(layer, RULES, [DENY_BASH, ALLOW_READ | wrong], "config.toml")
    assert str(reader.problems[0]).startswith("config.toml: ")
    assert told in str(reader.problems[0])
    assert RULES.name not in layer.values, "half a list of rules is none"


def test_a_regular_expression_of_the_greatest_length_is_taken():
    assert rules(DENY_BASH | {"args_match": "ä" * 512})


def test_there_are_at_most_256_rules():
    assert len(PolicySettings(rules=rules(*[DENY_BASH] * MAX_RULES)).rules) == MAX_RULES
    with pytest.raises(ValidationError):
        PolicySettings(rules=rules(*[DENY_BASH] * (MAX_RULES + 1)))


# ------------------------------------------------------------------------------------------------- a project's wish


def test_a_projects_denies_go_in_front_and_its_allows_are_refused():
    user, project = rules(ALLOW_READ), rules(ALLOW_READ | {"tool": "*"}, DENY_BASH)
    outcome = DENIES.tighten(user, project)
    assert outcome.value == (project[1], user[0])
    assert outcome.refused == (project[0],)


def test_a_project_cannot_crowd_out_the_users_rules():
    user, project = rules(*[ALLOW_READ] * (MAX_RULES - 1)), rules(DENY_BASH, DENY_BASH)
    outcome = DENIES.tighten(user, project)
    assert outcome.value == (project[0], *user)
    assert outcome.refused == (project[1],)


some_rules = st.lists(
    st.fixed_dictionaries({"effect": st.sampled_from(["allow", "deny"]), "tool": st.sampled_from(["a", "b", "*"])}),
    max_size=4,
).map(lambda tables: rules(*tables))


@given(
    user=some_rules, project=some_rules, default=st.sampled_from(PolicyEffect), tool=st.sampled_from(["a", "b", "c"])
)
def test_whatever_a_project_says_no_denial_turns_into_an_allow(user, project, default, tool):
    def effect(listed) -> PolicyEffect:
        return next((rule.effect for rule in listed if rule.tool in ("*", tool)), default)

    if effect(user) is PolicyEffect.DENY:
        assert effect(DENIES.tighten(user, project).value) is PolicyEffect.DENY


# ------------------------------------------------------------------------------------------------------ policy_file


class Home:
    """A user's config folder and a project, both private to one test."""

    def __init__(self, folder: Path) -> None:
        self.project, self.config = folder / "project", folder / "config"
        self.project.mkdir()
        self.config.mkdir()

    def merge(
        self, file: Path | str | None = None, problems=(), *, policy: bool = True, authorization: bool = False, **lists
    ) -> MergedRules:
        return merged_rules(
            PolicySettings(
                enabled=policy, rules=lists.get("inline", ()), policy_file=None if file is None else os.fspath(file)
            ),
            AuthorizationSettings(enabled=authorization, rules=lists.get("behind", ())),
            problems,
            cwd=os.fspath(self.project),
            config_file=os.fspath(self.config / "config.toml"),
        )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def toml(*tables: dict[str, str]) -> str:
    return "\n".join(
        "\n".join(["[[rules]]", *(f"{name} = '{value}'" for name, value in table.items())]) for table in tables
    )


def places(merged: MergedRules) -> list[str]:
    return [each.place for each in merged.rules]


def test_rules_come_in_this_order(home):
    (home.config / "policy.toml").write_text(toml(DENY_BASH, ALLOW_READ))
    merged = home.merge(
        home.config / "policy.toml", authorization=True, inline=rules(ALLOW_READ), behind=rules(DENY_BASH)
    )
    assert places(merged) == [
        "tools.policy.rules[0]",
        "policy.toml rules[0]",
        "policy.toml rules[1]",
        "tools.authorization.rules[0]",
    ]


@pytest.mark.parametrize(
    ("policy", "authorization", "expected"),
    [
        (False, False, []),
        (True, False, ["tools.policy.rules[0]"]),
        (False, True, ["tools.authorization.rules[0]"]),
        (True, True, ["tools.policy.rules[0]", "tools.authorization.rules[0]"]),
    ],
)
def test_what_is_switched_off_does_not_count(home, policy, authorization, expected):
    file = None if policy else "/nowhere/policy.toml"
    lists = {"inline": rules(DENY_BASH), "behind": rules(DENY_BASH)}
    assert places(home.merge(file, policy=policy, authorization=authorization, **lists)) == expected


def test_a_file_that_is_no_path_is_refused(home):
    with pytest.raises(ValueError, match="text without NUL characters"):
        home.merge("policy\0.toml")


def test_more_than_256_rules_together_are_refused(home):
    lists = {"inline": rules(*[DENY_BASH] * 200), "behind": rules(*[DENY_BASH] * 57)}
    with pytest.raises(ConfigError, match="257 rules: expected at most 256"):
        home.merge(authorization=True, **lists)


def test_a_file_the_user_named_by_its_full_path_may_allow_wherever_it_is(home):
    for folder in (home.config, home.project):
        (folder / "policy.toml").write_text(toml(ALLOW_READ))
        merged = home.merge(folder / "policy.toml")
        assert [each.rule.effect for each in merged.rules] == [PolicyEffect.ALLOW]
        assert not merged.refused


def test_a_file_any_project_may_bring_can_only_deny(home):
    (home.project / "policy.toml").write_text(toml(ALLOW_READ, DENY_BASH))
    merged = home.merge("policy.toml")
    assert places(merged) == ["policy.toml rules[1]"]
    (refused,) = merged.refused
    assert isinstance(refused, ProjectLoosens)
    assert "rules[0] = allow: expected deny rules only" in str(refused)


def test_a_project_need_not_bring_one_but_the_users_own_has_to_be_there(home):
    assert home.merge("policy.toml").rules == ()
    with pytest.raises(ConfigError, match="expected the policy file to exist"):
        home.merge(home.config / "policy.toml")


def test_a_file_outside_is_refused(home, tmp_path):
    (tmp_path / "policy.toml").write_text(toml(ALLOW_READ))
    (tmp_path / "project-2").mkdir()
    (tmp_path / "project-2" / "policy.toml").write_text(toml(ALLOW_READ))
    for name in (
        tmp_path / "policy.toml",
        "../policy.toml",
        "../config/policy.toml",
        tmp_path / "project-2/policy.toml",
    ):
        with pytest.raises(ConfigError, match="expected a policy file inside"):
            home.merge(name)


@pytest.mark.parametrize("absolute", [True, False])
def test_a_link_out_is_refused(home, tmp_path, absolute):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "policy.toml").write_text(toml(ALLOW_READ))
    (home.project / "policy.toml").symlink_to(tmp_path / "elsewhere" / "policy.toml")
    (home.project / "folder").symlink_to(tmp_path / "elsewhere")
    for name in ("policy.toml", "folder/policy.toml"):
        with pytest.raises(ConfigError, match="not a link out of it"):
            home.merge(home.project / name if absolute else name)


def test_a_project_that_is_itself_a_link_is_no_link_out(home, tmp_path):
    (home.project / "policy.toml").write_text(toml(DENY_BASH))
    (tmp_path / "link").symlink_to(home.project)
    home.project = tmp_path / "link"
    assert len(home.merge("policy.toml").rules) == len(home.merge(tmp_path / "link" / "policy.toml").rules) == 1


def test_a_tilde_is_the_users_home(home, monkeypatch):
    monkeypatch.setenv("HOME", os.fspath(home.config))
    (home.config / "policy.toml").write_text(toml(ALLOW_READ))
    assert len(home.merge("~/policy.toml").rules) == 1


def test_a_file_of_256_kib_is_read_and_a_longer_one_is_not(home):
    text = toml(DENY_BASH) + "\n#"
    (home.project / "policy.toml").write_text(text + "x" * (MAX_BYTES - len(text)))
    assert len(home.merge("policy.toml").rules) == 1
    (home.project / "policy.toml").write_text(text + "x" * (MAX_BYTES - len(text) + 1))
    with pytest.raises(ConfigError, match="expected a policy file of at most 256 KiB"):
        home.merge("policy.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            toml(DENY_BASH, ALLOW_READ | {"effect": "maybe"}),
            'rules[1].effect = "maybe": expected one of "allow", "deny"',
        ),
        (toml({"effect": "deny"}), "rules[0].tool: expected it to be set"),
        ("rules = 3", "rules = 3: expected a list of tables"),
        ("rule = []", "rule = []: expected [[rules]] and nothing else"),
        ("[[", "expected TOML"),
        ("\n".join([toml(DENY_BASH)] * 257), "rules"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_file_rule_and_reason(home, text, told):
    (home.project / "policy.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        home.merge("policy.toml")
    assert str(caught.value).startswith(f"{home.project}/policy.toml: ")
    assert told in str(caught.value)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_refused_without_waiting(home, make):
    make(home.project / "policy.toml")
    with pytest.raises(ConfigError, match="expected"):
        home.merge("policy.toml")


@pytest.mark.parametrize(
    ("key", "policy", "authorization", "refused"),
    [
        ("tools.policy.rules[1].effect", True, False, True),
        ("tools.policy.rules[1].effect", False, True, True),
        ("tools.policy.rules[1].effect", False, False, False),
        ("tools.policy.enabled", False, False, True),
        ("tools.policy", False, False, True),
        ("tools.policy.default_efect", True, False, True),
        ("tools.authorization.enabled", False, False, True),
        ("tools.authorization.rules", True, False, True),
        ("tools.policies", True, True, False),
        ("tools.shell.enabled", True, True, False),
    ],
)
def test_what_was_dropped_on_loading_is_not_forgotten(home, key, policy, authorization, refused):
    problems = [ConfigError("config.toml", key, "x", "something else")]
    if not refused:
        home.merge(problems=problems, policy=policy, authorization=authorization)
        return
    with pytest.raises(ConfigError) as caught:
        home.merge(problems=problems, policy=policy, authorization=authorization)
    assert caught.value is problems[0]


def test_what_a_project_was_refused_does_no_harm(home):
    home.merge(problems=[ProjectLoosens("p", "tools.policy.enabled", "false", "it only in the user's own")])
