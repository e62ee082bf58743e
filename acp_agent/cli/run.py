"""`acp-agent run [PROMPT]`: prompts in this folder, driven by a small editor without files and terminals of its own.

It starts the real server and speaks to it over pipes, so it shows what every editor shows. One prompt comes from the
command line or a pipe. At a terminal the user types one after another. The main thread reads them, because readline
and Ctrl-C work only there, and the editor runs in a thread of its own.
"""

import argparse
import importlib
import json
import os
import re
import shutil
import signal
import sys
import termios
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import wait
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, cast

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from acp_agent import __version__
from acp_agent.capabilities import at
from acp_agent.cli.agent_process import (
    AgentGone,
    AgentProcess,
    AgentRefused,
    Direction,
    RecordedFrame,
    Recording,
    objects_at,
    problems,
    text_at,
)
from acp_agent.cli.commands import server_flags
from acp_agent.cli.screen import Screen, notice_of, plain
from acp_agent.cli.turn_end import (
    EXIT_CODES,
    STOPS,
    QuestionLine,
    ResultLine,
    SessionLine,
    SessionUsage,
    TurnEnd,
    TurnOutcome,
    UpdateLine,
    session_usage,
)
from acp_agent.core.errors import AgentError
from acp_agent.core.types import JsonObject
from acp_agent.text import visible
from acp_agent.workspace.processes.tree import harden_process

if TYPE_CHECKING:
    from acp_agent.cli.editor import Editor, ListedSession

_SETTLE = 0.3  # seconds after a question in which keys are ignored: nobody reads and answers that fast
_LOOK_AGAIN = 0.2  # seconds between two looks for a Ctrl-C while a line is read
_TICK = 0.1  # seconds between two drawings of the line that says what runs
_LETTERS = {"allow_once": "y", "allow_always": "a", "allow_session": "s", "reject_once": "n", "reject_always": "v"}
_LEAVE = ("/exit", "/quit")
_SHORTEST_ID = 4  # characters of an id that the user must give at least


# ------------------------------------------------------------------------------------------- mentions of files

_MENTION = re.compile(r"""(?<![^\s(\[{"'<`])@(?:"([^"\n]+)"|([^\s"]+))""")
_ADDRESSED = re.compile(r"\s*@([\w-]+)\s")
_BEHIND = re.compile(r"(?::\d+(?:[-:]\d+)?)?[.,;:!?)\]}'>`]*")  # what may follow a path: lines, punctuation


def mentions(prompt: str, cwd: str) -> tuple[list[str], list[str]]:
    """Return the absolute paths that a prompt mentions as `@path`, and the mentions that name no file or folder.

    Punctuation and line numbers behind a path do not belong to it, and a path with spaces stands in quotes. A slash
    command mentions nothing. A name without a dot that begins the prompt may be a sub-agent's, so it is not missing.
    """
    addressed = _ADDRESSED.match(prompt)
    found: list[str] = []
    missing: list[str] = []
    for quoted, word in [] if prompt.lstrip().startswith("/") else _MENTION.findall(prompt):
        name = quoted or word
        ends = [len(name), *(at for at in range(len(word) - 1, 0, -1) if _BEHIND.fullmatch(word, at))]
        ends = [end for end in ends if "\0" not in name[:end]]  # which no path has
        paths = (os.path.normpath(os.path.join(cwd, os.path.expanduser(name[:end]))) for end in ends)
        path = next(filter(os.path.exists, paths), "")
        if path:
            found.append(path)
        elif name != "diagnostics" and not (addressed and name == addressed[1]):  # the agent itself replaces this word
            missing.append(name)
    return list(dict.fromkeys(found)), list(dict.fromkeys(missing))


# ------------------------------------------------------------------------------------------- the agent's side


