"""One life of an agent in the fork server, before the first agent is forked (fork_server.py).

An agent builds its models, compiles its patterns and reads its tables when it first needs them. In a test that is a
third of its work. What it made once, all agents that are forked afterwards have.
"""

import ctypes
import gc
import json
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from tests.fakes.home import Home
from tests.fakes.model_script import says, uses, write_script

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_PATIENCE = 30.0  # seconds
_SCRIPT = [
    uses(("bash", {"command": "head -n 1 a.txt"}), ("read", {"path": "a.txt"}), ("grep", {"pattern": "one"})),
    uses(("write", {"path": "b.txt", "content": "two\n"})),
    uses(("edit", {"path": "a.txt", "old_text": "one", "new_text": "two"})),
    says("done"),
]


def rehearse() -> None:
    """Let an agent live in this process: it begins a session, plays a turn with tools, and ends."""
    with tempfile.TemporaryDirectory(prefix="acp-rehearsal-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as folder:
        home, work = Home(Path(folder, "home")), Path(folder, "work")
        work.mkdir()
        (work / "a.txt").write_text("one\n")
        model = write_script(home.root, _SCRIPT)
        home.config.write_text(
            f"[llm]\nmodel = '{model}'\n[acp]\nauto_approve = 'full-auto'\n[logging]\nlevel = 'error'\n"
        )
        with _environment(home.environment()), _process_as_before():
            _live(str(work))
        gc.collect()  # closes what is left open in the folder


def _live(work: str) -> None:
    from acp_agent.app import _serve  # noqa: PLC0415 - the agents' modules, not the tests'
    from acp_agent.boot import Handover  # noqa: PLC0415 - as above
    from acp_agent.config.load import Flags  # noqa: PLC0415 - as above

    (stdin, to_agent), (from_agent, stdout) = os.pipe(), os.pipe()
    failures: list[BaseException] = []
    editor = threading.Thread(target=_edit, args=(to_agent, from_agent, work, failures))
    editor.start()
    code = anyio.run(_serve, Handover(stdin, stdout, b"", None), Flags())
    os.close(stdout)
    for thread in set(threading.enumerate()) - {threading.current_thread()}:
        thread.join(_PATIENCE)  # a thread is not forked, but a lock that it holds is
    os.close(stdin)
    assert code == 0
    assert not failures, failures
    assert threading.active_count() == 1, threading.enumerate()


def _edit(to_agent: int, from_agent: int, work: str, failures: list[BaseException]) -> None:
    """Be the editor, which offers nothing and is asked nothing."""
    with open(to_agent, "wb", buffering=0) as requests, open(from_agent, "rb") as answers:

        def ask(number: int, method: str, params: dict[str, Any]) -> Any:
            requests.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode())
            requests.write(b"\n")
            for line in answers:
                message = json.loads(line)
                if message.get("id") == number:
                    return message["result"]
            raise EOFError(method)

        try:
            ask(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            session = ask(2, "session/new", {"cwd": work, "mcpServers": []})["sessionId"]
            turn = ask(3, "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]})
            assert turn["stopReason"] == "end_turn", turn
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failures.append(error)


@contextmanager
def _environment(variables: dict[str, str]) -> Generator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _process_as_before() -> Generator[None]:
    """Keep the agent from ending this process, which it does two seconds after its own end, and from changing it."""
    import structlog  # noqa: PLC0415 - as above

    from acp_agent.app import LastResort  # noqa: PLC0415 - as above
    from acp_agent.workspace.processes.tree import is_subreaper  # noqa: PLC0415 - as above

    arm, handlers = LastResort.arm, logging.getLogger().handlers[:]
    hooks = sys.excepthook, threading.excepthook
    LastResort.arm = lambda self: self._reserve.release()
    try:
        yield
    finally:
        LastResort.arm = arm
        logging.getLogger().handlers[:] = handlers
        structlog.reset_defaults()
        sys.excepthook, threading.excepthook = hooks
        if sys.platform == "linux":
            for option, value in ((_PR_SET_CHILD_SUBREAPER, 0), (_PR_SET_DUMPABLE, 1)):
                ctypes.CDLL(None).prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0)))
        is_subreaper.cache_clear()
