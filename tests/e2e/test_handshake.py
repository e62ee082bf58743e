"""Before the first prompt: initialize, authenticate, session/new, as the editors of the world send them."""

import json
import uuid

import pytest

from acp_agent import __version__
from tests.fakes.editor import NOTHING, editing, from_agent
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

JETBRAINS = {"type": "com.agentclientprotocol.rpc.JsonRpcRequest"}


def initialize(request_id, **members):
    params = {"protocolVersion": 1, "clientCapabilities": {}, **members.pop("params", {})}
    return {"jsonrpc": "2.0", "id": request_id, "method": "initialize", "params": params, **members}


async def test_initialize_names_the_agent_and_what_it_can(tmp_path):
    async with editing(tmp_path, [says("hi")]) as editor:
        result = await editor.initialize()
    assert result["protocolVersion"] == 1
    assert result["agentInfo"] == {"name": "acp-agent", "title": "acp-agent", "version": __version__}
    assert result["agentCapabilities"]["promptCapabilities"] == {"image": True, "embeddedContext": True}
    assert result["authMethods"], "the registry refuses an empty list"
    assert "type" not in result["authMethods"][0] or result["authMethods"][0]["type"] == "agent"


async def test_a_capability_that_is_missing_is_left_out_because_some_clients_read_false_as_support(tmp_path):
    async with editing(tmp_path, [says("hi")]) as editor:
        result = await editor.initialize()
    assert "false" not in json.dumps(result)


async def test_the_first_line_on_stdout_is_the_answer_to_initialize(tmp_path):
    async with editing(tmp_path, [says("hi")], cold=True) as editor:
        await editor.open()
        first = await editor.seen(from_agent)
    assert first.message["result"]["protocolVersion"] == 1


@pytest.mark.parametrize("request_id", [0, "5b8e-uuid"])
async def test_the_id_of_the_first_line_is_echoed_as_it_came(tmp_path, request_id):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        await editor.send_line(initialize(request_id))
        answer = await editor.answer_to(request_id)
        assert type(answer["id"]) is type(request_id)


async def test_ids_are_echoed_as_they_came(tmp_path):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        await editor.initialize()
        for request_id in (0, 1, -7, 2**53, "0", "1", ""):
            start = len(editor.recording.frames)
            params = {"methodId": editor.auth_method}
            await editor.send_line({"jsonrpc": "2.0", "id": request_id, "method": "authenticate", "params": params})
            answer = await editor.answer_to(request_id, start)
            assert (type(answer["id"]), answer["result"]) == (type(request_id), {}), request_id


@pytest.mark.parametrize("version", [0, 2])
async def test_every_version_asked_for_is_answered_one(tmp_path, version):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        for number in (version, 1, 65535):
            start = len(editor.recording.frames)
            await editor.send_line(initialize("v", params={"protocolVersion": number}))
            assert (await editor.answer_to("v", start))["result"]["protocolVersion"] == 1