class RunView:
    """A view of the agent for the user: a screen, or the lines of `--json`.

    Updates wait between turns and while the user types.

    refused   whether a question of the turn was refused because nobody could be asked
    """

    def __init__(self, root: str, *, as_json: bool) -> None:
        self.refused = False
        self.can_ask = not as_json and os.isatty(0) and sys.stdout.isatty()
        self._screen = None if as_json else Screen(sys.stdout, root)
        self._session = ""
        self._said: list[str] = []  # what the agent said after its last tool call
        self._has_result = False  # whether the last line of --json was written
        self._waiting: list[RecordedFrame] | None = []
        self._is_asking = False

    @property
    def is_live(self) -> bool:
        """Whether the output of commands is shown as it comes: on a terminal, where the user waits for it."""
        return self._screen is not None and sys.stdout.isatty()

    def frame(self, frame: RecordedFrame) -> None:
        """Show an update of the agent, or let it wait."""
        if frame.direction is Direction.TO_AGENT or not frame.update:
            return
        if self._waiting is not None:
            # New output of a call is dropped: a command in the background may print for hours while nobody types.
            kind, status = text_at(frame.update, "sessionUpdate"), text_at(frame.update, "status")
            if self._is_asking or (kind, status) != ("tool_call_update", "in_progress"):
                self._waiting.append(frame)
            return
        match text_at(frame.update, "sessionUpdate"):
            case "tool_call":
                self._said.clear()
            case "agent_message_chunk" if not notice_of(frame.update):
                self._said.append(text_at(frame.update, "content", "text"))
            case _:
                pass
        if self._screen is not None:
            self._screen.frame(frame)
        else:
            session = text_at(frame.params, "sessionId")
            self._line({"type": "update", "sessionId": session, "update": cast("dict[str, object]", frame.update)})

    def open(self, session: str, cwd: str, *, resumed: bool) -> None:
        """Show the session that was opened."""
        self._session = session
        self._line({"type": "session", "sessionId": session, "cwd": cwd, "resumed": resumed})

    def begin_turn(self) -> None:
        """Forget the turn before, and show updates."""
        self._said.clear()
        self.refused = False
        if self._screen is not None:
            self._screen.begin()
        self._go_on()

    def tick(self) -> None:
        """Show how long the turn has been running, but not while the user types."""
        if self._screen is not None and self._waiting is None:
            self._screen.tick()

    def end_turn(self) -> None:
        """End the open message, and let updates wait for the next turn."""
        self._waiting = []
        if self._screen is not None:
            self._screen.end()

    def note(self, text: str) -> None:
        """Show a remark, not with `--json`."""
        if self._screen is not None:
            self._screen.note(plain(text))

    def end(self, end: TurnEnd, *, once: bool) -> None:
        """Print the turn's summary on stderr, or with `--json` the result. `once` means that no other turn follows."""
        if self._screen is not None:
            summary = end.summary(self._session)
            print(self._screen.summary(summary) if sys.stderr.isatty() else summary, file=sys.stderr, flush=True)
        elif once and not self._has_result:
            self._has_result = True
            self._line(end.line(self._session, "".join(self._said).removeprefix("\n\n")))

    def cancelled(self) -> None:
        """Write the result of `--json` before a Ctrl-C ends the process."""
        if self._screen is None:
            self.end(TurnEnd(TurnOutcome.CANCELLED), once=True)

    def fail(self, problems: Sequence[str]) -> int:
        """Show why there is no outcome, and return the exit code."""
        if self._screen is None:
            self.end(TurnEnd(TurnOutcome.ERROR, error=problems[0] if problems else ""), once=True)
        for at_line, line in enumerate(problems):
            print(line if at_line else f"acp-agent: {plain(line)}", file=sys.stderr)
        return EXIT_CODES[TurnOutcome.ERROR]

    def _line(self, line: SessionLine | UpdateLine | QuestionLine | ResultLine) -> None:
        """Write a line of `--json`, in ASCII, since a terminal would interpret other characters."""
        if self._screen is None:
            print(json.dumps(line).replace("\x7f", "\\u007f"), flush=True)

    def refuse(self, params: JsonObject, option: str) -> None:
        """Show a question that is refused by `option` because nobody can be asked."""
        self.refused = True
        call = at(params, "toolCall")
        self._line({"type": "question", "toolCall": cast("dict[str, object]", call), "refused": True})
        if self._screen is not None:
            self._screen.question(params, option)
        self.note("    refused: stdin or stdout is no terminal, so nobody can be asked; --yes asks nothing")

    @asynccontextmanager
    async def question(self, params: JsonObject) -> AsyncGenerator[None]:
        """Show a question. Updates wait until it is answered."""
        if self._screen is not None:
            self._screen.question(params, "")
        self._waiting, self._is_asking = [], True
        try:
            yield
        finally:
            self._is_asking = False
            if self._screen is not None:
                self._screen.answered(params)
            self._go_on()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for frame in waiting:
            self.frame(frame)


