"""Servers that lie, flood, hang and die, as real programs over stdio."""

import gc
import json
import os

import anyio
import anyio.lowlevel
import anyio.to_thread
import psutil
import pytest

from acp_agent.core.errors import ToolErrorCategory as Category
from acp_agent.core.mcp import McpDefinition, McpOrigin, McpServer, McpState, StdioServer
from acp_agent.mcp.client_session import MAX_TEXT
from acp_agent.mcp.definitions import MAX_DESCRIPTION, MAX_TOOLS
from acp_agent.workspace.processes.tree import kill_everything
from tests.mcp.stage import HEALTH, Stage, left_over, on_stage, stdio
from tests.rows import each_row
from tests.unit.workspace.processes import LINUX, subreaper

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def short_patience(monkeypatch):
    """Give programs less time to end by themselves, and to write their last words: many here only end by force."""
    monkeypatch.setattr("acp_agent.workspace.processes.program._GRACE", 0.03)
    monkeypatch.setattr("acp_agent.workspace.processes.program._PAUSE", 0.01)  # seconds, between much of stderr
    monkeypatch.setattr("acp_agent.mcp.transports._LAST_OUTPUT", 0.05)


# ------------------------------------------------------------------------------------- definitions


async def test_a_tool_with_hidden_characters_in_its_description_or_schema_is_left_out_and_the_reason_told():
    async with on_stage(stdio("poisoned")) as stage:
        problem = await stage.reach(McpState.READY)
        assert stage.names() == ["echo"]
        for name in ("zero_width", "bidi", "tags", "escape"):
            assert f"{name} was left out" in problem
        assert "U+200B" in problem
        assert problem.isprintable()


async def test_a_tool_whose_name_is_none_is_left_out_and_its_name_shown_harmless():
    async with on_stage(stdio("bad_names")) as stage:
        problem = await stage.reach(McpState.READY)
        assert stage.names() == ["ok-1.b/c_d"]
        assert "\\u001b[31mred" in problem
        assert problem.isprintable()


async def test_a_tool_named_like_a_built_in_one_stays_its_servers():
    async with on_stage(stdio("shadow")) as stage:
        await stage.reach(McpState.READY)
        assert stage.names() == ["bash", "read", "edit", "mcp_other_tool"]
        assert stage.connection.server.name == "hostile"


async def test_of_tools_with_one_name_the_first_is_kept():
    async with on_stage(stdio("collision")) as stage:
        assert "echo is listed twice" in await stage.reach(McpState.READY)
        assert [(tool.name, tool.description) for tool in stage.connection.definitions()] == [
            ("echo", "Says it again."),
            ("ECHO", "Says it again."),
        ]


async def test_a_long_description_is_cut_at_a_character():
    async with on_stage(stdio("long_description")) as stage:
        await stage.reach(McpState.READY)
        (tool,) = stage.connection.definitions()
        assert MAX_DESCRIPTION - 2 <= len(tool.description.encode()) <= MAX_DESCRIPTION
        assert tool.description.endswith("é… [cut]")


async def test_schemas_that_are_huge_deep_remote_or_none_are_left_out():
    async with on_stage(stdio("bad_schemas")) as stage:
        problem = await stage.reach(McpState.READY)
        assert stage.names() == ["local"]
        for reason in ("huge was left out: its schema has", "nests", "not the schema of an object", "another document"):
            assert reason in problem


async def test_a_schema_with_an_infinite_number_is_left_out():
    async with on_stage(stdio("infinite_number")) as stage:
        assert "inf was left out" in await stage.reach(McpState.READY)
        assert stage.names() == ["echo"]


async def test_of_thousands_of_tools_the_first_are_kept():
    async with on_stage(stdio("thousands")) as stage:
        assert "only the first 200 tools" in await stage.reach(McpState.READY)
        assert len(stage.names()) == MAX_TOOLS


@pytest.mark.parametrize(("behaviour", "tools"), [("endless_pages", 20), ("same_page", 1)])
async def test_pages_without_end_come_to_an_end(behaviour, tools):
    async with on_stage(stdio(behaviour)) as stage:
        assert "its list of tools" in await stage.reach(McpState.READY)
        assert len(stage.names()) == tools


async def test_a_server_that_sends_null_and_an_empty_cursor_for_what_it_has_not_set_is_understood():
    async with on_stage(stdio("unset_fields")) as stage:
        assert await stage.reach(McpState.READY) == ""
        assert stage.definition().parameters == {"type": "object", "properties": {"x": {"type": "string"}}}
    async with on_stage(stdio("no_tools")) as stage:
        assert await stage.reach(McpState.READY) == ""
        assert stage.names() == []


