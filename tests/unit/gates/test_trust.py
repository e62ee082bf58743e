"""Trust: what a call may do by its origin, and what a folder brings counts only when the user said so."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.ports import Decision
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.types import (
    Access,
    Allow,
    ApprovedBy,
    Ask,
    CallOrigin,
    CommandSubject,
    Deny,
    McpSubject,
    PathSubject,
    Subject,
    ToolResult,
    UrlSubject,
)
from acp_agent.gates.gate import Gates
from acp_agent.gates.rules.policy_rules import TrustLevel, lowest
from acp_agent.gates.trust import SessionTrust, TrustGate, contents_digest, workspace_trust
from acp_agent.store.decisions import TrustedFolders
from tests.unit.gates.chain import SPECS, Judged, ScriptedApprover, Warnings, call, command, full_auto

pytestmark = pytest.mark.anyio
MCP = McpSubject("x", "y")
CALLS = {
    "bash": command("ls"),
    "write": call("write", PathSubject("a", Access.WRITE)),
    "delete": call("delete_path", PathSubject("a", Access.DELETE)),
    "fetch": call("fetch", UrlSubject("https://a.example/")),
    "read": call("read", PathSubject("a", Access.READ)),
    "list": call("list_directory", PathSubject("a", Access.LIST)),
    "hidden command": call("list_directory", CommandSubject("tree")),
    "no subjects": call("write"),
    "mcp": call("mcp_x_y", MCP),
    "mcp that runs": call("mcp_x_y", MCP, CommandSubject("ls")),
    "mcp that fetches": call("mcp_x_y", MCP, UrlSubject("https://a.example/")),
}
ACTING = {"bash", "write", "delete", "hidden command", "no subjects", "mcp", "mcp that runs", "mcp that fetches"}
REACHING = {"fetch", "mcp that fetches"}


def verdicts(trust: SessionTrust) -> dict[str, str]:
    judged = Judged(TrustGate(trust, SessionOptions()))
    names = {Allow: "allow", Ask: "ask", Deny: "deny"}
    return {name: names[type(judged.judge(invocation))] for name, invocation in CALLS.items()}


def which(trust: SessionTrust, said: str) -> set[str]:
    return {name for name, verdict in verdicts(trust).items() if verdict == said}


# ------------------------------------------------------------------------------------------------------ levels


def test_levels_are_ordered():
    order = [TrustLevel.BLOCKED, TrustLevel.UNTRUSTED, TrustLevel.PROVISIONAL, TrustLevel.TRUSTED]
    assert sorted(TrustLevel, key=lambda level: level.rank) == order
    assert [level.counts for level in order] == [False, False, True, True]
    assert lowest(TrustLevel.TRUSTED, TrustLevel.UNTRUSTED, TrustLevel.PROVISIONAL) is TrustLevel.UNTRUSTED


def test_our_own_tools_pass_and_a_server_nobody_vouched_for_asks():
    trust = SessionTrust()
    assert which(trust, "ask") == {"mcp"}
    assert which(trust, "deny") == {"mcp that runs", "mcp that fetches"}
    trust.tools["mcp_x_y"] = TrustLevel.PROVISIONAL
    assert set(verdicts(trust).values()) == {"allow"}


def test_an_untrusted_turn_reads_and_no_more():
    trust = SessionTrust(turn=TrustLevel.UNTRUSTED, tools={"mcp_x_y": TrustLevel.TRUSTED})
    assert which(trust, "deny") == ACTING | REACHING
    assert which(trust, "allow") == {"read", "list"}


@pytest.mark.parametrize("trust", [SessionTrust(turn=TrustLevel.BLOCKED), SessionTrust(TrustLevel.BLOCKED)])
def test_a_blocked_turn_does_nothing(trust):
    assert which(trust, "deny") == set(CALLS)


def test_a_blocked_tool_does_nothing_and_leaves_the_catalogue():
    trust = SessionTrust(tools={"bash": TrustLevel.BLOCKED})
    gate = TrustGate(trust, SessionOptions())
    assert verdicts(trust)["bash"] == "deny"
    assert {name for name, spec in SPECS.items() if not gate.allows(spec)} == {"bash"}
    trust.tools.clear()
    assert verdicts(trust)["bash"] == "allow"
    assert gate.allows(SPECS["bash"])


def test_in_an_untrusted_folder_what_runs_or_changes_asks():
    trust = SessionTrust(workspace=TrustLevel.UNTRUSTED, tools={"mcp_x_y": TrustLevel.TRUSTED})
    assert which(trust, "ask") == ACTING
    assert which(trust, "allow") == {"read", "list", "fetch"}


async def test_a_denial_names_what_decided():
    result = await Judged(TrustGate(SessionTrust(turn=TrustLevel.UNTRUSTED), SessionOptions())).execute(command("ls"))
    assert result.ruling is not None
    assert (result.ruling.gate, result.ruling.rule) == ("trust", "turn untrusted")


async def test_what_a_call_that_ran_brought_lowers_the_trust_in_what_follows():
    ran, refused = ToolResult("out").ruled(ApprovedBy.AUTO), ToolResult("out")
    web = call("fetch", UrlSubject("https://x.org/a"))
    web = replace(web, spec=replace(web.spec, external=True))
    mine, reading = call("read", PathSubject("a", Access.READ)), command("cat a")
    untrusted, trusted = TrustLevel.UNTRUSTED, TrustLevel.PROVISIONAL
    for invocation, folder, result, sources in (
        (web, trusted, ran, ["x.org"]),
        (web, untrusted, ran, ["x.org"]),
        (web, trusted, refused, []),
        (mine, trusted, ran, []),
        (mine, untrusted, ran, ["this folder, which is not trusted"]),
        (mine, untrusted, refused, []),
        (reading, untrusted, ran, ["this folder, which is not trusted"]),
        (call("grep"), untrusted, ran, []),
    ):
        trust = SessionTrust(workspace=folder)
        gate = TrustGate(trust, SessionOptions())
        assert await gate.conclude(Gates((gate,)).facts(invocation), result) is result
        assert list(trust.read_from) == sources, (invocation.spec.name, folder)


async def test_only_the_users_own_yes_to_a_question_of_trust_settles_it():
    for by, text, agreed in (
        (ApprovedBy.USER, "make", True),
        (ApprovedBy.AUTO, "make", False),
        (ApprovedBy.USER, "ls", False),
    ):
        trust = SessionTrust(read_from={"a page": False})
        gate = TrustGate(trust, SessionOptions())
        await gate.conclude(Gates((gate,)).facts(command(text)), ToolResult("out").ruled(by))
        assert trust.read_from == {"a page": agreed}, (by, text)


def test_a_yes_covers_no_later_source_however_many_there_were():
    trust = SessionTrust()
    gate = Judged(TrustGate(trust, SessionOptions()))
    trust.has_read(f"{number}.example" for number in range(100))
    trust.agree()
    trust.has_read(["0.example"])
    assert isinstance(gate.judge(command("make")), Allow)
    trust.has_read(["new.example"])
    assert isinstance(gate.judge(command("make")), Ask)


async def test_an_ask_travels_on_with_the_call_whatever_rules_say_later():
    judged = Judged(TrustGate(SessionTrust(), SessionOptions()))
    result = await judged.execute(CALLS["mcp"])
    assert result.failure is not None
    assert result.failure.message == "a tool of x, which is not trusted; nobody can be asked"
    assert judged.recorder.ran == []


def test_where_nothing_is_asked_what_would_be_is_refused_but_not_to_the_user_himself():
    gate = Judged(TrustGate(SessionTrust(workspace=TrustLevel.UNTRUSTED), full_auto()))
    mine = call("mcp_x_y", MCP, origin=CallOrigin.USER)
    for invocation in (CALLS["mcp"], CALLS["bash"]):
        verdict = gate.judge(invocation)
        assert isinstance(verdict, Deny)
        assert verdict.category is ToolErrorCategory.CONFIRMATION_REQUIRED
        assert "full-auto" in verdict.reason
    assert isinstance(gate.judge(CALLS["read"]), Allow)
    assert isinstance(gate.judge(mine), Ask)
    asking = Judged(TrustGate(SessionTrust(), SessionOptions()))
    assert isinstance(asking.judge(CALLS["mcp"]), Ask)


@pytest.mark.parametrize(
    ("trust", "expected"),
    [
        (SessionTrust(), "trusted"),
        (SessionTrust(workspace=TrustLevel.UNTRUSTED), "untrusted"),
        (SessionTrust(workspace=TrustLevel.TRUSTED, turn=TrustLevel.PROVISIONAL), "provisional"),
        (SessionTrust(tools={"bash": TrustLevel.BLOCKED}), "blocked"),
    ],
)
def test_a_call_is_trusted_as_far_as_the_least_it_depends_on(trust, expected):
    assert trust.of(command("ls")).value == expected


subjects = st.lists(
    st.one_of(
        st.builds(PathSubject, st.just("a"), st.sampled_from(Access)),
        st.just(CommandSubject("ls")),
        st.just(UrlSubject("https://a.example/")),
        st.just(MCP),
    ),
    max_size=3,
)
levels = st.sampled_from(TrustLevel)
STRICTNESS = {Allow: 0, Ask: 1, Deny: 2}


@given(name=st.sampled_from(list(SPECS)), touched=subjects, one=st.tuples(levels, levels, levels), other=levels)
def test_less_trust_never_lets_more_through(name, touched: list[Subject], one, other):
    invocation = call(name, *touched)

    def strictness(turn: TrustLevel, folder: TrustLevel, tool: TrustLevel) -> int:
        return STRICTNESS[
            type(Judged(TrustGate(SessionTrust(turn, folder, {name: tool}), SessionOptions())).judge(invocation))
        ]

    turn, folder, tool = one
    before = strictness(turn, folder, tool)
    for changed in ((other, folder, tool), (turn, other, tool), (turn, folder, other)):
        less = all(new.rank <= old.rank for new, old in zip(changed, one, strict=True))
        after = strictness(*changed)
        assert (after >= before) if less else (after <= before)


# ------------------------------------------------------------------------------------------------------ folders

MCP_JSON = {".mcp.json": b'{"mcpServers": {"x": {"command": "./run"}}}'}


class World:
    """A folder, a store in a file, and a user with answers."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "project"
        self.folder.mkdir()
        self.warnings = Warnings()
        self.file = tmp_path / "data" / "trusted-folders.toml"

    async def ask(
        self, *answers: Decision, files=MCP_JSON, folder: Path | None = None
    ) -> tuple[TrustLevel | None, int]:
        """The level, and how many questions it took. The store is opened anew, as by another process."""
        approver = ScriptedApprover(*answers)
        store = TrustedFolders(os.fspath(self.file), self.warnings)
        level = await workspace_trust(os.fspath(folder or self.folder), files, store, approver)
        self.questions = approver.questions
        return level, len(approver.questions)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_folder_that_brings_nothing_is_not_asked_about(world):
    assert await world.ask(Decision.ALLOW_ALWAYS, files={}) == (TrustLevel.PROVISIONAL, 0)
    assert not world.file.exists()