class RunAgent:
    """The agent of a run, and its only session. Its methods run in the thread of the portal, not in the main one."""

    def __init__(self, args: argparse.Namespace, cwd: str, view: RunView, *, once: bool) -> None:
        self._args = args
        self._cwd = cwd
        self._view = view
        self._asking = anyio.Lock()  # one question at a time
        command = _server_command(args, cwd, once=once)
        self.process = AgentProcess(command, os.environ, cwd, Recording(view.frame, keep=False))

    @asynccontextmanager
    async def session(self) -> AsyncGenerator["RunSession"]:
        """Start the agent and open the session. The agent ends with the body."""
        async with self.process.running():
            from acp_agent.cli.editor import Editor  # noqa: PLC0415 - the agent starts while the SDK is loaded

            async with Editor(self.process, self._decide) as editor:
                await editor.initialize(shows_output=self._view.is_live)
                yield await self._opened(editor)

    async def _opened(self, editor: "Editor") -> "RunSession":
        """Open a new session, or the one that was asked for. Raises AgentError if there is none."""
        if not self._args.last and not self._args.resume:
            session = await editor.new_session(self._cwd)
            self._view.open(session, self._cwd, resumed=False)
            return RunSession(editor, self._view, session, self._cwd, SessionUsage())
        session, cwd, title = await self._chosen(editor)
        await editor.resume_session(session, cwd)
        self._view.open(session, cwd, resumed=True)
        self._view.note(f"continues session {session[:8]} of {cwd}: {title or 'no title'}")
        return RunSession(editor, self._view, session, cwd, await session_usage(editor, session))

    async def _chosen(self, editor: "Editor") -> "ListedSession":
        """Return the session to continue. Raises AgentError."""
        if self._args.last:
            last = await editor.last_session(self._cwd)
            if last is None:
                raise AgentError("this folder has no session yet; start one without --continue")
            return last
        wanted = self._args.resume
        if len(wanted) < _SHORTEST_ID:
            raise AgentError(f"{wanted!r}: expected a session's id, or at least its first {_SHORTEST_ID} characters")
        found = [each for each in await editor.sessions() if each.id.startswith(wanted)]
        if len(found) != 1:
            some = f"{len(found)} sessions begin with" if found else "there is no session"
            raise AgentError(f"{some} {visible(wanted)}; `acp-agent sessions list` names all")
        return found[0]

    async def _decide(self, params: JsonObject) -> str | None:
        options = objects_at(params, "options")
        async with self._asking:
            # The content of a pipe was written before the question, so only a terminal can answer.
            if self._view.can_ask:
                async with self._view.question(params):
                    return await _chosen_option(options)
            refusing = next((each for each in options if text_at(each, "kind") == "reject_once"), JsonObject())
            self._view.refuse(params, text_at(refusing, "optionId"))
            return text_at(refusing, "optionId") or None


class RunSession:
    """One session, one turn after the other. `cwd` is the session's folder."""

    def __init__(self, editor: "Editor", view: RunView, session: str, cwd: str, before: SessionUsage) -> None:
        self._editor = editor
        self._view = view
        self._before = before
        self._cancelled = False
        self.session = session
        self.cwd = cwd

    async def turn(self, prompt: str, paths: Sequence[str]) -> TurnEnd:
        """Run a turn with a prompt and links to files and folders."""
        began = time.monotonic()
        self._cancelled = False
        self._view.begin_turn()
        try:
            answer = await self._editor.prompt(self.session, prompt, paths)
        finally:
            self._view.end_turn()
        seconds = time.monotonic() - began
        error = text_at(answer.field_meta, "acp_agent", "failure")
        outcome = STOPS.get(answer.stop_reason, TurnOutcome.ERROR)
        if self._cancelled:
            outcome = TurnOutcome.CANCELLED
        elif outcome is TurnOutcome.DONE and error:
            outcome = TurnOutcome.ERROR
        elif outcome is TurnOutcome.DONE and self._view.refused:
            outcome = TurnOutcome.REFUSED
        now = await session_usage(self._editor, self.session)
        used, self._before = now.since(self._before), now
        return TurnEnd(outcome, answer.stop_reason, error, seconds, used.usage, used.cost)

    async def cancel(self) -> None:
        self._cancelled = True
        await self._editor.cancel(self.session)