async def test_what_the_user_denies_is_left_out_and_deny_wins():
    server = stdio("shadow", allow=("bash", "read"), deny=("bash",))
    async with on_stage(server) as stage:
        assert await stage.reach(McpState.READY) == ""
        assert stage.names() == ["read"]


async def test_definitions_that_change_under_way_are_told_as_a_change():
    async with on_stage(stdio("rug_pull")) as stage:
        await stage.reach(McpState.READY)
        told = len(stage.changes)
        assert await stage.call() == "done"
        await stage.until(lambda: len(stage.changes) > told)
        assert ".ssh" in stage.connection.definitions()[0].description


async def test_definitions_that_change_at_a_restart_are_told_as_a_change(tmp_path):
    async with on_stage(stdio("rug_pull_at_restart", tmp_path / "runs")) as stage:
        await stage.reach(McpState.READY)
        assert stage.connection.definitions()[0].description == "This is run 1."
        assert (await stage.failure()).category is Category.NETWORK_ERROR
        await stage.until(lambda: stage.connection.definitions()[0].description == "This is run 2.")
        states = [state for state, _ in stage.changes]
        assert states == [McpState.READY, McpState.WAITING, McpState.READY]


async def test_a_tool_that_is_another_after_a_restart_is_not_called(tmp_path):
    state = tmp_path / "runs"
    async with on_stage(stdio("rug_pull_at_restart", state)) as stage:
        await stage.reach(McpState.READY)
        agreed = stage.definition()
        assert (await stage.failure(definition=agreed)).category is Category.NETWORK_ERROR
        failure = await stage.failure(definition=agreed)  # waits for the next run, which says another thing
        assert failure.category is Category.POLICY_BLOCKED
        assert "has changed the definition of the tool" in failure.message
        assert "user will be asked" in failure.suggestion
        assert state.stat().st_size == 2  # a call would have ended it
        assert stage.connection.state is McpState.READY


class Waiting:
    """A clock on which the pauses around lists never end."""

    async def sleep(self, seconds):
        await (anyio.sleep_forever() if seconds in {0.5, 5.0, HEALTH} else anyio.lowlevel.checkpoint())


async def word_has_come(stage):
    """Wait until the server was heard to say that its tools changed."""
    with anyio.fail_after(20):
        while not stage.connection._refresh.due:  # noqa: ASYNC110 - nothing else tells of it
            await anyio.sleep(0.01)


async def test_a_tool_of_which_the_server_said_that_it_changed_is_listed_again_before_it_is_called():
    async with on_stage(stdio("rug_pull_unasked"), sleep=Waiting().sleep) as stage:
        await stage.reach(McpState.READY)
        agreed = stage.definition()
        assert agreed.description == "Says it again."
        await word_has_come(stage)
        failure = await stage.failure(definition=agreed)
        assert failure.category is Category.POLICY_BLOCKED
        assert ".ssh" in stage.definition().description
        assert await stage.call() == "1"  # the first that came through


async def test_a_list_that_is_due_and_never_comes_keeps_a_call_from_being_made(monkeypatch):
    monkeypatch.setattr("acp_agent.mcp.connection._LIST_PATIENCE", 0.05)
    async with on_stage(stdio("rug_pull_and_hang"), sleep=Waiting().sleep) as stage:
        await stage.reach(McpState.READY)
        await word_has_come(stage)
        failure = await stage.failure()
        assert failure.category is Category.POLICY_BLOCKED
        assert "keeps saying that its tools have changed" in failure.message


async def test_a_server_whose_tools_change_without_end_is_asked_once_for_each_call_and_not_called(monkeypatch):
    monkeypatch.setattr("acp_agent.mcp.connection._LIST_PATIENCE", 0.05)
    async with on_stage(stdio("changes_without_end"), sleep=Waiting().sleep) as stage:
        await stage.reach(McpState.READY)
        assert (await stage.failure()).category is Category.POLICY_BLOCKED


