"""Every kind of setting that forbids is taken up by a running session, and none is lost."""

import os
from typing import Any

import pytest

from acp_agent.core.errors import Refused
from acp_agent.core.services import WebCaller
from acp_agent.core.session_options import AutoApprove, Mode
from acp_agent.core.types import Access
from acp_agent.protocol.content import read_prompt
from acp_agent.protocol.options import set_mode
from tests.unit.session.live_session import LiveSession

pytestmark = pytest.mark.anyio

POLICY = "[tools.policy]\nenabled = true\ndefault_effect = 'allow'\n"
DENY_READ = "[[rules]]\neffect = 'deny'\ntool = 'read'\n"
BROKEN = "[tools.shell]\nblocked_commands = ['touch'\n"


@pytest.fixture
def live(live: LiveSession) -> LiveSession:
    (live.work / "secret.txt").write_text("the secret\n")
    return live


async def settled(live: LiveSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the configuration be older than a moment, as it soon would be: it is not read again before it changes."""
    old = live.config.stat().st_mtime_ns - 10**10
    os.utime(live.config, ns=(old, old))
    await live.tools.backends()
    monkeypatch.setattr("acp_agent.config.files._TICK", 0)


@pytest.mark.parametrize(
    ("setting", "command"),
    [
        ("[tools.shell]\nblocked_commands = ['touch']", "touch x"),
        ("[tools.shell]\nblocked_groups = ['destructive']", "rm -rf x"),
        ("[[tools.permissions.bash]]\npattern = 'touch*'\naction = 'deny'", "touch x"),
        (POLICY + "rules = [{ effect = 'deny', tool = 'bash' }]", "touch x"),
        ("[tools]\ndeny = ['bash']", "touch x"),
        ("[tools]\nallow = ['read']", "touch x"),
        ("[tools]\nprofile = 'minimal'", "touch x"),
        ("[tools]\nenabled = false", "touch x"),
    ],
)
async def test_what_forbids_a_command_is_taken_up_and_given_up_again(live: LiveSession, setting: str, command: str):
    live.open()
    assert await live.runs(command)
    live.write(setting + "\n")
    assert not await live.runs(command)
    live.write("[tools]\n")
    assert await live.runs(command)


@pytest.mark.parametrize(
    "setting",
    [
        "[tools.file]\ndeny_read = ['secret.txt']",
        "[tools.file]\nallow_read = ['open.txt']",
        "[[tools.permissions.read]]\npattern = '*secret*'\naction = 'deny'",
        "[tools]\ndeny = ['read']",
    ],
)
async def test_what_forbids_reading_is_taken_up_by_calls_and_by_prompts(live: LiveSession, setting: str):
    live.open()
    assert await live.reads()
    live.write(setting + "\n")
    assert not await live.reads()
    if "tools.file" in setting:
        with pytest.raises(Refused):
            await (await live.tools.backends()).files.read_text("secret.txt")


async def test_a_path_that_becomes_protected_is_asked_about(live: LiveSession):
    level = "[acp]\nauto_approve = 'auto-edit'\n"
    live.open(level)
    await live.call("write", path="Makefile", content="a:\n")
    assert not live.peer.asked
    live.write(f"{level}[tools.protection]\nprotected_paths = ['Makefile']\n")
    await live.call("write", path="Makefile", content="b:\n")
    assert len(live.peer.asked) == 1


async def test_a_verifier_that_is_switched_on_again_asks(live: LiveSession):
    (live.work / ".env").write_text("x")
    allowed = "[[tools.permissions.bash]]\npattern = 'cat*'\naction = 'allow'\n"
    live.open(f"{allowed}[tools.verifiers]\nfirewall = false\n")
    assert await live.runs("cat .env")
    assert not live.peer.asked
    live.write(allowed)
    assert await live.runs("cat .env")
    assert len(live.peer.asked) == 1


async def test_hosts_that_are_denied_are_refused_from_the_next_call_on(live: LiveSession):
    live.open("[tools.scrape]\nallowed_domains = ['docs.python.org']\n")
    live.write("[tools.scrape]\nallowed_domains = ['example.com']\n")
    web = (await live.tools.backends()).web
    with pytest.raises(Refused, match=r"docs\.python\.org"):
        await web.get("https://docs.python.org/3", WebCaller("fetch", "1"))


async def test_a_tool_that_is_denied_leaves_the_catalogue_and_comes_back(live: LiveSession):
    live.open()
    assert {"bash", "read"} <= live.offered
    live.write("[tools]\ndeny = ['bash']\n")
    assert "bash" not in live.offered
    live.write("[tools]\ndeny = ['read']\n")
    assert "bash" in live.offered
    assert "read" not in live.offered


async def test_a_project_that_tightens_is_obeyed_and_what_it_said_outlasts_its_file(live: LiveSession):
    live.open()
    live.write("[tools.shell]\nblocked_commands = ['touch']\n", live.project)
    assert not await live.runs("touch x")
    for text in ("[tools", ""):
        live.write(text, live.project)
        assert not await live.runs("touch x")
    live.project.unlink()
    live.write("[tools.shell]\nblocked_commands = ['mkdir']\n")
    assert not await live.runs("touch x")
    assert not await live.runs("mkdir y"), "the user's own file is read all the same"
    live.write("[tools.shell]\nblocked_commands = ['rmdir']\n", live.project)
    assert await live.runs("touch x")


@pytest.mark.parametrize("absolute", [True, False])
async def test_a_policy_file_is_followed_and_without_it_nothing_runs(live: LiveSession, absolute: bool):
    file = live.work / "policy.toml"
    live.write("", file)
    live.open(f"{POLICY}policy_file = '{file if absolute else 'policy.toml'}'\n")
    assert await live.reads()
    live.write(DENY_READ, file)
    assert not await live.reads()
    assert await live.runs("touch x")
    live.write("[[rules]]\neffect = 'dney'\n", file)
    assert not await live.runs("touch x")
    live.write(DENY_READ, file)
    assert await live.runs("touch x")
    file.unlink()
    for _ in range(2):
        assert not await live.runs("touch x")
        assert not await live.reads()
    live.write(DENY_READ, file)
    assert await live.runs("touch x")


async def test_what_was_counted_counts_on_and_a_new_limit_holds_for_it(live: LiveSession):
    live.open()
    for _ in range(2):
        assert await live.reads()
    live.write("[tools]\nmax_tool_calls_per_session = 3\n")
    assert await live.reads()
    assert not await live.reads()
    live.write("[tools]\nmax_tool_calls_per_session = 3\n[tools.shell]\ntimeout = 9\n")
    assert not await live.reads()
    live.write("[tools]\nmax_tool_calls_per_session = 4\n")
    assert await live.reads()
    assert not await live.reads()


async def test_an_answer_taken_out_of_its_file_is_asked_for_again(live: LiveSession):
    file = live.root / "data" / "acp-permissions.toml"
    live.write("[tools.bash.patterns]\ntouch = 'allow'\n", file)
    live.open()
    assert await live.runs("touch x")
    assert not live.peer.asked
    live.write("[tools.bash.patterns]\ntouch = 'deny'\n", file)
    assert not await live.runs("touch x")
    live.write("[tools\n", file)
    assert not await live.runs("touch x")
    live.write("", file)
    assert await live.runs("touch x")
    assert len(live.peer.asked) == 1
    assert len(live.warnings) == 1


async def test_a_key_that_is_stored_while_the_session_runs_is_not_shown_once_the_configuration_has_changed(
    live: LiveSession,
):
    live.open()
    live.write("[p]\nbase_url = ''\nkey = 'fake-key-0123456789'\n", live.root / "data" / "credentials.toml")
    live.write("[tools.shell]\ntimeout = 9\n")
    assert "fake-key" not in (await live.call("bash", command="echo fake-key-0123456789")).text


async def test_folders_for_commands_are_none_for_the_file_tools_and_those_for_file_tools_none_for_commands(
    live: LiveSession,
):
    beside = live.root / "beside"
    beside.mkdir()
    (beside / "x.txt").write_text("x\n")
    rule = "[[tools.permissions.bash]]\npattern = 'cat *'\naction = 'allow'\n"
    live.open(f"[tools.shell]\nallowed_paths = ['{beside}']\n{rule}")
    assert await live.runs(f"cat {beside}/x.txt")
    assert not live.peer.asked
    assert not await live.reads(str(beside / "x.txt"))
    live.write(f"[tools.file]\nallowed_paths = ['{beside}']\n{rule}")
    assert await live.reads(str(beside / "x.txt"))
    assert not live.peer.asked
    assert await live.runs(f"cat {beside}/x.txt")
    assert len(live.peer.asked) == 1


async def test_of_its_tools_a_session_has_those_that_the_editor_wants(live: LiveSession):
    live.wanted = ("read", "group:web")
    assert live.open().offered == {"read", "fetch", "web_scrape"}
    assert await live.reads()
    assert not await live.runs("true")
    assert not live.peer.asked


async def test_what_the_user_types_may_be_fetched_and_was_not_made_up(live: LiveSession):
    memory = live.open().factory._gate_state.memory
    assert not memory.urls.knows("https://e.example/page")
    live.factory._turn_began("/run curl https://e.example/page")
    assert memory.urls.knows("https://e.example/page")


async def test_with_a_turn_the_same_call_is_worth_its_while_again(live: LiveSession):
    live.open("[tools.result_cache]\nenabled = false\n[tools.utility]\nenabled = true\nthreshold = 0.5\n")
    assert await live.reads()
    assert not await live.reads()
    live.factory._turn_began("/help")
    assert await live.reads()


async def test_with_a_turn_what_the_user_may_have_changed_is_searched_anew(
    live: LiveSession, monkeypatch: pytest.MonkeyPatch
):
    live.open()
    await settled(live, monkeypatch)
    file = live.work / "docs" / "a.txt"
    live.write("needle one\n", file)
    assert "needle one" in (await live.call("grep", pattern="needle", path=".")).text
    file.write_text("needle two\n")
    assert "needle one" in (await live.call("grep", pattern="needle", path=".")).text, "within one turn"
    live.factory._turn_began("/help")
    assert "needle two" in (await live.call("grep", pattern="needle", path=".")).text


async def test_a_kept_result_is_good_for_the_time_that_the_user_sets(
    live: LiveSession, monkeypatch: pytest.MonkeyPatch
):
    live.open("[tools.result_cache]\nttl_secs = 20\n")
    await settled(live, monkeypatch)
    assert await live.reads()  # the configuration is read again, a last time
    file = live.work / "docs" / "a.txt"
    for seconds, text in ((0, "one"), (19, "one"), (20, "two")):
        monkeypatch.setattr(live.factory._tools._cache, "_now", lambda now=seconds: now)
        live.write(f"needle {'two' if seconds else 'one'}\n", file)
        assert f"needle {text}" in (await live.call("grep", pattern="needle", path=".")).text


async def test_a_path_that_is_there_is_not_called_made_up(live: LiveSession):
    live.open("[agent]\nhallucination_detection = true\n")
    assert "hallucination_suspect" not in (await live.call("read", path="secret.txt")).text
    assert "secret2.txt is not there" in (await live.call("read", path="secret2.txt")).text


async def test_a_closed_engine_opens_nothing_any_more_though_its_configuration_changes(live: LiveSession):
    engine = live.open().factory.engine()
    assert await live.reads()
    await engine.close()
    assert not await live.reads()
    live.write("[tools.shell]\nblocked_commands = ['touch']\n")
    assert not await live.reads()
    assert any("the session was closed" in problem for problem in live.tools._told)


async def test_a_turn_asks_about_the_servers_of_the_project_before_it_asks_the_model(live: LiveSession):
    live.write("[[mcp.servers]]\nname = 'theirs'\ncommand = 'true'\n", live.project)
    live.open("[acp]\nauto_approve = 'full-auto'\n")

    async def read(redact: Any) -> Any:
        return await read_prompt({"sessionId": "live", "prompt": [{"type": "text", "text": "hello"}]}, redact)

    engine = live.factory.engine()
    live.factory._titles.close()  # nothing runs in the background here
    answer = await engine.answer(read)
    assert answer.failure is not None, "no model is configured"
    (told,) = [each.text for each in live.session.notices._waiting if "theirs" in each.text]
    assert "nobody is asked at this approval level" in told


async def test_an_engine_that_is_closed_gives_its_session_no_title_any_more(live: LiveSession):
    await live.open().factory.engine().close()
    live.factory._turn_began("a title of which nobody may hear")


async def test_nothing_is_built_while_nothing_changes(live: LiveSession, monkeypatch: pytest.MonkeyPatch):
    await settled(live.open(), monkeypatch)
    first = await live.tools.backends()
    assert await live.tools.backends() is await live.tools.backends()
    live.config.touch()
    assert await live.tools.backends() is not first


# --------------------------------------------------------------------------- nobody knows what is forbidden


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BROKEN, "(at line 3, "),
        ("a = 1\nb = \udcff", "byte 10 is not (at line 2)"),
        ("[tools.file]\ndeny_read = 7\n", "tools.file.deny_read = 7"),
        ("[tools.file]\ndeny_reed = ['x']\n", "tools.file.deny_reed"),
        ("[tools.file]\ndeny_read = ['$HOME/x']\n", "$HOME/x"),
        ("[[tools.shell]]\nblocked_commands = ['touch']\n", "tools.shell = [{"),
        ("[[tools]]\n", "tools = [{}]: expected a table"),
        ("[tools]\nallow = [7]\n", "tools.allow[0] = 7"),
        ("[tools.by_model.'ollama:*']\nprofile = 'tiny'\n", "tools.by_model"),
        ("[tools.scrape]\nallowed_domains = 'a.example'\n", "tools.scrape.allowed_domains"),
    ],
)
async def test_then_no_tool_runs_or_is_offered_and_no_file_or_page_is_read(live: LiveSession, text: str, words: str):
    live.config.write_bytes(text.encode(errors="surrogateescape"))
    live.open(None)
    assert live.offered == set()
    for result in (await live.call("bash", command="touch x"), await live.call("edit", path="secret.txt")):
        assert result.failure is not None
        assert words in result.failure.message
        assert str(live.config) in result.failure.message
        assert "without a restart" in result.failure.message
    backends = await live.tools.backends()
    with pytest.raises(Refused, match="Nothing runs"):
        await backends.files.read_text("secret.txt")
    with pytest.raises(Refused, match="Nothing runs"):
        backends.files.resolve("new", Access.WRITE)
    with pytest.raises(Refused, match="Nothing runs"):
        await backends.web.get("https://example.com/", WebCaller("fetch", "1"))
    live.write("[tools.shell]\nblocked_commands = ['mkdir']\n")
    assert await live.runs("touch x")
    assert not await live.runs("mkdir y")
    live.config.write_bytes(text.encode(errors="surrogateescape"))
    assert await live.runs("touch x"), "what held before holds on"
    assert not await live.runs("mkdir y")


async def test_a_named_file_that_is_not_there_closes_as_well(live: LiveSession):
    live.open(None)
    assert live.offered == set()
    live.write("")
    assert await live.runs("touch x")


async def test_a_projects_file_closes_nothing(live: LiveSession):
    for text in ("[tools", "[[tools]]\n", "[tools]\nallow = 7\n[tools.file]\ndeny_read = 7\n"):
        live.write(text, live.project)
        live.open("")
        assert await live.runs("touch x"), text


async def test_the_first_good_file_sets_mode_and_level_unless_the_user_has_chosen(live: LiveSession):
    live.open(BROKEN)
    live.write("[acp]\nmode = 'ask'\nauto_approve = 'auto-edit'\n")
    assert not await live.runs("touch x")
    assert (live.session.active.mode, live.session.active.auto_approve) == (Mode.ASK, AutoApprove.AUTO_EDIT)
    assert [update["sessionUpdate"] for update in live.peer.posted] == ["current_mode_update", "config_option_update"]
    live.open(BROKEN)
    set_mode(live.session.options, "architect")
    live.write("[acp]\nmode = 'code'\n[tools]\nautonomy_level = 'readonly'\n")
    await live.runs("touch x")
    assert (live.session.options.mode, live.session.options.readonly) == (Mode.ARCHITECT, True)


async def test_later_changes_leave_mode_and_level_to_the_user(live: LiveSession):
    live.open("[acp]\nmode = 'code'\n")
    live.write("[acp]\nmode = 'ask'\n")
    assert await live.runs("touch x")
    assert live.session.options.mode is Mode.CODE


async def test_a_pattern_of_the_project_that_is_none_is_told_and_makes_no_command_ask(live: LiveSession):
    live.write("[tools.file]\ndeny_read = ['../x']\n", live.project)
    live.open()
    assert any("tools.file.deny_read" in problem and "(ignored)" in problem for problem in live.tools._told)
    assert await live.runs("cat secret.txt")
    assert live.peer.asked == []