async def test_always_is_asked_once_and_outlives_the_process(world):
    assert await world.ask(Decision.ALLOW_ALWAYS) == (TrustLevel.TRUSTED, 1)
    assert await world.ask() == (TrustLevel.TRUSTED, 0)


async def test_a_no_for_ever_is_kept_as_well(world):
    assert await world.ask(Decision.REJECT_ALWAYS) == (TrustLevel.UNTRUSTED, 1)
    assert await world.ask(Decision.ALLOW_ALWAYS) == (TrustLevel.UNTRUSTED, 0)


async def test_once_holds_for_this_session_only(world):
    assert await world.ask(Decision.ALLOW_ONCE) == (TrustLevel.PROVISIONAL, 1)
    assert await world.ask(Decision.REJECT_ONCE) == (TrustLevel.UNTRUSTED, 1)
    assert not world.file.exists()


@pytest.mark.parametrize("answer", [Decision.CANCELLED, Decision.UNANSWERED])
async def test_no_answer_is_no_trust_and_is_not_kept(world, answer):
    assert await world.ask(answer) == (TrustLevel.UNTRUSTED, 1)
    assert await world.ask(Decision.ALLOW_ALWAYS) == (TrustLevel.TRUSTED, 1)


async def test_with_nobody_to_ask_nothing_is_trusted_but_what_was_answered_before(world):
    store = TrustedFolders(os.fspath(world.file), world.warnings)
    folder = os.fspath(world.folder)
    assert await workspace_trust(folder, MCP_JSON, store, None) is None
    await world.ask(Decision.ALLOW_ALWAYS)
    assert await workspace_trust(folder, MCP_JSON, store, None) is TrustLevel.TRUSTED