async def test_only_the_last_list_is_kept(collect_new):
    async with on_stage(stdio("new_names")) as stage:
        await stage.reach(McpState.READY)
        for _ in range(5):
            assert await stage.call() == "done"
            names = stage.names()
            await stage.until(lambda names=names: stage.names() != names)
        collect_new()
        kept = gc.get_objects(0) + gc.get_objects(1)
        assert sum(isinstance(each, McpDefinition) for each in kept) == 101


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["descriptions", "schemas", "names", "nothings"])
async def test_of_twenty_pages_as_large_as_may_be_little_is_kept(kind, tmp_path):
    async with on_stage(stdio("huge_list", tmp_path / kind)) as stage:
        problem = await stage.reach(McpState.READY)
        assert problem.startswith("only the first ")
        assert all(len(tool.description.encode()) <= MAX_DESCRIPTION for tool in stage.connection.definitions())


async def test_a_fault_of_ours_ends_in_failure_and_a_reason():
    async def sleep(seconds):
        raise ValueError("fake-secret")

    stage = Stage(stdio("dead"), sleep=sleep)
    with pytest.raises(ValueError, match="fake"):
        await stage.connection.run()
    assert stage.connection.state is McpState.FAILED
    assert "an internal error of acp-agent ended it (ValueError)" in stage.connection.problem
    assert "secret" not in stage.connection.problem
    assert stage.changes[-1][0] is McpState.FAILED


async def test_the_last_words_of_a_program_are_for_the_user_and_not_told_in_our_name():
    async with on_stage(stdio("dead")) as stage:
        await stage.reach(McpState.FAILED)
        failure = await stage.failure()
        assert "the program ended with 3" in failure.message
        assert "fatal" not in failure.message + failure.suggestion


async def test_a_flood_of_list_changed_costs_few_lists():
    async with on_stage(stdio("list_changed_flood")) as stage:
        await stage.reach(McpState.READY)
        assert int(await stage.call()) <= 2
        assert int(await stage.call()) <= 12


async def test_a_list_that_is_none_ends_in_failure():
    async with on_stage(stdio("list_of_nonsense")) as stage:
        assert "cannot be read" in await stage.reach(McpState.FAILED)
        assert stage.names() == []


# ------------------------------------------------------------------------------------- silence and death


@pytest.mark.parametrize(("behaviour", "seconds"), [("mute", 0.02), ("no_list", 0.1)])
async def test_a_server_that_never_starts_is_given_up_after_five_tries(behaviour, seconds):
    async with on_stage(stdio(behaviour, startup_timeout=seconds)) as stage:
        assert f"did not start within {seconds} s" in await stage.reach(McpState.FAILED)
        assert [round(wait / delay, 2) <= 1 for wait, delay in zip(stage.naps.waits(), (1, 2, 4, 8), strict=True)]
        assert (await stage.failure()).category is Category.NETWORK_ERROR


async def test_a_call_without_answer_times_out_and_the_server_is_told():
    async with on_stage(stdio("no_answer", tool_timeout=1.5)) as stage:
        await stage.reach(McpState.READY)
        failure = await stage.failure()
        assert failure.category is Category.TIMEOUT
        assert "echo within 1.5 s" in failure.message
        waited, cancelled = json.loads(await stage.call("report"))
        assert waited == cancelled


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server():
    async with on_stage(stdio("no_answer")) as stage:
        await stage.reach(McpState.READY)
        with anyio.move_on_after(0.05):
            await stage.call()
        waited, cancelled = json.loads(await stage.call("report"))
        assert waited == cancelled


async def test_a_program_that_dies_at_every_start_is_given_up_and_its_last_words_shown_harmless():
    async with on_stage(stdio("dead")) as stage:
        problem = await stage.reach(McpState.FAILED)
        assert "ended with 3, saying: fatal: \\u001b[31mno such \\u202edatabase" in problem
        assert len(stage.naps.waits()) == 4
        assert all(0.75 * delay <= nap <= delay for nap, delay in zip(stage.naps.waits(), (1, 2, 4, 8), strict=True))


async def test_a_program_that_is_none_is_given_up_at_once():
    server = McpServer("gone", StdioServer("/nonexistent/mcp-server"), McpOrigin.EDITOR)
    async with on_stage(server) as stage:
        assert (
            "/nonexistent/mcp-server cannot be started (No such file or directory: /nonexistent/mcp-server)"
            in await stage.reach(McpState.FAILED)
        )
        assert stage.naps.waits() == []


async def test_a_program_with_a_zero_byte_in_its_name_is_no_crash():
    async with on_stage(McpServer("zero", StdioServer("a\0b"), McpOrigin.EDITOR)) as stage:
        assert "cannot be started" in await stage.reach(McpState.FAILED)