async def test_a_client_of_the_second_draft_is_answered_one_too(tmp_path):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        params = {"protocolVersion": 2, "capabilities": {}, "info": {"name": "next", "version": "0"}}
        await editor.send_line({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        assert (await editor.answer_to(1))["result"]["protocolVersion"] == 1


async def test_malformed_capabilities_count_as_absent(tmp_path):
    async with editing(tmp_path, [uses(("bash", {"command": "echo hi"})), says("ok")], lawful=False) as editor:
        for broken in ({"fs": True}, [], "all", {"fs": {"readTextFile": "yes"}, "terminal": 1}, None):
            start = len(editor.recording.frames)
            await editor.send_line(initialize("c", params={"clientCapabilities": broken}))
            assert "result" in await editor.answer_to("c", start), broken
            session = await editor.new_session(str(editor.workspace))
            await editor.say(session, "go")
            assert editor.calls[-1].status == "completed", broken
        assert not editor.requests("terminal/create")


async def test_jetbrains_initializes_twice_opens_two_sessions_and_adds_members(tmp_path):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        folder = str(editor.workspace)
        for request_id in (1, 2):
            meta = {"proxyConfig": {"password": "obviously-fake"}}
            await editor.send_line(initialize(request_id, params={"_meta": meta}, **JETBRAINS))
            assert (await editor.answer_to(request_id))["result"]["protocolVersion"] == 1
        sessions = set()
        for request_id in (3, 4):
            params = {"cwd": folder, "mcpServers": [], "_meta": {"additionalRoots": [folder]}}
            new = {"jsonrpc": "2.0", "id": request_id, "method": "session/new", "params": params}
            await editor.send_line({**new, **JETBRAINS})
            sessions.add((await editor.answer_to(request_id))["result"]["sessionId"])
        assert len(sessions) == 2
        session = sessions.pop()
        for option in ("mode", "auto_approve", "mode", "auto_approve"):
            value = {"mode": "code", "auto_approve": "suggest"}[option]
            await editor.ask("session/set_config_option", {"sessionId": session, "configId": option, "value": value})
        assert await editor.say(session, "hi") == "end_turn"
        changes = {"config_option_update", "current_mode_update"}
        assert not [u for u in editor.recording.updates() if u["sessionUpdate"] in changes], "nothing changed"
        assert "obviously-fake" not in editor.log


async def test_a_second_initialize_brings_new_capabilities(tmp_path):
    script = [uses(("bash", {"command": "echo hi"})), says("ok")]
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        await editor.initialize()
        editor.capabilities = {"terminal": True}
        await editor.initialize()
        await editor.say(await editor.new_session(str(editor.workspace)), "go")
        assert editor.call.terminals


async def test_two_sessions_of_one_process_keep_the_capabilities_they_were_opened_with(tmp_path):
    script = [uses(("bash", {"command": "pwd"})), says("ok")]
    async with editing(tmp_path, script) as editor:
        sessions = {}
        for name, capabilities in (("terminal", {"terminal": True}), ("nothing", {})):
            (editor.workspace / name).mkdir()
            editor.capabilities = capabilities
            await editor.initialize()
            sessions[name] = await editor.new_session(str(editor.workspace / name))
        editor.capabilities = {"terminal": True}  # what this editor serves; the second session must not ask for it
        async with editor.prompting(sessions["terminal"]), editor.prompting(sessions["nothing"]):
            pass
        for name, session in sessions.items():
            (call,) = editor.calls_of(session)
            assert call.final["rawOutput"]["stdout"] == f"{editor.workspace / name}\n"
            assert bool(call.terminals) is (name == "terminal")


async def test_requests_before_initialize_are_invalid_requests(tmp_path):
    methods = ["session/new", "session/prompt", "session/set_mode", "session/set_config_option", "authenticate"]
    async with editing(tmp_path, [says("hi")]) as editor:
        for method in methods:
            error = await editor.error_of(method, {"cwd": str(editor.workspace), "mcpServers": []})
            assert error.code == -32600, method
            assert "initialize" in error.message, method
        assert await editor.say(await editor.open(), "hi") == "end_turn"


async def test_initialize_and_everything_after_it_may_come_in_one_write(tmp_path):
    async with editing(tmp_path, [says("hi")], lawful=False, cold=True) as editor:
        new = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "session/new",
            "params": {"cwd": str(editor.workspace), "mcpServers": []},
        }
        unknown = {"jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": editor.prompt_params("x", "hi")}
        await editor.send_lines(initialize(1), new, unknown)
        assert (await editor.answer_to(1))["result"]["protocolVersion"] == 1
        session = (await editor.answer_to(2))["result"]["sessionId"]
        assert (await editor.answer_to(3))["error"]["code"] == -32002
        assert await editor.say(session, "hi") == "end_turn"


async def test_authenticate_succeeds_at_once_and_refuses_what_it_never_offered(tmp_path):
    async with editing(tmp_path, [says("hi")]) as editor:
        await editor.initialize()
        assert await editor.ask("authenticate", {"methodId": editor.auth_method}) == {}
        assert (await editor.error_of("authenticate", {"methodId": "retina-scan"})).code == -32602


async def test_a_cwd_that_is_no_absolute_folder_is_refused_by_name(tmp_path):
    (tmp_path / "file").write_text("")
    missing = {"mcpServers": []}
    wrong = ["relative/path", ".", "", None, 7, str(tmp_path / "missing"), str(tmp_path / "file"), ["/tmp"], "/tmp\0/x"]
    async with editing(tmp_path, [says("hi")]) as editor:
        await editor.initialize()
        for params in (missing, *({"cwd": cwd, **missing} for cwd in wrong)):
            error = await editor.error_of("session/new", params)
            assert error.code == -32602, params
            assert "cwd" in error.message, params
        assert await editor.say(await editor.new_session(str(editor.workspace)), "hi") == "end_turn"


async def test_mcp_servers_may_be_left_out(tmp_path):
    async with editing(tmp_path, [says("hi")]) as editor:
        await editor.initialize()
        for servers in ({}, {"mcpServers": []}, {"mcpServers": None}):
            opened = await editor.ask("session/new", {"cwd": str(editor.workspace), **servers})
            assert uuid.UUID(opened["sessionId"]), servers


async def test_meta_never_overrides_a_parameter(tmp_path):
    evil = {"cwd": "/etc", "session_id": "EVIL", "sessionId": "EVIL", "prompt": [], "params": {}, "self": 1}
    async with editing(tmp_path, [uses(("bash", {"command": "pwd"})), says("ok")]) as editor:
        await editor.initialize()
        for meta in (evil, [], "x", None):
            params = {"cwd": str(editor.workspace), "mcpServers": [], "_meta": meta}
            session = (await editor.ask("session/new", params))["sessionId"]
            answer = await editor.ask("session/prompt", {**editor.prompt_params(session, "go"), "_meta": meta})
            assert answer["stopReason"] == "end_turn", meta
            assert editor.calls[-1].final["rawOutput"]["stdout"] == f"{editor.workspace}\n", meta


async def test_the_new_session_offers_modes_options_and_commands(tmp_path):
    async with editing(tmp_path, [says("hi")]) as editor:
        await editor.initialize()
        opened = await editor.ask("session/new", {"cwd": str(editor.workspace), "mcpServers": []})
        assert opened["modes"]["currentModeId"] == "suggest"
        modes = ["suggest", "auto-edit", "full-auto", "architect", "ask"]
        assert [mode["id"] for mode in opened["modes"]["availableModes"]] == modes
        options = {option["id"]: option for option in opened["configOptions"]}
        assert (options["mode"]["category"], options["mode"]["currentValue"]) == ("mode", "suggest")
        update = await editor.updated("available_commands_update")
        assert {"help", "tools", "run"} <= {command["name"] for command in update["availableCommands"]}


async def test_unknown_methods_are_not_found_and_unknown_notifications_are_ignored(tmp_path):
    async with editing(tmp_path, [says("hi")]) as editor:
        session = await editor.open()
        for method in ("session/teleport", "_somebody/else", "terminal/create", ""):
            assert (await editor.error_of(method, {})).code == -32601
        await editor.agent.notify("session/whatever", {})
        await editor.agent.notify("_somebody/else", {})
        assert await editor.say(session, "hi") == "end_turn"