@pytest.mark.parametrize(
    "changed",
    [
        {".mcp.json": MCP_JSON[".mcp.json"] + b" "},
        {".mcp.json": MCP_JSON[".mcp.json"], "hooks.toml": b""},
        {"mcp.json": MCP_JSON[".mcp.json"]},
    ],
)
async def test_changed_contents_ask_again_and_the_old_ones_stay_answered(world, changed):
    await world.ask(Decision.ALLOW_ALWAYS)
    assert await world.ask(Decision.REJECT_ALWAYS, files=changed) == (TrustLevel.UNTRUSTED, 1)
    assert await world.ask() == (TrustLevel.TRUSTED, 0)


async def test_a_trusted_folder_vouches_for_no_other_not_even_below_it(world):
    await world.ask(Decision.ALLOW_ALWAYS)
    for name in ("project/child", "project2", "."):
        other = world.folder.parent / name
        other.mkdir(exist_ok=True)
        assert await world.ask(folder=other) == (TrustLevel.UNTRUSTED, 1), name


async def test_a_link_to_a_folder_is_the_folder(world):
    await world.ask(Decision.ALLOW_ALWAYS)
    link = world.folder.parent / "link"
    link.symlink_to(world.folder)
    assert await world.ask(folder=link) == (TrustLevel.TRUSTED, 0)
    elsewhere = world.folder.parent / "elsewhere"
    elsewhere.mkdir()
    link.unlink()
    link.symlink_to(elsewhere)
    assert await world.ask(folder=link) == (TrustLevel.UNTRUSTED, 1)


