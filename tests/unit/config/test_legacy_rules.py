"""The older lists of `[tools.shell]` as rules: only for who asked for them, and never looser than they read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.layers import Layer, Reader, key_of
from acp_agent.config.load import BLOCKED, CONFIRM, USUAL, add_legacy_rules, legacy_rules, tighten
from acp_agent.config.rules import PermissionRule, RuleAction
from acp_agent.core.errors import ConfigError
from acp_agent.core.types import ALIASES
from acp_agent.gates.rules.permission_rules import Action, Rule, judge
from acp_agent.gates.shell.command import ShellText
from tests.rows import each_row

RULES = "tools.permissions.bash"
DENY, ASK, ALLOW = RuleAction.DENY, RuleAction.ASK, RuleAction.ALLOW


def layer(**values: object) -> Layer:
    made = Layer()
    for name, value in values.items():
        made.put(name.replace("__", "."), value, "config.toml")
    return made


def converted(
    user: Layer, environment: Layer | None = None, reader: Reader | None = None
) -> tuple[PermissionRule, ...]:
    add_legacy_rules(reader or Reader(), user, environment or Layer())
    return user.rules(RULES)


def action(text: str, rules: tuple[PermissionRule, ...]) -> Action | None:
    compiled = tuple(Rule.parse(rule.pattern, Action(rule.action.value)) for rule in rules)
    return judge(ShellText(text), compiled, lambda _: None).action


def test_who_sets_nothing_or_only_blocks_more_gets_no_rules_and_so_is_asked():
    for user in (layer(), layer(**{BLOCKED: ("terraform",)}), layer(**{CONFIRM: ()})):
        assert converted(user) == ()


def test_the_lists_become_denies_then_asks_then_allow_the_rest():
    rules = converted(layer(**{BLOCKED: ("terraform destroy",), CONFIRM: ("kubectl ",)}))
    assert [(rule.pattern, rule.action) for rule in rules] == [
        ("*terraform destroy*", DENY),
        ("*kubectl *", ASK),
        *((f"*{text}*", ASK) for text in USUAL),
        ("*", ALLOW),
    ]
    assert len(USUAL) == 12


@each_row(
    "text, outcome",
    [
        ("ls -la", Action.ALLOW),
        ("python x.py", Action.ALLOW),
        ("terraform destroy now", Action.DENY),
        ("ls; echo terraform destroy", Action.DENY),
        ("KUBECTL get pods", Action.ASK),
        ("rm x", Action.ASK),
        ("ls && rm -rf build", Action.ASK),
        ("git push --force", Action.ASK),
        ("psql -c 'DROP TABLE x'", Action.ASK),
        ("eval ls", None),
        ("echo $(ls)", None),
        ("cat <<< x", None),
        ("ls > out", None),
        ("x=1 ls", None),
    ],
)
def test_what_becomes_of_commands(text: str, outcome: Action | None):
    """None: nobody says anything, so it asks. Allowing the rest allows nothing that could not be read."""
    assert action(text, legacy_rules(("terraform destroy",), ("kubectl ",))) is outcome


@pytest.mark.parametrize("name", ["bash", "Shell", *(name for name, tool in ALIASES.items() if tool == "bash")])
def test_rules_for_bash_switch_the_lists_off_under_any_of_its_names_and_also_when_they_are_empty_or_faulty(
    loading, name: str
):
    lists = "tools.shell.confirm_patterns = ['rm ']\n"
    variable = f"ACP_AGENT_TOOLS__PERMISSIONS__{name.upper()}"
    assert loading(f"{lists}tools.permissions.{name} = []").settings.tools.permissions == {"bash": ()}
    assert loading(lists, environ={variable: "[]"}).settings.tools.permissions == {"bash": ()}
    faulty = loading(f"{lists}tools.permissions.{name} = 7").settings.tools.permissions["bash"]
    assert [rule.action for rule in faulty] == [ASK]


def test_rules_for_another_tool_leave_the_lists_on():
    assert converted(layer(**{CONFIRM: ("rm ",), "tools.permissions.write": ()})) != ()


def test_where_the_lists_are_not_understood_nothing_is_allowed():
    reader = Reader()
    reader.problems.append(ConfigError("config.toml", f"{BLOCKED}[1]", "5", "a text"))
    assert converted(layer(**{CONFIRM: ("rm ",)}), reader=reader) == ()
    elsewhere = Reader()
    elsewhere.problems.append(ConfigError("config.toml", "llm.model", "x", "another"))
    assert converted(layer(**{CONFIRM: ("rm ",)}), reader=elsewhere) != ()


def test_the_environment_counts_and_is_named_as_the_origin():
    user = layer(**{BLOCKED: ("a b",), CONFIRM: ("x",)})
    environment = Layer()
    environment.put(CONFIRM, ("y",), "ACP_AGENT_TOOLS__SHELL__CONFIRM_PATTERNS")
    rules = converted(user, environment)
    assert [rule.pattern for rule in rules[:2]] == ["*a b*", "*y*"]
    assert user.origins[RULES] == "tools.shell.confirm_patterns in ACP_AGENT_TOOLS__SHELL__CONFIRM_PATTERNS"


def test_a_texts_stars_are_stars_and_long_or_blank_texts_do_no_harm():
    rules = legacy_rules(("a[*]?\\", " "), ("x" * 500,))
    assert rules[0].pattern == "*a\\[\\*]\\?\\\\*"
    assert action("echo 'a[*]?\\'", rules) is Action.DENY
    assert action("echo ab", rules) is Action.ALLOW
    assert action("echo " + "x" * 500, rules) is Action.ASK


def test_a_projects_rules_join_the_converted_ones_and_switch_nothing_off():
    user, project = layer(**{BLOCKED: ("terraform",), CONFIRM: ("kubectl",)}), Layer()
    key = key_of(RULES)
    wanted = [
        {"pattern": "make *", "action": "deny"},
        {"pattern": "ls *", "action": "ask"},
        {"pattern": "*", "action": "allow"},
    ]
    reader = Reader()
    reader.take(project, key, wanted, "project")
    add_legacy_rules(reader, user, Layer())
    tighten(reader, user, project)
    rules = user.rules(RULES)
    assert [action(text, rules) for text in ("make x", "echo terraform", "ls x", "kubectl get", "pwd")] == [
        Action.DENY,
        Action.DENY,
        Action.ASK,
        Action.ASK,
        Action.ALLOW,
    ]


def test_through_all_sources_the_lists_become_rules_unless_there_are_some(loading):
    lists = "[tools.shell]\nconfirm_patterns = ['kubectl']\nblocked_commands = ['terraform']\n"
    bash = loading(lists).settings.tools.permissions["bash"]
    assert [rule.pattern for rule in bash[:2]] == ["*terraform*", "*kubectl*"]
    assert bash[-1] == PermissionRule(pattern="*", action=ALLOW)
    own = loading(lists + "[[tools.permissions.bash]]\npattern = 'ls'\naction = 'ask'\n").settings.tools.permissions
    assert [rule.pattern for rule in own["bash"]] == ["ls"]
    assert loading("", lists).settings.tools.permissions == {}
    assert "user's own configuration" in str(loading("", lists).problems[0])
    joined = loading(lists, "[[tools.permissions.bash]]\npattern = 'ls*'\naction = 'deny'\n").settings.tools
    assert [rule.pattern for rule in joined.permissions["bash"][:2]] == ["ls*", "*terraform*"]
    assert loading(lists + "timeout = 'x'\n", "").settings.tools.permissions == {}
    broken = lists + "[tools.permissions]\nbash = 5\n"
    assert [rule.action for rule in loading(broken, "").settings.tools.permissions["bash"]] == [ASK]


@pytest.mark.parametrize(
    "text", ["mysql -e 'x\ndrop table y'", "echo 'a\nterraform destroy'", "psql -c 'drop\ntable y'"]
)
def test_a_line_end_hides_nothing(text: str):
    assert action(text, legacy_rules(("terraform destroy",), ())) in (Action.ASK, Action.DENY)


texts = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30), max_size=4).map(tuple)


@given(texts, texts)
def test_any_texts_give_rules_that_compile_and_end_with_the_only_allow(blocked, confirm):
    rules = legacy_rules(blocked, confirm)
    for rule in rules:
        Rule.parse(rule.pattern, Action(rule.action.value))
    assert [rule.action for rule in rules].index(ALLOW) == len(rules) - 1
    assert {rule.action for rule in rules[: len(rules) - 1 - len(USUAL)]} <= {DENY, ASK}