def _server_command(args: argparse.Namespace, cwd: str, *, once: bool) -> list[str]:
    """Return the command that starts the server with this Python. Its flags take precedence over all other sources.

    once   whether the agent ends after one turn. The session's title is then the prompt, since a model's comes later
    """
    # Python must not import modules from the user's folder, unless it was started to look there.
    safe = [] if cwd in sys.path or "" in sys.path else ["-P"]
    titles = ["--titles", "prompt"] if once else []
    return [sys.executable, *safe, "-m", "acp_agent", "acp", *server_flags(args), *titles]


# ------------------------------------------------------------------------------------------- the keys of a question


def answer_keys(options: Sequence[JsonObject]) -> dict[str, JsonObject]:
    """Return the options by the key that chooses them: the letter of its id or kind, or a digit."""
    keys: dict[str, JsonObject] = {}
    for option in options:
        letter = _LETTERS.get(text_at(option, "optionId")) or _LETTERS.get(text_at(option, "kind"), "1")
        keys[next(key for key in (letter, *map(str, range(1, 100))) if key not in keys)] = option
    return keys


async def _chosen_option(options: Sequence[JsonObject]) -> str | None:
    """Ask for a key, and return the id of the option that the user chose, or None at the end of the input.

    Keys that were typed before the question and in the first moment after it do not count.
    """
    await anyio.sleep(_SETTLE)
    with suppress(termios.error):  # the terminal is gone, which the next read reports
        termios.tcflush(0, termios.TCIFLUSH)
    keys = answer_keys(options)
    names = [f"[{key}] {' '.join(plain(text_at(option, 'name')).split())}" for key, option in keys.items()]
    offer = "  ".join(names)
    if len(offer) > shutil.get_terminal_size().columns - 8:
        offer = "\n    ".join([*names, "which"])
    while True:
        print(f"    {offer}: ", end="", flush=True)
        line = await _typed_line()
        if not line:
            return None
        chosen = keys.get(line.strip().lower()[:1])
        if chosen is not None:
            return text_at(chosen, "optionId")


def _typed_prompt() -> str:
    """Return the line that the user types at a prompt. Raises EOFError and KeyboardInterrupt.

    Python looks for a Ctrl-C only when its wait for a key is interrupted, so one that came just before the wait would
    be lost. A timer interrupts the wait a few times a second.
    https://github.com/python/cpython/blob/3.11/Modules/readline.c (readline_until_enter_or_signal)
    """
    signal.signal(signal.SIGALRM, _ignored)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_AGAIN, _LOOK_AGAIN)
    try:
        return input("\n> ")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _ignored(*_: object) -> None:
    """Handle a signal that only interrupts a wait. SIG_IGN would not even do that."""


async def _typed_line() -> str:
    """Return the next line that is typed. At the end of the input it is incomplete or empty.

    No thread reads the line, because it would keep the process alive after Ctrl-C.
    """
    line = b""
    while not line.endswith(b"\n"):
        await anyio.wait_readable(0)
        try:
            typed = os.read(0, 4096)  # a terminal returns at most one line
        except OSError:  # the terminal is gone
            return ""
        if not typed:
            break
        line += typed
    return line.decode("utf-8", "replace")


# ------------------------------------------------------------------------------------------- the user's side


def run(args: argparse.Namespace) -> int:
    """Run one turn, or a conversation at the terminal. Return the exit code of the last outcome (see EXIT_CODES).

    Raises BrokenPipeError if the reader of stdout is gone, and AgentError for a folder that no message can name.
    """
    prompt = _given_prompt(args)
    cwd = os.getcwd()
    if cwd.encode(errors="replace").decode() != cwd:
        raise AgentError(f"no session can be in a folder whose path is not UTF-8: {cwd}")
    harden_process()  # the agent's commands must not read our environment
    view = RunView(cwd, as_json=args.json)
    agent = RunAgent(args, cwd, view, once=prompt is not None)
    interrupts = _Interrupts(view)
    failed: list[str] = []
    is_read = True
    code: int | None = None
    try:
        with start_blocking_portal() as portal, portal.wrap_async_context_manager(agent.session()) as opened:
            user = _User(portal, opened, view, interrupts)
            code = user.talk() if prompt is None else user.ask(prompt, mentioning=args.prompt is not None)
            interrupts.end_with(code)
    except* BrokenPipeError:
        is_read = False
    except* AgentError as group:
        failed += problems(group)
    except* (AgentGone, AgentRefused, OSError) as group:
        failed += [*problems(group), *plain(agent.process.log).splitlines()]
    if code is None and not is_read:
        raise BrokenPipeError  # the command line handles it for every subcommand
    return view.fail(failed) if code is None else code


