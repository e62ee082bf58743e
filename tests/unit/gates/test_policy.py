"""The policy only takes away: what its rules say, in which order, and what nobody can talk it into."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ConfigError, ToolErrorCategory
from acp_agent.core.types import (
    Access,
    Allow,
    ApprovedBy,
    Ask,
    Deny,
    JsonObject,
    McpSubject,
    PathSubject,
    Phase,
    UrlSubject,
    Verdict,
)
from acp_agent.gates.blocklist import BlocklistGate, BlocklistPolicy
from acp_agent.gates.gate import CallFacts, Gate
from acp_agent.gates.paths.command_paths import Expand
from acp_agent.gates.permission import Approved
from acp_agent.gates.policy import Policy, PolicyGate
from acp_agent.gates.rules.policy_rules import MAX_WORDS, Effect, PolicyRule, TrustLevel
from acp_agent.regex import LinearRegex
from acp_agent.workspace.command_files import shell_names
from tests.rows import each_row
from tests.unit.gates.chain import SPECS, Judged, call, command, inside

pytestmark = pytest.mark.anyio


def search(pattern: str):
    regex = LinearRegex(pattern)
    return lambda text: regex.find(text.encode(errors="replace"), 0) is not None


def rule(effect: str, tool: str, *, place: str = "rule", **fields) -> PolicyRule:
    return PolicyRule.parse(place, Effect(effect), tool, compile_regex=search, **fields)


def allow(tool: str, **fields) -> PolicyRule:
    return rule("allow", tool, **fields)


def deny(tool: str, **fields) -> PolicyRule:
    return rule("deny", tool, **fields)


@pytest.fixture
def cwd(tmp_path: Path) -> str:
    folder = tmp_path / "project"
    folder.mkdir()
    return os.path.realpath(folder)


def gate(
    *rules: PolicyRule, cwd: str = "/p", default: str = "deny", trust: TrustLevel = TrustLevel.TRUSTED, fault: str = ""
) -> PolicyGate:
    policy = Policy(rules, Effect(default), fault)
    return PolicyGate(policy, cwd=cwd, realpath=os.path.realpath, trust=lambda _: trust)


def reading(path: str, access: Access = Access.READ):
    return call("read", PathSubject(path, access), arguments={"path": path})


def unlooked(pattern: str, folder: str) -> None:
    """Cannot look which files there are: any may be meant."""


def judged(judge: PolicyGate, expand: Expand = unlooked) -> Judged:
    return Judged(judge, expand=expand)


def trace(judge: PolicyGate, invocation) -> list[str]:
    return judge.trace(judged(judge).gates.facts(invocation))


def verdict(judge: PolicyGate, invocation, expand: Expand = unlooked) -> str:
    match judged(judge, expand).judge(invocation):
        case Allow():
            return "allow"
        case Ask():
            return "ask"
        case Deny():
            return "deny"


# ------------------------------------------------------------------------------------------ what a rule is about


@each_row("written", ["bash", "BASH", " shell ", "sh", "Shell", "terminal", "Run_Command", "b*", "*", "ba[rs]h"])
def test_a_tool_is_matched_by_glob_whatever_its_case_and_by_its_aliases(written):
    assert verdict(gate(allow(written)), command("ls")) == "allow"
    assert verdict(gate(deny(written), default="allow"), command("ls")) == "deny"


@pytest.mark.parametrize("written", ["bas", "read", "bash?", "mcp_*"])
def test_a_rule_for_other_tools_says_nothing(written):
    assert verdict(gate(deny(written), default="allow"), command("ls")) == "allow"
    assert verdict(gate(allow(written)), command("ls")) == "deny"


def test_a_tool_of_an_mcp_server_is_matched_by_its_qualified_name():
    invocation = call("mcp_x_y", McpSubject("x", "y"))
    assert verdict(gate(allow("mcp_x_*")), invocation) == "allow"
    assert verdict(gate(allow("y")), invocation) == "deny"


def test_the_first_match_wins():
    invocation = command("ls")
    assert verdict(gate(allow("bash"), deny("bash")), invocation) == "allow"
    assert verdict(gate(deny("bash"), allow("bash")), invocation) == "deny"
    assert verdict(gate(deny("read"), allow("bash"), deny("*")), invocation) == "allow"


def test_where_no_rule_matches_the_default_holds_and_no_rule_is_named():
    assert verdict(gate(deny("read"), default="allow"), command("ls")) == "allow"
    assert judged(gate(deny("read"))).judge(command("ls")) == Deny("blocked by policy", rule="")


async def test_the_model_learns_only_that_a_policy_blocked_it_and_the_audit_learns_which_rule():
    judge = gate(allow("read"), rule("deny", "ba*", place="tools.policy.rules[1]", args_match="s3cret"))
    result = await judged(judge).execute(command("echo s3cret"))
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert result.failure.message == "blocked by policy"
    assert result.ruling is not None
    assert (result.ruling.gate, result.ruling.rule) == ("policy", "tools.policy.rules[1]: deny ba*")


async def test_what_is_allowed_goes_on_unchanged_with_the_questions_of_others():
    facts = judged(gate(allow("*"))).gates.facts(command("ls"))
    facts.asks.append(Ask("why"))
    assert await gate(allow("*")).examine(facts) == Allow()
    assert facts.asks == [Ask("why")]


def test_a_policy_without_rules_and_without_default_is_no_policy():
    judge = PolicyGate(Policy(), cwd="/p", realpath=os.path.realpath, trust=_trusted)
    assert verdict(judge, command("x")) == "allow"
    assert Policy().status == "no policy is in force"
    assert Policy((deny("x"),)).status == "policy rules in force: 1; calls that no rule matches: allow"
    assert Policy(default=Effect.DENY).status == "policy rules in force: 0; calls that no rule matches: deny"


def _trusted(_: object) -> TrustLevel:
    return TrustLevel.TRUSTED


# ---------------------------------------------------------------------------------------------- args_match


@each_row(
    "arguments, found",
    [
        ({"command": "sudo ls"}, True),
        ({"command": "ls"}, False),
        ({"deep": [{"deeper": ["x", {"y": "a sudo b"}]}]}, True),
        ({"sudo": "in a name only"}, False),
        ({"number": 7, "none": None, "list": []}, False),
        ({"command": "line\nsudo"}, True),
        ({"command": "\udc80 sudo"}, True),
    ],
)
def test_a_deny_is_searched_in_every_text_of_the_arguments(arguments: JsonObject, found):
    judge = gate(deny("bash", args_match="sudo"), default="allow")
    assert verdict(judge, call("bash", arguments=arguments)) == ("deny" if found else "allow")


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        ({"command": "git status"}, True),
        ({"command": "git status", "timeout": 5}, True),
        ({"command": "rm x", "note": "git status"}, False),
        ({"timeout": 5}, False),
        ({"command": "git status\nrm x"}, False),
    ],
)
def test_an_allow_needs_every_text_to_match(arguments: JsonObject, allowed):
    judge = gate(allow("bash", args_match=r"^git [a-z ]+$"))
    assert verdict(judge, call("bash", arguments=arguments)) == ("allow" if allowed else "deny")


def test_arguments_that_are_no_object_are_searched_as_they_came():
    invocation = call("bash")
    invocation = replace(invocation, call=replace(invocation.call, arguments=None, raw_arguments="[sudo"))
    assert verdict(gate(deny("bash", args_match="sudo"), default="allow"), invocation) == "deny"


def test_a_pattern_that_takes_others_for_ever_takes_no_time_here():
    judge = gate(deny("bash", args_match="(a*)*b"), default="allow")
    assert verdict(judge, command("a" * 50_000)) == "allow"


# --------------------------------------------------------------------------------------------------- paths


@pytest.mark.parametrize(
    "path",
    ["secrets/key", "./secrets/key", "src/../secrets/key", "secrets//key", "SECRETS/Key", "secrets", "secrets/a\nb"],
)
def test_a_deny_finds_a_path_in_every_spelling(cwd, path):
    for pattern in (f"{cwd}/secrets/*", "secrets/*"):
        assert verdict(gate(deny("read", paths=[pattern]), cwd=cwd, default="allow"), reading(path)) == "deny"


def test_a_deny_follows_links_and_knows_the_link_too(cwd):
    os.makedirs(f"{cwd}/secrets")
    os.symlink("secrets", f"{cwd}/plain")
    for pattern in ("secrets/*", "plain/*"):
        judge = gate(deny("read", paths=[pattern]), cwd=cwd, default="allow")
        assert verdict(judge, reading("plain/key")) == "deny"


def test_an_allow_knows_only_where_a_path_really_leads(cwd):
    os.makedirs(f"{cwd}/public")
    os.symlink("/etc", f"{cwd}/public/etc")
    judge = gate(allow("read", paths=["public/*"]), cwd=cwd)
    assert verdict(judge, reading("public/file")) == "allow"
    for path in ("public/etc/passwd", "public/../secret", "/etc/passwd", "public/etc/../x", "public/a\0b", "Public/x"):
        assert verdict(judge, reading(path)) == "deny", path


def test_two_slashes_in_front_are_one():
    judge = gate(deny("read", paths=["/etc/*"]), default="allow")
    blind = PolicyGate(Policy((deny("read", paths=["/etc/*"]),)), cwd="/p", realpath=str, trust=_trusted)
    for path in ("//etc/passwd", "///etc/passwd", "/./etc/passwd"):
        assert verdict(judge, reading(path)) == verdict(blind, reading(path)) == "deny"


def test_a_home_folder_is_meant_by_a_tilde_in_rules_and_calls(monkeypatch, cwd):
    monkeypatch.setenv("HOME", cwd)
    judge = gate(deny("read", paths=["~/.ssh/*"]), cwd=cwd, default="allow")
    assert verdict(judge, reading("~/.ssh/id")) == verdict(judge, reading(f"{cwd}/.ssh/id")) == "deny"


def test_an_allow_needs_all_paths_of_a_call_and_a_deny_only_one(cwd):
    both = call("move_path", PathSubject("src/a", Access.MOVE), PathSubject("/etc/a", Access.WRITE))
    assert verdict(gate(allow("*", paths=["src/*"]), cwd=cwd), both) == "deny"
    assert verdict(gate(allow("*", paths=["src/*", "/etc/*"]), cwd=cwd), both) == "allow"
    assert verdict(gate(deny("*", paths=["/etc/*"]), cwd=cwd, default="allow"), both) == "deny"


def test_a_call_without_paths_matches_no_rule_on_paths(cwd):
    for judge, expected in (
        (gate(allow("grep", paths=["*"]), cwd=cwd), "deny"),
        (gate(deny("grep", paths=["*"]), cwd=cwd, default="allow"), "allow"),
    ):
        assert verdict(judge, call("grep")) == expected


@pytest.mark.parametrize("access", [Access.DELETE, Access.MOVE])
def test_what_takes_a_folder_away_takes_what_is_below_it(cwd, access):
    judge = gate(deny("*", paths=[f"{cwd}/src/keep/*"]), cwd=cwd, default="allow")
    for path in ("src", "src/", f"{cwd}/src/keep", "./src/../src"):
        assert verdict(judge, call("delete_path", PathSubject(path, access))) == "deny", path
    assert verdict(judge, call("delete_path", PathSubject("sr", access))) == "allow"
    assert verdict(judge, call("list_directory", PathSubject("src", Access.LIST))) == "allow"


def test_a_link_that_is_deleted_is_itself_what_is_meant(cwd):
    os.makedirs(f"{cwd}/src")
    os.symlink("/etc", f"{cwd}/src/link")
    invocation = call("delete_path", PathSubject("src/link", Access.DELETE))
    assert verdict(gate(allow("*", paths=["src/*"]), cwd=cwd), invocation) == "allow"
    for path in ("src/..", "src/link/..", "src/link/."):
        climbing = call("delete_path", PathSubject(path, Access.DELETE))
        judge = gate(allow("*", paths=["src/*", f"{cwd}/src/*"]), cwd=cwd)
        assert verdict(judge, climbing) == "deny", path


def test_a_url_is_matched_like_a_path():
    judge = gate(allow("fetch", paths=["https://docs.example/*"]))
    assert verdict(judge, call("fetch", UrlSubject("https://docs.example/a"))) == "allow"
    assert verdict(judge, call("fetch", UrlSubject("https://evil.example/a"))) == "deny"
    judge = gate(deny("fetch", paths=["https://evil.example/*"]), default="allow")
    assert verdict(judge, call("fetch", UrlSubject("https://EVIL.example/a"))) == "deny"


@pytest.mark.parametrize(
    "text",
    [
        "cat /etc/passwd",
        "cat '/etc/passwd'",
        "cat /e''tc/passwd",
        "cat //etc/./passwd",
        "ls && cat /etc/passwd",
        "timeout 5 cat /etc/passwd",
        "bash -c 'cat /etc/passwd'",
        "grep -f/etc/passwd x",
        "grep --file=/etc/passwd x",
        "env FILE=/etc/passwd make",
        "FILE=/etc/passwd make",
        "scp host:/etc/passwd .",
        "docker run -v /etc:/mnt x",
        "cat < /etc/passwd",
        "curl -d @/etc/passwd x",
        "cd /etc; cat passwd",
        "for f in a; do cat /etc/passwd; done",
        "cat ../../../../../../../../../../../../../etc/passwd",
    ],
)
def test_a_deny_finds_the_paths_in_a_command(cwd, text):
    judge = gate(deny("bash", paths=["/etc/*"]), cwd=cwd, default="allow")
    assert verdict(judge, command(text)) == "deny"


@pytest.mark.parametrize("text", ["cat $FILE", "cat $(echo x)", "cat /e?c/passwd", "cat 'unclosed", "ls src/*.py"])
def test_a_command_whose_paths_cannot_be_told_is_asked_about_where_some_are_denied(cwd, text):
    assert verdict(gate(deny("bash", paths=["/etc/*"]), cwd=cwd, default="allow"), command(text)) == "ask"
    assert verdict(gate(deny("bash", paths=["/etc/*"]), allow("bash"), cwd=cwd), command(text)) == "ask"
    assert verdict(gate(deny("read", paths=["/etc/*"]), cwd=cwd, default="allow"), command(text)) == "allow"
    assert verdict(gate(allow("bash", paths=["*"]), cwd=cwd), command(text)) == "deny"


def test_what_a_policy_is_in_doubt_about_full_auto_may_not_let_through(cwd):
    doubted = judged(gate(deny("bash", paths=["**/secret/**"]), cwd=cwd, default="allow")).judge(command("cat $x"))
    assert isinstance(doubted, Ask)
    assert doubted.firm


def test_a_command_with_more_paths_than_are_looked_at_is_asked_about(cwd):
    text = "ls " + " ".join(f"a/{number}" for number in range(MAX_WORDS + 5))
    assert verdict(gate(deny("bash", paths=["/etc/*"]), cwd=cwd, default="allow"), command(text)) == "ask"
    assert verdict(gate(allow("bash", paths=["*"]), cwd=cwd), command(text)) == "deny"


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("cat src/a", True),
        ("cat src/a > src/b", True),
        ("make CC=src/cc", True),
        ("cat src/a /etc/passwd", False),
        ("cat src/a > /tmp/b", False),
        ("cat src/../secret", False),
        ("cat src/a:/etc/b", False),
        ("cd .. && cat src/a", False),
        ("cat file", False),
    ],
)
def test_an_allow_needs_every_path_of_a_command(cwd, text, allowed):
    judge = gate(allow("bash", paths=["src/*"]), cwd=cwd)
    assert verdict(judge, command(text)) == ("allow" if allowed else "deny")


@pytest.mark.parametrize(
    "text",
    [
        "cat secrets",
        "cd secrets && cat a",
        "cd secrets; cat a",
        "grep -r k secrets",
        "cp -r secrets out",
        "tar cf x.tar secrets",
        "cat < secrets",
        "cd src && cat ../secrets/a",
        "mkdir x && cd secrets",
        "tar -Csecrets -cf x.tar a",
        "timeout 5 cat secrets",
        "cat Secrets",
        "git add secrets",
    ],
)
def test_a_deny_finds_names_without_a_slash_and_follows_the_folder(cwd, text):
    for pattern in (f"{cwd}/secrets/*", "secrets/*"):
        assert verdict(gate(deny("bash", paths=[pattern]), cwd=cwd, default="allow"), command(text)) == "deny"


@pytest.mark.parametrize("text", ["cd src && tar -C .. -cf x secrets/a", "cd src && ../tool secrets/a"])
def test_a_deny_finds_a_path_that_a_program_may_read_from_the_folder_of_the_session(cwd, text):
    assert verdict(gate(deny("bash", paths=["secrets/*"]), cwd=cwd, default="allow"), command(text)) == "deny"


@pytest.mark.parametrize(
    "text", ["grep -r k .", "cp -r . out", "tar cf x.tar ./", "cd src && grep -r k ..", "cp -r src/.. x"]
)
def test_a_folder_above_a_denied_path_is_asked_about(cwd, text):
    for pattern in (f"{cwd}/secrets/*", "secrets/*", f"{cwd}/secrets/key"):
        assert verdict(gate(deny("bash", paths=[pattern]), cwd=cwd, default="allow"), command(text)) == "ask"


def test_a_folder_between_is_above_too(cwd):
    judge = gate(deny("bash", paths=["src/keep/*"]), cwd=cwd, default="allow")
    assert verdict(judge, command("cp -r src out")) == "ask"
    assert verdict(judge, command("cd src && cat a")) == "allow"
    assert verdict(judge, command("cd src && cat keep/a")) == "deny"
    assert verdict(judge, command("cp -r sr out")) == "allow"


@pytest.mark.parametrize(
    "text",
    [
        "make secrets",
        "npm run secrets",
        "git secrets",
        "echo secrets",
        "grep secrets a",
        "cd src && cat secrets",
        "cat a",
        "ls",
    ],
)
def test_words_that_are_no_paths_are_no_denied_ones(cwd, text):
    assert verdict(gate(deny("bash", paths=["secrets/*"]), cwd=cwd, default="allow"), command(text)) == "allow"


def test_a_command_that_changes_the_folder_too_often_is_asked_about(cwd):
    text = "; ".join(f"cd {name}" for name in "abcdefghij")
    assert verdict(gate(deny("bash", paths=["/etc/*"]), cwd=cwd, default="allow"), command(text)) == "ask"


@pytest.mark.parametrize("text", ["cat s*/a", "cat sec*", "cd sec* && cat a", "cat [s]ecrets"])
def test_a_pattern_is_the_files_it_stands_for(cwd, text):
    os.makedirs(f"{cwd}/secrets")
    open(f"{cwd}/secrets/a", "w").close()
    rules = (deny("bash", paths=["secrets/*"]),)
    judge = PolicyGate(
        Policy(rules, Effect.ALLOW),
        cwd=cwd,
        realpath=os.path.realpath,
        trust=lambda _: TrustLevel.TRUSTED,
    )
    looking = partial(shell_names, resolve=inside(cwd))
    assert verdict(judge, command(text), looking) == "deny"
    assert verdict(judge, command("cat *.py"), looking) == "allow"
    assert verdict(judge, command("cat /e?c/passwd"), looking) == "ask", "outside nobody looks"
    assert verdict(gate(*rules, cwd=cwd, default="allow"), command(text)) in ("ask", "deny"), "nobody looked"


# ------------------------------------------------------------------------------------ env, trust, capabilities


def test_a_rule_that_wants_variables_applies_only_where_all_are_set():
    for variables, applies in (((), False), (("CI",), False), (("CI", "X", "Y"), True)):
        fields = {"env": ["CI", "X"], "variables": variables}
        assert verdict(gate(deny("bash", **fields), default="allow"), command("ls")) == ("deny" if applies else "allow")
        assert verdict(gate(allow("bash", **fields)), command("ls")) == ("allow" if applies else "deny")


def test_an_allow_wants_at_least_its_trust_and_a_deny_holds_up_to_its():
    for threshold in TrustLevel:
        for trust in TrustLevel:
            allowed = verdict(gate(allow("bash", trust=threshold), trust=trust), command("ls")) == "allow"
            assert allowed == (trust.rank >= threshold.rank)
            denied = verdict(gate(deny("bash", trust=threshold), trust=trust, default="allow"), command("ls")) == "deny"
            assert denied == (trust.rank <= threshold.rank)


def test_capabilities_are_reserved_they_never_allow():
    assert verdict(gate(allow("bash", capabilities=["net"])), command("ls")) == "deny"
    assert verdict(gate(deny("bash", capabilities=["net"]), default="allow"), command("ls")) == "deny"


# ------------------------------------------------------------------------------------------------ failing closed


@each_row(
    "fields, told",
    [
        ({"tool": "bash", "args_match": "a("}, "args_match = a("),
        ({"tool": "bash", "args_match": r"(?=x)"}, "args_match"),
        ({"tool": "bash", "args_match": r"(x)\1"}, "args_match"),
        ({"tool": "bash", "args_match": "((a{1000}){1000}){1000}"}, "args_match"),
        ({"tool": "ba[sh"}, "tool = ba[sh"),
        ({"tool": "bash", "paths": ["/a", "/b\\"]}, "paths = /b\\"),
    ],
)
def test_a_pattern_that_is_none_is_an_error_that_names_rule_and_pattern(fields, told):
    tool = fields.pop("tool")
    with pytest.raises(ConfigError, match="expected another pattern") as caught:
        rule("deny", tool, place="policy.toml rules[3]", **fields)
    assert str(caught.value).startswith(f"policy.toml rules[3]: {told}")


async def test_a_policy_that_cannot_be_read_lets_nothing_run_and_says_why():
    judge = gate(allow("*"), fault="policy.toml rules[3]: effect = maybe: expected allow or deny")
    result = await judged(judge).execute(reading("a"))
    assert result.failure is not None
    assert result.failure.message.endswith("policy.toml rules[3]: effect = maybe: expected allow or deny")
    assert not any(judge.allows(spec) for spec in SPECS.values())
    assert trace(judge, reading("a")) == [result.failure.message]


# --------------------------------------------------------------------------------------------- what people see


def test_the_trace_names_every_rule_up_to_the_one_that_decides():
    judge = gate(
        rule("deny", "bash", place="tools.policy.rules[0]", args_match="sudo"),
        rule("allow", "read", place="tools.policy.rules[1]"),
        rule("allow", "bash", place="tools.authorization.rules[0]", env=["CI"]),
        rule("deny", "*", place="tools.authorization.rules[1]"),
        rule("allow", "*", place="tools.authorization.rules[2]"),
    )
    assert trace(judge, command("ls")) == [
        "tools.policy.rules[0]: deny bash: no match, args_match is found nowhere",
        "tools.policy.rules[1]: allow read: no match, for other tools",
        "tools.authorization.rules[0]: allow bash: no match, not set: CI",
        "tools.authorization.rules[1]: deny *: matches",
        "decision: deny",
    ]


def test_the_trace_says_when_nothing_matched_and_when_it_is_in_doubt(cwd):
    assert trace(gate(default="allow"), command("ls")) == ["decision: allow, since no rule matches"]
    lines = trace(gate(deny("bash", paths=["/etc/*"]), cwd=cwd, default="allow"), command("cat $X"))
    assert lines[-1] == "decision: ask, since no rule matches"
    lines = trace(gate(deny("bash", paths=["/etc/*"]), cwd=cwd), command("cat $X"))
    assert lines[-1] == "decision: deny, since no rule matches"


@each_row(
    "rules, default, offered",
    [
        ([], "deny", False),
        ([], "allow", True),
        ([deny("bash")], "allow", False),
        ([deny("bash", args_match="x")], "allow", True),
        ([deny("bash", args_match="x")], "deny", False),
        ([allow("bash", args_match="x"), deny("*")], "deny", True),
        ([deny("read"), deny("sh")], "allow", False),
        ([deny("bash", capabilities=["net"])], "allow", False),
        ([deny("bash", phases=[Phase.AUTONOMOUS])], "allow", True),
    ],
)
def test_a_tool_that_no_rule_lets_through_leaves_the_catalogue(rules, default, offered):
    assert gate(*rules, default=default).allows(SPECS["bash"]) is offered


# ---------------------------------------------------------------------------------------------------- properties

PATHS = ["src/a", "src/b", "/etc/passwd", "."]
TEXTS = ["ls", "cat src/a", "cat /etc/passwd", "cat $X", "sudo ls", "ls; rm -rf /"]
invocations = st.sampled_from(
    [
        *(reading(path, access) for path in PATHS for access in Access),
        *(command(text) for text in TEXTS),
        call("fetch", UrlSubject("https://a.example/"), arguments={"url": "https://a.example/"}),
        call("mcp_x_y", McpSubject("x", "y"), arguments={"q": "a"}),
    ]
)
any_rule = st.builds(
    rule,
    st.sampled_from(["allow", "deny"]),
    st.sampled_from(["*", "bash", "read", "mcp_*", "f*"]),
    place=st.sampled_from(["a", "b"]),
    paths=st.lists(st.sampled_from(["src/*", "/etc/*", "*", "https://*", "/p/src/a"]), max_size=2),
    trust=st.none() | st.sampled_from(TrustLevel),
    args_match=st.none() | st.sampled_from(["a", "^ls$", "sudo"]),
    env=st.lists(st.sampled_from(["CI", "X"]), max_size=1),
    variables=st.just(["CI"]),
    capabilities=st.sampled_from([(), (), ("net",)]),
)
any_rules = st.lists(any_rule, max_size=5)
effects = st.sampled_from(["allow", "deny"])
levels = st.sampled_from(TrustLevel)
STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


class Fixed(Gate):
    """A gate that says always the same."""

    def __init__(self, said: Verdict) -> None:
        self.said = said

    def judge(self, facts: CallFacts) -> Verdict:
        return self.said


class Agreeing(Gate):
    """The last gate: a user who agrees to all of it. `asked` are the questions of the latest call."""

    def __init__(self) -> None:
        self.asked: list[Ask] = []

    async def examine(self, facts: CallFacts) -> Verdict:
        self.asked = facts.asks
        return Approved(ApprovedBy.USER)


@given(rules=any_rules, default=effects, trust=levels, invocation=invocations)
def test_the_first_rule_that_matches_decides_and_none_before_it(rules, default, trust, invocation):
    judge = gate(*rules, default=default, trust=trust)
    alone = [verdict(gate(each, default="allow" if each.effect is Effect.DENY else "deny", trust=trust), invocation)
             for each in rules]  # fmt: skip
    deciding = [each.effect.value for each, said in zip(rules, alone, strict=True) if said == each.effect.value]
    expected = (deciding or [default])[0]
    assert verdict(judge, invocation) in ({expected} if expected == "deny" else {"allow", "ask"})


@given(rules=any_rules, default=effects, trust=levels, invocation=invocations, extra=any_rule, at=st.integers(0, 5))
def test_one_more_deny_rule_never_lets_more_through(rules, default, trust, invocation, extra, at):
    extra = replace(extra, effect=Effect.DENY)
    before = verdict(gate(*rules, default=default, trust=trust), invocation)
    after = verdict(gate(*rules[:at], extra, *rules[at:], default=default, trust=trust), invocation)
    assert STRICTNESS[after] >= STRICTNESS[before]


@given(rules=any_rules, default=effects, one=levels, other=levels, invocation=invocations)
def test_less_trust_never_lets_more_through(rules, default, one, other, invocation):
    less, more = sorted((one, other), key=lambda level: level.rank)
    low, high = (verdict(gate(*rules, default=default, trust=trust), invocation) for trust in (less, more))
    assert STRICTNESS[low] >= STRICTNESS[high]


@given(
    rules=any_rules,
    default=effects,
    invocation=invocations,
    said=st.sampled_from([Allow(), Ask("why"), Deny("no")]),
    fault=st.sampled_from(["", "broken"]),
    outside=st.booleans(),
)
async def test_no_policy_weakens_what_another_gate_says(rules, default, invocation, said, fault, outside):
    policy = Policy(tuple(rules), Effect(default), fault)
    judge = PolicyGate(policy, cwd="/p", realpath=os.path.realpath, trust=_trusted)
    agreeing = Agreeing()
    both = (judge, Fixed(said)) if outside else (Fixed(said), judge)
    chain = Judged(*both, agreeing, expand=unlooked)
    await chain.execute(invocation)
    assert not (chain.recorder.ran and isinstance(said, Deny))
    if chain.recorder.ran and isinstance(said, Ask):
        assert said in agreeing.asked


@given(rules=any_rules, default=effects, text=st.sampled_from(["sudo ls", "rm -rf /", "curl x", "$(x)"]))
async def test_no_policy_lifts_the_blocklist(rules, default, text):
    policy = PolicyGate(Policy(tuple(rules), Effect(default)), cwd="/p", realpath=os.path.realpath, trust=_trusted)
    chain = Judged(BlocklistGate(BlocklistPolicy()), policy, Agreeing(), expand=unlooked)
    assert (await chain.execute(command(text))).failure is not None
    assert chain.recorder.ran == []


@given(
    rules=any_rules, default=effects, name=st.sampled_from(["bash", "read", "fetch", "mcp_x_y"]), invocation=invocations
)
def test_a_tool_that_left_the_catalogue_is_refused_if_called_anyway(rules, default, name, invocation):
    judge = gate(*rules, default=default)
    if invocation.spec.name == name and not judge.allows(SPECS[name]):
        assert verdict(judge, invocation) == "deny"


def test_facts_need_no_file_system_where_no_rule_is_about_paths():
    def never(path: str) -> str:
        raise AssertionError(path)

    judge = PolicyGate(Policy((deny("x"),)), cwd="/p", realpath=never, trust=_trusted)
    assert verdict(judge, reading("a")) == "allow"
