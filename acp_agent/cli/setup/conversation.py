"""`acp-agent doctor --editor NAME`: look for the settings of an editor, and talk to the agent that they start."""

import os
import shutil
import time
from contextlib import suppress

import anyio

from acp_agent.cli.agent_process import AgentProcess, Recording, objects_at, text_at
from acp_agent.cli.doctor import CheckLevel, CheckResult
from acp_agent.cli.setup.command import EXTENSION, is_installed, run_code
from acp_agent.cli.setup.editors import AgentCommand, EditorSetup, editor_setup, this_installation
from acp_agent.cli.setup.files import read_settings
from acp_agent.cli.setup.jsonc import JsoncFault
from acp_agent.core.errors import AgentError
from acp_agent.core.types import JsonObject

_PATIENCE = 20.0  # seconds for an answer; CodeCompanion waits as long
_CLIENT: JsonObject = {
    "protocolVersion": 1,
    "clientInfo": {"name": "acp-agent doctor", "version": "1"},
    "clientCapabilities": {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True},
}


class _Broken(Exception):
    """The conversation cannot go on. The text says why."""


def check_editor(name: str, file: str | None = None) -> list[CheckResult]:
    """Return whether an editor is set up, and whether the agent answers as the editor would start it."""
    editor = editor_setup(name, os.environ, file)
    own = this_installation()
    found = _looked_up(name, editor, own)
    launch = own if not editor.file else found[1]
    extension = _extension() if name == "vscode" and shutil.which("code") else []
    return [*found[0], *extension, *([anyio.run(_talk, name, launch)] if launch is not None else [])]


def _looked_up(name: str, editor: EditorSetup, own: AgentCommand) -> tuple[list[CheckResult], AgentCommand | None]:
    how = f"acp-agent setup {name} --write"
    results: list[CheckResult] = []
    if not is_installed(editor, os.environ):
        looked = " or ".join(editor.evidence)
        results.append(CheckResult(CheckLevel.WARN, name, f"{editor.title} was not found: there is no {looked}"))
    if not editor.file:
        how = f"`acp-agent setup {name}` prints what to do"
        return [*results, CheckResult(CheckLevel.OK, name, f"{editor.title} has no file to look into", how)], own
    try:
        text = read_settings(editor.file)
        launch = editor.launch_in(text) if text else None
    except (AgentError, JsoncFault) as error:
        return [*results, CheckResult(CheckLevel.FAIL, name, f"{editor.file}: {error}", "correct it")], None
    if launch is None:
        said = "does not start acp-agent" if text is not None else "does not exist"
        return [*results, CheckResult(CheckLevel.FAIL, name, f"{editor.file} {said}", how)], None
    results.append(CheckResult(CheckLevel.OK, name, f"{editor.file} starts {launch.command}"))
    if launch.words != own.words:
        results.append(CheckResult(CheckLevel.WARN, name, f"this is another installation than {own.command}", how))
    return results, launch


def _extension() -> list[CheckResult]:
    """Return whether an extension that speaks ACP is in VS Code."""
    try:
        listed = run_code("--list-extensions").stdout.lower().split()
    except AgentError as error:
        return [CheckResult(CheckLevel.WARN, "vscode", str(error), "look at VS Code's list of extensions")]
    found = [each for each in (EXTENSION, "formulahendry.acp-client") if each in listed]
    if not found:
        said = "neither our extension nor ACP Client (formulahendry.acp-client) is installed"
        return [CheckResult(CheckLevel.FAIL, "vscode", said, "install one of them")]
    return [CheckResult(CheckLevel.OK, "vscode", f"{' and '.join(found)} is installed")]


async def _talk(name: str, launch: AgentCommand) -> CheckResult:
    """Hold a short conversation: initialize, a session, `/help`, and the end of the session."""
    agent = AgentProcess(launch.words, {**os.environ, **launch.env}, os.getcwd(), Recording())
    start = time.monotonic()
    try:
        async with agent.running():
            trouble = await _trouble(agent)
    except OSError as error:
        said = f"{launch.command} cannot be started: {error.strerror or error}"
        return CheckResult(CheckLevel.FAIL, name, said, f"acp-agent setup {name} --write")
    if trouble:
        log = agent.log.strip().rpartition("\n")[2]
        return CheckResult(CheckLevel.FAIL, name, trouble, f"it said: {log}" if log else "")
    seconds = time.monotonic() - start
    return CheckResult(CheckLevel.OK, name, f"initialize, a session and /help are answered, in {seconds:.1f} s")


async def _trouble(agent: AgentProcess) -> str:
    """Hold the conversation, and return why it broke off, or ""."""
    try:
        await _converse(agent)
    except _Broken as broken:
        return str(broken)
    return ""


async def _converse(agent: AgentProcess) -> None:
    answer = await _ask(agent, 1, "initialize", _CLIENT)
    if not objects_at(answer, "authMethods"):
        raise _Broken("initialize names no authMethods, which some editors need")
    answer = await _ask(agent, 2, "session/new", {"cwd": os.getcwd(), "mcpServers": []})
    session = text_at(answer, "sessionId")
    prompt: JsonObject = {"sessionId": session, "prompt": [{"type": "text", "text": "/help"}]}
    answer = await _ask(agent, 3, "session/prompt", prompt)
    if text_at(answer, "stopReason") != "end_turn":
        raise _Broken(f"/help ended with {text_at(answer, 'stopReason') or 'no stopReason'}")
    shown = [frame.update for frame in agent.recording.frames if frame.update]
    if not any(text_at(update, "sessionUpdate") == "agent_message_chunk" for update in shown):
        raise _Broken("/help showed no text")
    await _ask(agent, 4, "session/delete", {"sessionId": session})


async def _ask(agent: AgentProcess, number: int, method: str, params: JsonObject) -> JsonObject:
    """Send a request and return its result. Raises _Broken."""
    try:
        with anyio.fail_after(_PATIENCE):
            with suppress(ConnectionError):  # what it wrote before it ended is read all the same
                await agent.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            while (message := await agent.receive()) is not None:
                if "method" in message:
                    unknown: JsonObject = {"code": -32601, "message": "not served"}
                    await agent.send({"jsonrpc": "2.0", "id": message["id"], "error": unknown})
                elif message["id"] == number:
                    break
    except TimeoutError:
        raise _Broken(f"no answer to {method} in {_PATIENCE:g} s") from None
    if message is None:
        raise _Broken(f"it ended before it answered {method}: {agent.failure or 'no more output'}")
    if "error" in message:
        raise _Broken(f"{method} was refused: {text_at(message, 'error', 'message')}")
    result = message.get("result")
    return result if isinstance(result, dict) else {}