def _given_prompt(args: argparse.Namespace) -> str | None:
    """Return the prompt of the command line or of a pipe; None if the user types prompts. Exits with 2 without any."""
    if args.prompt is not None:
        return args.prompt
    if os.isatty(0):
        if args.json or not sys.stdout.isatty():
            args.misused("expected a PROMPT, because stdout is no terminal on which it could be asked for")
        return None
    with open(0, encoding="utf-8", errors="replace", closefd=False) as piped:
        prompt = piped.read()
    if not prompt.strip():
        args.misused("expected a PROMPT, as an argument or on stdin")
    return prompt


class _Interrupts:
    """The handler of Ctrl-C. It cancels the running turn; without one, or the second time, it ends the process at once.

    The agent ends when its stdin is closed.
    """

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._code: int = EXIT_CODES[TurnOutcome.CANCELLED]
        self._cancel: Callable[[], object] | None = None
        signal.signal(signal.SIGINT, self._interrupt)

    @contextmanager
    def cancelling(self, cancel: Callable[[], object]) -> Generator[None]:
        """Call `cancel` at the first Ctrl-C in the body."""
        self._cancel = cancel
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            self._cancel = None

    @contextmanager
    def raising(self) -> Generator[None]:
        """Raise KeyboardInterrupt at Ctrl-C in the body, except in the body of `cancelling`."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def end_with(self, code: int) -> None:
        """Let a Ctrl-C from now on end the process with this code, because the outcome is known."""
        self._code = code

    def _interrupt(self, *_: object) -> None:
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
            return
        if self._code == EXIT_CODES[TurnOutcome.CANCELLED]:
            self._view.cancelled()
        os._exit(self._code)


class _User:
    """The user in the main thread, where Ctrl-C and readline work, and a conversation in the thread of `portal`."""

    def __init__(
        self, portal: BlockingPortal, conversation: RunSession, view: RunView, interrupts: _Interrupts
    ) -> None:
        self._portal = portal
        self._interrupts = interrupts
        self._conversation = conversation
        self._view = view

    def talk(self) -> int:
        """Read prompts and answer them until Ctrl-D, or until Ctrl-C is typed twice. Return the exit code."""
        with suppress(ImportError):  # not every Python has it
            importlib.import_module("readline")  # `input` uses it once it is loaded
        view, session = self._view, self._conversation.session
        view.note(
            f"acp-agent {__version__}, session {session[:8]}. /help shows commands, @path adds a file, Ctrl-D ends."
        )
        with self._interrupts.raising():
            try:
                return self._talk()
            except KeyboardInterrupt:  # a second Ctrl-C while the first one was handled
                return EXIT_CODES[TurnOutcome.CANCELLED]

    def _talk(self) -> int:
        view = self._view
        interrupted = False
        while True:
            try:
                prompt = _typed_prompt().strip()
                interrupted = False
                if prompt in _LEAVE:
                    return 0
                if prompt:
                    view.end(self._turn(prompt, mentioning=True), once=False)
            except EOFError:
                print()
                return 0
            except KeyboardInterrupt:
                print()
                if interrupted:
                    return EXIT_CODES[TurnOutcome.CANCELLED]
                interrupted = True
                view.note("Ctrl-C again, or Ctrl-D, ends the conversation.")
            except AgentRefused as error:
                print(f"acp-agent: {plain(str(error))}", file=sys.stderr)

    def ask(self, prompt: str, *, mentioning: bool) -> int:
        """Run the only turn, and return the exit code."""
        end = self._turn(prompt, mentioning=mentioning)
        self._view.end(end, once=True)
        return EXIT_CODES[end.outcome]

    def _turn(self, prompt: str, *, mentioning: bool) -> TurnEnd:
        """Run a turn. Ctrl-C cancels it, a second one ends the process at once.

        mentioning   whether `@path` in the prompt adds the file. Text of a pipe is data, so it adds none
        """
        found, missing = mentions(prompt, self._conversation.cwd) if mentioning else ([], [])
        for name in missing:
            print(f"acp-agent: @{visible(name)} names no file or folder here; it is sent as text", file=sys.stderr)
        session, portal = self._conversation, self._portal
        with self._interrupts.cancelling(lambda: portal.start_task_soon(session.cancel)):
            turn = portal.start_task_soon(session.turn, prompt, found)
            while self._view.is_live and not wait([turn], _TICK).done:
                portal.call(self._view.tick)
            return turn.result()