async def test_death_in_a_call_fails_the_call_and_the_next_one_reaches_the_next_run(tmp_path):
    state = tmp_path / "runs"
    async with on_stage(stdio("dies_in_call", state)) as stage:
        await stage.reach(McpState.READY)
        failure = await stage.failure()
        assert failure.category is Category.NETWORK_ERROR
        assert "the program ended with 1; the call may have had effects" in failure.message
        assert (await stage.failure()).category is Category.NETWORK_ERROR  # it waited, and was run again
        assert state.stat().st_size == 2


async def test_a_program_that_ends_as_soon_as_it_is_known_is_given_up_after_ten_more_tries(tmp_path):
    state = tmp_path / "runs"
    async with on_stage(stdio("dies_when_known", state)) as stage:
        await stage.reach(McpState.FAILED)
        assert 10 <= state.stat().st_size <= 11
        waits = [nap for nap in stage.naps.taken if nap > 0.75 and nap not in {5.0, HEALTH}]
        assert len(waits) == 10
        assert 45 <= waits[-1] <= 60


async def test_a_server_that_stops_reading_holds_nobody_up():
    async with on_stage(stdio("deaf", tool_timeout=0.05)) as stage:
        await stage.reach(McpState.READY)
        for _ in range(3):
            assert (await stage.failure("v" * 300_000)).category is Category.TIMEOUT


async def test_a_server_that_no_longer_answers_is_started_again():
    async with on_stage(stdio("gone_mad", tool_timeout=1.5)) as stage:
        await stage.reach(McpState.READY)
        assert await stage.call() == "bye"
        await stage.naps.lap()  # it was heard since the one before
        await stage.naps.lap()
        await stage.until(lambda: (McpState.WAITING, "it no longer answers") in stage.changes)


async def test_a_program_that_ignores_every_hint_is_killed():
    async with on_stage(stdio("stubborn")) as stage:
        await stage.reach(McpState.READY)
        assert await stage.call("hello") == "hello"
    # on_stage has looked whether anything is left


@pytest.mark.parametrize("behaviour", ["well_behaved", "endless_notifications"])
async def test_whenever_it_is_closed_or_cancelled_nothing_is_left(behaviour):
    for moment in range(8):
        async with on_stage(stdio(behaviour)) as stage, anyio.create_task_group() as tasks:
            if moment > 5:
                await stage.reach(McpState.READY)
                tasks.start_soon(stage.call)
            await anyio.sleep(0.01 * moment)
            tasks.cancel_scope.cancel()
            if moment % 2:
                stage.connection.close()
                stage.connection.close()


async def test_closed_before_it_begins_it_never_does():
    stage = Stage(stdio("well_behaved"))
    stage.connection.close()
    with anyio.fail_after(20):
        await stage.connection.run()
    assert [state for state, _ in stage.changes] == [McpState.CLOSED]


