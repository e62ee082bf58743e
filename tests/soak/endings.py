"""Agents that are killed, or whose editor goes, at a moment of a story; the next agent must have all of it.

`kill -9`, and the end of stdin, SIGTERM, SIGHUP and a closed stdout (200 times).
"""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio

from acp_agent.cli.agent_process import AgentGone, RecordedFrame
from tests.e2e.killed_story import StoryModel, story_model
from tests.e2e.killing import CLIENTS, look, prepare, shown
from tests.fakes.editor import ScriptedEditor, editing
from tests.fakes.plain_editor import JsonRpcError
from tests.soak.case import WITHIN, Case, Waited
from tests.soak.moments import MOMENTS, Moment, doing, holding

SERVER = "tests.fakes.mcp_server"
_ENDED_BY = {name: -signal.Signals[name] for name in ("SIGKILL", "SIGTERM", "SIGHUP")}
DISCONNECTS = ("EOF", "SIGTERM", "SIGHUP", "EPIPE")


async def kill(case: Case) -> None:
    """`kill -9` of an agent."""
    await _end(case, "SIGKILL", Moment.chosen(case.random))


async def disconnect(case: Case) -> None:
    """An editor that goes, or a signal."""
    moment = Moment.chosen(case.random, [kind for kind in MOMENTS if kind != "system call"])
    await _end(case, DISCONNECTS[case.seed % len(DISCONNECTS)], replace(moment, delay=moment.delay or 0.001))


async def _end(case: Case, how: str, moment: Moment) -> None:
    async with story_model() as model:
        options = options_of(model, moment)
        try:
            frames, session = await _tell_and_end(case, how, moment, options)
        except AgentGone:  # killed in a system call before there was a session
            case.during.append("start")
            moment = replace(moment, kind="anywhere")
            async with editing(case.folder, None, **options_of(model, moment)) as editor:
                await editor.say(await editor.open(), "/help")
            return
        if moment.kind == "load":
            await _end_loading(case, how, moment, options, session)
        options = options_of(model, replace(moment, kind="anywhere"))
        await look(case.folder, model, options, shown(session, frames), case.judged)


async def _tell_and_end(
    case: Case, how: str, moment: Moment, options: dict[str, Any]
) -> tuple[Sequence[RecordedFrame], str]:
    async with editing(case.folder, None, **options) as editor:
        prepare(editor.workspace)
        session = await open_session(editor, moment)
        start, struck = len(editor.recording.frames), list[str]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tell, editor, session)

            def strike() -> None:
                struck.append(moment.kind)
                if how == "SIGKILL":
                    os.kill(editor.agent.pid, signal.SIGKILL)

            await moment.reached(editor, start, strike)
            if moment.kind == "close":
                tasks.start_soon(_suppressed, editor, "session/close", {"sessionId": session})
                await anyio.sleep(moment.delay)
            frames = list(editor.recording.frames[start:])
            if editor.agent.gone.is_set():
                struck.append(moment.kind)
            await ended(case, editor, how)
            tasks.cancel_scope.cancel()
        case.during += struck[:1] or [doing(frames)]
        case.check_answers(editor.recording.frames, alive=False)
        case.check_log(editor)
        if "terminal" not in editor.capabilities:
            await case.nothing_left()
    await case.nothing_left()  # what ran in the editor's terminals, the editor ended
    return editor.recording.frames[start:], session


async def _end_loading(case: Case, how: str, moment: Moment, options: dict[str, Any], session: str) -> None:
    async with editing(case.folder, None, **options) as editor:
        await editor.initialize()
        async with anyio.create_task_group() as tasks:
            params = {"sessionId": session, "cwd": str(editor.workspace), "mcpServers": []}
            tasks.start_soon(_suppressed, editor, "session/load", params)
            await anyio.sleep(moment.delay)
            case.during.append(doing(editor.recording.frames))
            await ended(case, editor, how)
            tasks.cancel_scope.cancel()
        case.check_answers(editor.recording.frames, alive=False)
        case.check_log(editor)
    await case.nothing_left()


def options_of(model: StoryModel, moment: Moment) -> dict[str, Any]:
    """What `editing` needs for a story."""
    options = {**model.options, "capabilities": CLIENTS[moment.client], "decide": holding(moment)}
    if moment.sandboxed:
        options["environment"] = {**options["environment"], "ACP_AGENT_TOOLS__SANDBOX__MODE": "auto"}
    if moment.agent:
        options |= {"cold": True, "agent": moment.agent}
    return options


async def open_session(editor: ScriptedEditor, moment: Moment, folder: str = "") -> str:
    """Initialize, and a session with or without an MCP server."""
    if not editor.initialized:
        await editor.initialize()
    server = {"name": "bare", "command": sys.executable, "args": ["-m", SERVER, str(editor.home.root)], "env": []}
    server["env"] = [{"name": "PYTHONPATH", "value": os.getcwd()}]
    params = {"cwd": folder or str(editor.workspace), "mcpServers": [server] if moment.servers else []}
    return (await editor.ask("session/new", params))["sessionId"]


async def ended(case: Case, editor: ScriptedEditor, how: str) -> None:
    """End the agent, and count it if it is still there after WITHIN seconds."""
    match how:
        case "EOF":
            await editor.agent.close_stdin(within=1)
        case "EPIPE":
            await editor.agent.stop_reading()
            line = {"jsonrpc": "2.0", "id": "unheard", "method": "session/list", "params": {}}
            with contextlib.suppress(AgentGone):
                await editor.send_line(line)
        case _:
            with contextlib.suppress(ProcessLookupError):
                os.kill(editor.agent.pid, signal.Signals[how])
    waited = Waited()
    while editor.agent.returncode is None and waited.seconds < WITHIN:
        await waited.a_little()
    case.gone = max(case.gone, waited.seconds)
    if editor.agent.returncode is None:
        case.fault("left running", f"{how}: the agent itself did not end in {WITHIN} s")
        os.kill(editor.agent.pid, signal.SIGKILL)
    code = await editor.agent.wait()
    await editor.agent.gone.wait()
    if code not in (0, *_ENDED_BY.values(), *(128 - each for each in _ENDED_BY.values())):
        case.fault("crashes", f"{how}: return code {code}\n{editor.log[-2000:]}")


async def tell(editor: ScriptedEditor, session: str) -> None:
    with contextlib.suppress(AgentGone, JsonRpcError):
        await editor.say(session, "tell the first part")
        await editor.say(session, "tell the second part")


async def _suppressed(editor: ScriptedEditor, method: str, params: dict[str, Any]) -> None:
    with contextlib.suppress(AgentGone, JsonRpcError):
        await editor.ask(method, params)
