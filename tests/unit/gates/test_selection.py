"""Which tools a session has: profile, lists, groups, models, the session's own list."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.load import Flags, load
from acp_agent.config.tool_settings import ModelTools, Profile
from acp_agent.core.errors import ConfigError, ToolErrorCategory
from acp_agent.core.events import Event
from acp_agent.core.session_options import Mode, SessionOptions
from acp_agent.core.types import CallOrigin, ToolKind, ToolSpec
from acp_agent.gates.gate import Gate
from acp_agent.gates.grants import Grant, GrantKind, GrantsInForce, GrantStore, SessionAnswers
from acp_agent.gates.limits import AnomalyDetector, AnomalyGate, Outcome
from acp_agent.gates.permission import PermissionGate
from acp_agent.gates.policy import Policy, PolicyGate
from acp_agent.gates.rules.policy_rules import TrustLevel
from acp_agent.gates.selection import (
    GROUPS,
    MAX_ENTRIES,
    PROFILES,
    Selection,
    SelectionGate,
    ToolChoice,
    for_model,
    session_tools,
    unknown_entries,
)
from acp_agent.session.toolset.settings import FolderRules
from acp_agent.tools.lsp import lsp_tools
from acp_agent.tools.registry import default_tools
from tests.rows import each_row
from tests.unit.gates.chain import SPECS, Chain, Judged, call, command

pytestmark = pytest.mark.anyio

BUILT_IN = (
    "bash",
    "read",
    "write",
    "edit",
    "list_directory",
    "find_path",
    "grep",
    "delete_path",
    "fetch",
    "diagnostics",
    "memory_save",
)
MCP = ("mcp_git_log", "mcp_git_hub_issue", "mcp_db_query")
TOOLS = (*BUILT_IN, *MCP)
SERVERS = ("git", "git_hub", "db")
ENTRIES = (
    *TOOLS,
    "glob",
    "edit_file",
    "Shell",
    "group:fs",
    "group:web",
    "group:nothing",
    "mcp",
    "mcp:git",
    "mcp:git_hub",
    "GROUP:FS",
)

entries = st.lists(st.sampled_from(ENTRIES), max_size=4).map(tuple)
choices = st.builds(ToolChoice, st.sampled_from(list(PROFILES)), entries, entries, entries, st.none() | entries)


def offered(choice: ToolChoice, servers: Sequence[str] = SERVERS) -> set[str]:
    selection = Selection(choice, servers)
    return {tool for tool in TOOLS if not selection.objection(tool)}


def test_the_profiles_are_what_they_say():
    assert offered(ToolChoice()) == set(TOOLS)
    assert offered(ToolChoice("coding")) == set(BUILT_IN)
    assert offered(ToolChoice("minimal")) == {"read", "list_directory", "find_path", "grep"}
    assert set(PROFILES) == {profile.value for profile in Profile}


def test_every_built_in_tool_of_today_belongs_to_coding():
    selection = Selection(ToolChoice("coding"))
    assert [tool.name for tool in default_tools() if selection.objection(tool.name)] == []


def test_a_custom_tool_is_a_command_so_profiles_with_commands_have_it_and_lists_name_it():
    def objection(**choice: Any) -> str:
        return Selection(ToolChoice(**choice)).objection("deploy", commands=True)

    assert objection(profile="coding") == objection(allow=("deploy",)) == objection(profile="full") == ""
    assert objection(profile="minimal") == "tools.profile: minimal"
    assert objection(profile="coding", allow=("bash",)) == "tools.allow"
    assert objection(deny=("bash",)) == "tools.deny: bash"
    assert objection(deny=("read",)) == ""


def test_the_tools_of_language_servers_are_a_group_of_coding():
    names = {tool.name for tool in lsp_tools(lambda _: True)}
    assert GROUPS["lsp"] == names
    assert [name for name in names if Selection(ToolChoice("coding")).objection(name)] == []


def test_groups_and_other_names_are_understood():
    assert offered(ToolChoice(allow=("group:fs",))) == set(BUILT_IN) & GROUPS["fs"]
    assert offered(ToolChoice(allow=("glob", "EDIT_FILE", "Shell", " read "))) == {"find_path", "edit", "bash", "read"}
    assert offered(ToolChoice(allow=("mcp",))) == offered(ToolChoice(allow=("group:mcp",))) == set(MCP)
    assert offered(ToolChoice(deny=("group:web", "glob"))) == set(TOOLS) - {"fetch", "find_path"}


def test_a_server_is_told_from_another_with_a_longer_name():
    assert offered(ToolChoice(allow=("mcp:git",))) == {"mcp_git_log"}
    assert offered(ToolChoice(allow=("mcp:Git.Hub",))) == {"mcp_git_hub_issue"}
    assert offered(ToolChoice(allow=("mcp:gone",))) == set()


def test_also_allow_adds_to_a_profile_and_deny_is_final():
    assert offered(ToolChoice("minimal", also_allow=("bash", "mcp:db"))) >= {"bash", "mcp_db_query", "read"}
    assert "bash" not in offered(ToolChoice("minimal", also_allow=("bash",), deny=("group:runtime",)))
    assert "bash" not in offered(ToolChoice("full", allow=("bash",), also_allow=("bash",), deny=("sh",)))


def test_the_sessions_list_only_takes_away():
    assert offered(ToolChoice(session=("read", "bash"))) == {"read", "bash"}
    assert offered(ToolChoice("minimal", session=("read", "bash"))) == {"read"}
    assert offered(ToolChoice(session=())) == set()


@given(choices, st.sampled_from(ENTRIES))
def test_adding_to_deny_never_adds_a_tool(choice: ToolChoice, entry: str):
    more = ToolChoice(choice.profile, choice.allow, (*choice.deny, entry), choice.also_allow, choice.session)
    assert offered(more) <= offered(choice)


@given(choices, st.sampled_from(ENTRIES))
def test_what_is_denied_comes_back_through_nothing(choice: ToolChoice, entry: str):
    denied = set(TOOLS) - offered(ToolChoice(deny=(entry,)))
    everywhere = ToolChoice(choice.profile, (*choice.allow, entry), (entry,), (*choice.also_allow, entry), (entry,))
    assert not offered(everywhere) & denied


@given(choices, entries)
def test_a_sessions_list_never_adds_a_tool(choice: ToolChoice, session: tuple[str, ...]):
    without = ToolChoice(choice.profile, choice.allow, choice.deny, choice.also_allow)
    assert offered(ToolChoice(choice.profile, choice.allow, choice.deny, choice.also_allow, session)) <= offered(
        without
    )


# ------------------------------------------------------------------------------------------- models


def test_the_first_model_that_matches_counts_and_its_deny_adds():
    general = ToolChoice("coding", deny=("fetch",), also_allow=("mcp:db",))
    small = {"Ollama:*": ModelTools(profile=Profile.MINIMAL, deny=("grep",), also_allow=("write",))}
    models = {**small, "*": ModelTools(allow=("read",))}
    assert for_model(general, models, "ollama:Small") == ToolChoice(
        "minimal", (), ("fetch", "grep"), ("mcp:db", "write")
    )
    assert for_model(general, models, "openai:x").allow == ("read",)
    assert for_model(general, models, "openai:x").profile == "coding"
    assert for_model(general, small, "openai:x") is general
    assert for_model(ToolChoice(allow=("read",)), {"*": ModelTools(allow=())}, "a:b").allow == ()


@given(choices, entries, entries)
def test_no_model_brings_back_what_is_denied_in_general(
    choice: ToolChoice, allow: tuple[str, ...], also: tuple[str, ...]
):
    denied = set(TOOLS) - offered(ToolChoice(deny=choice.deny))
    merged = for_model(choice, {"*": ModelTools(profile=Profile.FULL, allow=allow, also_allow=also)}, "a:b")
    assert not offered(merged) & denied


# -------------------------------------------------------------------------------------------- words


def test_unknown_entries_are_told_with_what_is_close():
    choice = ToolChoice(
        allow=("raed", "group:webs"), deny=("read_fil", "qqqq"), also_allow=("mcp:any", "mcp_x_y"), session=("bsh",)
    )
    problems = [str(problem) for problem in unknown_entries(choice, BUILT_IN)]
    assert len(problems) == 5
    for problem, key, hint in zip(
        problems,
        ("tools.allow", "tools.allow", "tools.deny", "tools.deny", "_meta.acp_agent.tools"),
        ("read?", "group:web?", "read?", "group:fs", "bash?"),
        strict=True,
    ):
        assert key in problem
        assert hint in problem
    assert unknown_entries(ToolChoice(allow=("glob", "Group:FS", "memory_save", "mcp")), BUILT_IN) == []


def test_a_name_with_a_colon_is_no_tool():
    assert offered(ToolChoice(allow=("bash:x",))) == set()
    assert len(unknown_entries(ToolChoice(allow=("bash:x",)), BUILT_IN)) == 1


@each_row("meta", [None, {}, {"acp_agent": None}, {"acp_agent": {}}, {"acp_agent": {"tools": None}}, {"other": 1}])
def test_no_list_is_no_restriction(meta):
    assert session_tools(meta) is None


def test_a_sessions_list_is_read():
    assert session_tools({"acp_agent": {"tools": ["read", "group:web"]}, "x": 1}) == ("read", "group:web")
    assert session_tools({"acp_agent": {"tools": []}}) == ()
    assert session_tools({"acp_agent": {"tools": ["x" * 200] * MAX_ENTRIES}}) == ("x" * 200,) * MAX_ENTRIES


@each_row(
    "ours, expected",
    [
        ([], "an object"),
        ("read", "an object"),
        ({"tools": "read"}, "a list"),
        ({"tools": {"read": True}}, "a list"),
        ({"tools": 0}, "a list"),
        ({"tools": False}, "a list"),
        ({"tools": ["read"] * (MAX_ENTRIES + 1)}, "at most"),
        ({"tools": ["read", 1]}, r"tools\[1\]"),
        ({"tools": [None]}, r"tools\[0\]"),
        ({"tools": [" "]}, "the name of"),
        ({"tools": ["x" * 201]}, "the name of"),
    ],
)
def test_another_shape_is_an_error_that_says_what_was_expected(ours, expected: str):
    with pytest.raises(ConfigError, match=expected) as caught:
        session_tools({"acp_agent": ours})
    assert str(caught.value).startswith("session/new: _meta.acp_agent")
    assert len(str(caught.value)) < 400


# --------------------------------------------------------------------------------------------- gate


async def test_a_denied_tool_leaves_the_catalogue_and_is_refused_if_called_anyway():
    gate = SelectionGate(lambda: Selection(ToolChoice(deny=("group:runtime",))))
    judged = Judged(gate)
    assert not gate.allows(ToolSpec("bash", "", {}, ToolKind.EXECUTE, mutates=True))
    assert gate.allows(ToolSpec("read", "", {}, ToolKind.READ, mutates=False))
    for origin in CallOrigin:
        refused = await judged.execute(command("ls", origin=origin))
        assert refused.failure is not None
        assert refused.failure.category is ToolErrorCategory.POLICY_BLOCKED
        assert "group" not in refused.text
        assert refused.ruling is not None
        assert (refused.ruling.gate, refused.ruling.rule) == ("selection", "tools.deny: group:runtime")
    assert (await judged.execute(call("read"))).failure is None
    assert [each.spec.name for each in judged.recorder.ran] == ["read"]


async def test_another_selection_acts_at_once():
    profiles = ["minimal"]
    gate = Judged(SelectionGate(lambda: Selection(ToolChoice(profiles[-1]))))
    assert (await gate.execute(command("ls"))).failure is not None
    profiles.append("full")
    assert (await gate.execute(command("ls"))).failure is None


@pytest.mark.parametrize("pattern", ["small", "SMALL*", "ollama:small", "*:small", "s?all"])
def test_a_pattern_with_or_without_a_provider_denies(pattern: str):
    models = {pattern: ModelTools(deny=("bash",))}
    assert for_model(ToolChoice(), models, "ollama:Small").deny == ("bash",)
    assert for_model(ToolChoice(), models, "ollama:large").deny == ()


@pytest.mark.parametrize(
    "configured",
    [
        "",
        '[tools]\ndeny = ["grep"]\n',
        '[tools]\nprofile = "minimal"\nalso_allow = ["write"]\n',
        '[[tools.permissions.bash]]\npattern = "*"\naction = "deny"\n',
        '[tools.policy]\nenabled = true\ndefault_effect = "deny"\n',
        '[[tools.policy.rules]]\neffect = "deny"\ntool = "fetch"\n',
    ],
)
@pytest.mark.parametrize("mode", [Mode.CODE, Mode.ASK, Mode.ARCHITECT])
async def test_the_tools_offered_are_those_that_every_gate_allows(tmp_path: Path, configured: str, mode: Mode):
    (tmp_path / "config.toml").write_text(configured)
    loaded = load(Flags(), {"ACP_AGENT_CONFIG": str(tmp_path / "config.toml")})
    assert loaded.problems == ()
    for readonly in (False, True):
        options = SessionOptions(mode, readonly=readonly)
        chain = Chain(str(tmp_path), str(tmp_path / f"{readonly}.toml"), loaded=loaded, conduct=options)
        for denied in ("", "edit"):
            if denied:
                await chain.grants.remember(Grant(denied, GrantKind.TOOL, "", allowed=False))
            chain.trust.tools["write"] = TrustLevel.BLOCKED if denied else TrustLevel.TRUSTED
            specs = [*SPECS.values(), ToolSpec("of_users", "", {}, ToolKind.OTHER, mutates=False, users_only=True)]
            allowed = [spec for spec in specs if all(gate.allows(spec) for gate in chain.gates.in_order)]
            assert chain.gates.offered(specs) == allowed
            assert len(allowed) < len(specs)


async def test_whatever_keeps_a_tool_from_the_model_keeps_it_from_the_catalogue(tmp_path: Path):
    everything, narrow = Selection(ToolChoice()), Selection(ToolChoice(allow=("read",)))
    failing = AnomalyDetector(window_size=1)
    failing.record("edit", Outcome.BROKEN)
    unwritten, answers = GrantStore(os.devnull, pytest.fail), SessionAnswers()
    denial = Grant("edit", GrantKind.TOOL, "", allowed=False)
    await unwritten.remember(denial)
    answers.grants["edit", GrantKind.TOOL, ""] = denial
    files = FolderRules(load(Flags(), {}), str(tmp_path)).roots()

    def permission(grants: GrantsInForce) -> Gate:
        return PermissionGate(rules={}, options=SessionOptions(), grants=grants, approver=None, files=files)

    gates: dict[str, Gate] = {
        "a command of the user": SelectionGate(lambda: everything, lambda: ("read",)),
        "the definition of an agent": SelectionGate(lambda: everything, agent=lambda: narrow),
        "a policy that cannot be read": PolicyGate(
            Policy(fault="broken"), cwd="/p", realpath=str, trust=lambda _: TrustLevel.TRUSTED
        ),
        "failures": AnomalyGate(failing, unheard),
        "a denial that could not be stored": permission(GrantsInForce(unwritten)),
        "a denial for the session": permission(GrantsInForce(GrantStore(os.devnull, pytest.fail), answers)),
    }
    offered = {name for name, gate in gates.items() if SPECS["edit"] in Judged(gate).gates.offered([*SPECS.values()])}
    assert offered == set()


async def unheard(event: Event) -> None:
    del event