async def test_a_damaged_file_trusts_nothing(world):
    await world.ask(Decision.ALLOW_ALWAYS)
    world.file.write_text(world.file.read_text() + "\n[[")
    assert await world.ask() == (TrustLevel.UNTRUSTED, 1)
    assert "no folder is trusted" in world.warnings.lines[0]


async def test_the_question_shows_folder_names_and_contents_with_nothing_hidden(world):
    files = {".mcp.json": b"run\n\xe2\x80\xaeevil\x1b[2J\xff", "hooks.toml": b"a" * 5000 + b"tail"}
    await world.ask(files=files)
    (question,) = world.questions
    assert question.title == "This folder brings its own settings (.mcp.json, hooks.toml): use them?"
    assert os.fspath(world.folder) in question.reasons[0]
    first = ".mcp.json (16 bytes):\nrun\n<U+202E>evil<U+001B>[2J\N{REPLACEMENT CHARACTER}"
    assert question.text == f"{first}\n\nhooks.toml (5,004 bytes):\n{'a' * 5000}tail"
    assert question.raw_input == {"folder": os.fspath(world.folder), "files": [".mcp.json", "hooks.toml"]}
    assert "when they change, you are asked again" in question.always
    assert question.locations == tuple(os.path.join(world.folder, name) for name in files)


async def test_what_would_be_done_is_shown_once_each_in_place_of_contents(world):
    store = TrustedFolders(os.fspath(world.file), world.warnings)
    approver = ScriptedApprover(Decision.REJECT_ONCE)
    wishes = ["a would start", "b would start", "a would start"]
    await workspace_trust(os.fspath(world.folder), {".acp-agent/config.toml": b"[whatever]"}, store, approver, wishes)
    (question,) = approver.questions
    assert question.reasons[1:] == ("a would start", "b would start")
    assert "bytes" not in "\n".join(question.reasons)
    assert question.title == "This folder brings its own settings (.acp-agent/config.toml): use them?"


names = st.text(st.sampled_from("ab\0"), max_size=2)
sets_of_files = st.dictionaries(names, st.binary(max_size=3), max_size=3)


@given(one=sets_of_files, other=sets_of_files)
def test_two_sets_of_files_share_a_digest_only_when_they_are_one(one, other):
    assert (contents_digest(one) == contents_digest(other)) == (one == other)
    assert contents_digest(dict(reversed(one.items()))) == contents_digest(one)


def test_what_runs_into_its_neighbour_is_told_apart():
    assert contents_digest({"a": b"bc"}) != contents_digest({"ab": b"c"})
    assert contents_digest({"a": b"", "b": b""}) != contents_digest({"a": b"\0b"})


def test_a_path_that_changes_counts_whatever_the_tool_says_of_itself():
    writing = call("read", PathSubject("a", Access.WRITE))
    folder = TrustGate(SessionTrust(workspace=TrustLevel.UNTRUSTED), SessionOptions())
    assert isinstance(Judged(folder).judge(writing), Ask)
    skill = TrustGate(SessionTrust(turn=TrustLevel.UNTRUSTED), SessionOptions())
    assert isinstance(Judged(skill).judge(writing), Deny)


def test_of_many_sources_only_the_first_are_named():
    trust = SessionTrust()
    trust.has_read(str(number) for number in range(30))
    assert [*trust.read_from] == [*map(str, range(20)), "more sources"]