async def test_the_task_it_runs_in_may_be_cancelled_instead():
    stage = Stage(stdio("stubborn"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.connection.run)
        await stage.reach(McpState.READY)
        tasks.cancel_scope.cancel()
    assert stage.connection.state is McpState.CLOSED
    assert left_over() == []
    assert (await stage.failure()).category is Category.NETWORK_ERROR


async def test_what_ends_everything_when_the_agent_ends_finds_a_server_too():
    # With real pauses: it must not have been started again before anybody looks.
    async with on_stage(stdio("stubborn"), sleep=anyio.sleep) as stage:
        await stage.reach(McpState.READY)
        assert len(left_over()) == 1
        await anyio.to_thread.run_sync(kill_everything)
        assert left_over() == []


@pytest.mark.skipif(not LINUX, reason="orphans come to us on Linux only")
async def test_a_grandchild_that_holds_the_pipes_holds_nobody_up_and_ends():
    with subreaper(on=True):
        async with on_stage(stdio("grandchild")) as stage:
            await stage.reach(McpState.READY)
            assert (await stage.failure()).category is Category.NETWORK_ERROR
            await stage.until(lambda: len(stage.changes) >= 3)


# ------------------------------------------------------------------------------------- floods and junk


@pytest.mark.parametrize("behaviour", ["huge_result", "huge_line"])
async def test_a_hundred_megabytes_in_one_line_end_the_connection_and_are_never_held(behaviour, tmp_path):
    before = psutil.Process().memory_info().rss
    async with on_stage(stdio(behaviour, tmp_path / "runs", startup_timeout=10)) as stage:
        if behaviour == "huge_line":
            await stage.until(lambda: bool(stage.changes))
            assert "sent a message of more than 8388608 bytes" in stage.changes[0][1]
        else:
            await stage.reach(McpState.READY)
            failure = await stage.failure()
            assert failure.category is Category.NETWORK_ERROR
            assert "more than 8388608 bytes" in failure.message
    assert psutil.Process().memory_info().rss - before < 60 * 1024 * 1024


async def test_a_long_text_is_cut_and_that_is_said():
    async with on_stage(stdio("long_text")) as stage:
        await stage.reach(McpState.READY)
        text = await stage.call()
        assert text.endswith(f"[cut: {3_000_000 - MAX_TEXT} more characters]")
        assert len(text) < MAX_TEXT + 100


@pytest.mark.parametrize(("behaviour", "reason"), [("dense", "lists and objects"), ("deep", "nests too deep")])
async def test_json_that_would_cost_too_much_ends_the_connection(behaviour, reason):
    async with on_stage(stdio(behaviour)) as stage:
        await stage.reach(McpState.READY)
        failure = await stage.failure()
        assert failure.category is Category.NETWORK_ERROR
        assert reason in failure.message


async def test_a_flood_of_notifications_is_dropped_and_slowed_down():
    async with on_stage(stdio("notifications")) as stage:
        await stage.reach(McpState.READY)
        assert await stage.call() == "done"
        assert sum(nap >= 0.05 for nap in stage.naps.taken if nap < 0.5) >= 10


async def test_a_flood_without_end_costs_a_timeout_and_is_slowed_down():
    async with on_stage(stdio("endless_notifications", tool_timeout=0.5)) as stage:
        await stage.reach(McpState.READY)
        assert (await stage.failure()).category is Category.TIMEOUT
        assert sum(0.05 <= nap < 0.5 for nap in stage.naps.taken) >= 2


async def test_a_flood_on_stderr_is_read_and_forgotten():
    async with on_stage(stdio("stderr_flood")) as stage:
        await stage.reach(McpState.READY)
        assert await stage.call() == "done"


async def test_lines_that_are_no_messages_are_passed_over():
    async with on_stage(stdio("chatty")) as stage:
        assert await stage.reach(McpState.READY) == ""
        assert await stage.call("fine") == "fine"


@pytest.mark.parametrize("behaviour", ["babbler", "blank_lines", "empty_batches"])
async def test_a_program_that_only_babbles_is_given_up(behaviour):
    async with on_stage(stdio(behaviour)) as stage:
        await stage.until(lambda: bool(stage.changes))
        assert "lines that are not messages" in stage.changes[0][1]


@pytest.mark.parametrize(
    ("behaviour", "said"), [("bad_utf8", "a\ufffd\ufffd\ufffdb"), ("cut_emoji", "\\ud83d, \U0001f600, cut: \ufffd")]
)
async def test_what_is_no_character_becomes_a_replacement_character(behaviour, said):
    async with on_stage(stdio(behaviour)) as stage:
        await stage.reach(McpState.READY)
        assert await stage.call() == said


async def test_structured_content_with_a_number_that_is_none_is_left_out_and_the_text_stays():
    async with on_stage(stdio("not_a_number")) as stage:
        await stage.reach(McpState.READY)
        assert await stage.call() == "mean\n[structured content with NaN or infinity, left out]"


async def test_a_batch_is_taken_as_its_messages():
    async with on_stage(stdio("batch")) as stage:
        await stage.reach(McpState.READY)
        assert await stage.call() == "in a batch"


# ------------------------------------------------------------------------------------- ids and answers


async def test_answers_with_ids_nobody_waits_for_are_dropped():
    async with on_stage(stdio("odd_ids")) as stage:
        await stage.reach(McpState.READY)
        assert [await stage.call() for _ in range(3)] == ["right"] * 3


async def test_an_id_that_comes_back_as_text_is_the_same_id():
    async with on_stage(stdio("ids_as_text")) as stage:
        await stage.reach(McpState.READY)
        assert await stage.call("known") == "known"


async def test_an_error_that_is_null_is_none():
    async with on_stage(stdio("null_error")) as stage:
        await stage.reach(McpState.READY)
        assert await stage.call() == "fine"


async def test_of_two_answers_the_first_counts():
    async with on_stage(stdio("twice")) as stage:
        await stage.reach(McpState.READY)
        assert [await stage.call() for _ in range(3)] == ["first"] * 3


async def test_an_answer_to_an_earlier_call_is_not_taken_for_that_to_a_later_one():
    async with on_stage(stdio("stale")) as stage:
        await stage.reach(McpState.READY)
        assert [await stage.call(x) for x in "abc"] == ["fresh a", "fresh b", "fresh c"]


@pytest.mark.parametrize("kind", ["list", "null", "text", "content", "flag"])
async def test_a_result_of_the_wrong_type_is_an_error(kind):
    async with on_stage(stdio("wrong_types")) as stage:
        await stage.reach(McpState.READY)
        assert (await stage.failure(kind)).category in {Category.PERMANENT_FAILURE, Category.SERVER_ERROR}
        assert stage.connection.state is McpState.READY


async def test_parts_of_the_wrong_type_are_left_out_and_that_is_said():
    async with on_stage(stdio("wrong_types")) as stage:
        await stage.reach(McpState.READY)
        assert (await stage.call("blocks")).count("unknown kind") == 7
        assert "not an object" in await stage.call("structured")
        assert await stage.call("empty") == ""


@each_row(
    "code, category",
    [
        (-32603, Category.SERVER_ERROR),
        (-32050, Category.SERVER_ERROR),
        (-32042, Category.POLICY_BLOCKED),
        (-32001, Category.TIMEOUT),
        (-32000, Category.SERVER_ERROR),
        (401, Category.POLICY_BLOCKED),
        (429, Category.RATE_LIMITED),
        (503, Category.SERVER_ERROR),
    ],
)
async def test_an_error_has_the_category_of_its_code_and_none_of_the_servers_words(code, category):
    async with on_stage(stdio("errors")) as stage:
        await stage.reach(McpState.READY)
        failure = await stage.failure(str(code))
        assert failure.category is category
        assert "MCP server hostile answered with error" in failure.message
        assert "failed" not in failure.message + failure.suggestion
        assert (await stage.reply({"x": str(code)})).text == "it \\u001b[31mfailed\\u202e"


@each_row("code", [-32602, -32601, 400, 7, 1_000_002, 10**40])
async def test_an_error_for_good_is_the_servers_reply_in_its_own_words(code):
    async with on_stage(stdio("errors")) as stage:
        await stage.reach(McpState.READY)
        reply = await stage.reply({"x": str(code)})
        assert (reply.is_error, reply.text) == (True, "it \\u001b[31mfailed\\u202e")


async def test_parts_that_are_no_text_become_a_short_text_and_nothing_is_opened():
    async with on_stage(stdio("parts")) as stage:
        await stage.reach(McpState.READY)
        reply = await stage.reply({})
        assert [image.mime_type for image in reply.images] == ["image/png"]  # whatever the server calls it
        lines = reply.text.split("\n")
        assert lines[1] == "[resource file:///etc/passwd: binary, left out]"
        assert lines[2:4] == ["[resource file:///../../etc/\\u202eshadow]", "inside"]
        assert lines[4] == "[link to a resource: file:///keys/id_rsa]"
        assert "audio" in lines[5]
        assert sum("picture" in line for line in lines) == 3
        assert "root:" not in reply.text


async def test_sampling_elicitation_and_roots_are_refused_and_pings_answered():
    async with on_stage(stdio("asks")) as stage:
        await stage.reach(McpState.READY)
        assert await stage.call() == "error error error result error"


@pytest.mark.parametrize("behaviour", ["refuses"])
async def test_a_server_that_refuses_us_is_not_asked_again(behaviour):
    async with on_stage(stdio(behaviour)) as stage:
        assert "not you" in await stage.reach(McpState.FAILED)
        assert stage.naps.waits() == []


async def test_a_server_of_an_unknown_version_is_given_up():
    async with on_stage(stdio("old_version")) as stage:
        assert "a version of MCP that this agent does not know" in await stage.reach(McpState.FAILED)


# ------------------------------------------------------------------------------------- what a program is given


async def test_a_program_gets_a_clean_environment_and_a_session_of_its_own(tmp_path):
    env = (("TOKEN", "fake-token"), ("ld_preload", "/evil.so"), ("Path", "/evil"), ("NODE_PATH", "/evil"), ("A=B", "c"))
    async with on_stage(stdio("surroundings", env=env, cwd=str(tmp_path))) as stage:
        problem = await stage.reach(McpState.READY)
        assert "not passed on to it: ld_preload, Path, NODE_PATH, A=B" in problem
        seen = json.loads(await stage.call())
        assert seen.pop("ACP_COMMAND_ID").startswith(f"{os.getpid()}.")
        assert seen == {
            "PATH": os.environ["PATH"],
            "HOME": "/home/fake",
            "LC_ALL": "C.UTF-8",
            "TOKEN": "fake-token",
            "cwd": str(tmp_path),
            "sid": True,
        }
