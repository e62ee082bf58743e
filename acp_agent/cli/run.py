"""`acp-agent run "PROMPT"`: one turn in this folder. A small editor without files and terminals of its own.

It drives the real server over real pipes, so that what is seen here is what every editor sees.
"""

import argparse
import os
import signal
import sys

import anyio
import anyio.to_thread

from acp_agent.cli.editor.client import Editor
from acp_agent.cli.editor.connection import AgentGone
from acp_agent.cli.editor.frames import JsonRpcError, Recording, at, objects_at, text_at
from acp_agent.cli.screen import Screen
from acp_agent.core.types import JsonObject

_KEYS = {"y": "allow_once", "a": "allow_always", "n": "reject_once", "v": "reject_always"}
_CANCELLED = 130


def run(args: argparse.Namespace) -> int:
    """Exit codes: 0 the turn ended as it should, 1 it did not, 130 cancelled with Ctrl-C."""
    return anyio.run(_Headless(args).run)


class _Headless:
    """One editor session with a person at a terminal, or nobody."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._cwd = os.getcwd()
        self._screen = Screen(sys.stdout, self._cwd)
        self._cancelled = False
        config = [] if args.config is None else ["--config", os.path.abspath(os.path.expanduser(args.config))]
        environment = dict(os.environ)
        if args.model is not None:
            environment["ACP_AGENT_MODEL"] = args.model
        self._editor = Editor(
            [sys.executable, "-m", "acp_agent", *config],
            environment,
            self._cwd,
            self._decide,
            capabilities={},
            recording=Recording(self._screen.frame),
        )

    async def run(self) -> int:
        code = 1
        try:
            async with self._editor.running():
                await self._editor.initialize()
                session = await self._editor.new_session(self._cwd)
                await self._set_options(session)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._heed_interrupts, session)
                    code = await self._turn(session)
                    tasks.cancel_scope.cancel()
        except* (AgentGone, JsonRpcError, OSError) as group:
            for error in group.exceptions:
                print(f"acp-agent: {error}\n{self._editor.log}", file=sys.stderr)
        return code

    async def _turn(self, session: str) -> int:
        block: JsonObject = {"type": "text", "text": self._args.prompt}
        answer = await self._editor.agent.request("session/prompt", {"sessionId": session, "prompt": [block]})
        self._screen.end()
        if self._cancelled:
            return _CANCELLED
        reason = text_at(answer, "stopReason")
        return 0 if reason == "end_turn" and at(answer, "_meta", "acp_agent", "failure") is None else 1

    async def _set_options(self, session: str) -> None:
        chosen = {"mode": self._args.mode, "auto_approve": "full-auto" if self._args.yes else None}
        for option, value in chosen.items():
            if value is not None:
                params: JsonObject = {"sessionId": session, "configId": option, "value": value}
                await self._editor.agent.request("session/set_config_option", params)

    async def _heed_interrupts(self, session: str) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as interrupts:
            async for _ in interrupts:
                if self._cancelled:  # a second one means it
                    os._exit(_CANCELLED)
                self._cancelled = True
                await self._editor.cancel(session)

    async def _decide(self, params: JsonObject) -> str | None:
        options = {text_at(option, "kind"): text_at(option, "optionId") for option in objects_at(params, "options")}
        if not sys.stdin.isatty():
            self._screen.question(params, options["reject_once"])
            self._screen.note("    nobody to ask: stdin is not a terminal; --yes allows without asking")
            return options["reject_once"]
        self._screen.question(params, "")
        chosen = await anyio.to_thread.run_sync(_read_key, abandon_on_cancel=True)
        return options.get(chosen) if chosen else None


def _read_key() -> str:
    """The kind of the option the person chose; empty at the end of the input."""
    while True:
        print("    [y]es once, [a]lways, [n]o, ne[v]er: ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return ""
        chosen = _KEYS.get(line.strip().lower()[:1])
        if chosen is not None:
            return chosen
