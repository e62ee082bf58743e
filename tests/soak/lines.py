"""Mutated protocol lines: each that wants an answer gets one, and the agent serves on.

What a line wants is decided here by JSON-RPC 2.0 anew, without the agent's parser.
"""

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio

from acp_agent.cli.agent_process import RecordedFrame
from tests.fakes.editor import ScriptedEditor, editing, from_agent
from tests.fakes.model_script import says
from tests.soak.case import Case
from tests.soak.endings import ended

LINES = 50_000
"""Lines of a case."""
_BATCH = 500
_GOLDEN = Path(__file__).parents[1] / "wire" / "golden"
_SCALARS = (None, True, False, 0, -1, 1.5, 1e300, 2**70, "", "x", "\u2028", "\x00", "../..", [], {}, [[]], {"a": None})
_BYTES = (b"\x00", b"\xff", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\\u", b"\\ud800", b"NaN", b"1e999", b" ")


async def lines(case: Case) -> None:
    """One agent that is sent LINES lines."""
    case.times = 0
    async with editing(case.folder, [says("hi")], lawful=False) as editor:
        session = await editor.open()
        corpus = list(_corpus(session, str(editor.workspace)))
        heard = _Heard(editor)
        for batch in range(LINES // _BATCH):
            await heard.send(case, [mutated(case.random, corpus, f"{batch}-{n}") for n in range(_BATCH)], batch)
            case.times += _BATCH
            if case.faults:
                break
        if await editor.say(await editor.new_session(str(editor.workspace)), "hi") != "end_turn":
            case.fault("other", "the agent does not serve any more")
        case.check_log(editor)
        await ended(case, editor, "EOF")


def _corpus(session: str, workspace: str) -> Iterator[dict[str, Any]]:
    """What editors really sent, in the transcripts of the wire tests. Prompts and sessions are rare: they cost."""
    for path in sorted(_GOLDEN.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            frame = json.loads(line)
            message = frame.get("message", frame.get("frame", frame))
            if isinstance(message, dict) and ("method" in message or "result" in message or "error" in message):
                yield message
    for method in (
        "session/cancel",
        "session/set_mode",
        "session/close",
        "session/load",
        "session/new",
        "session/list",
    ):
        yield {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"sessionId": session, "cwd": workspace}}
    yield {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}}
    yield {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}


def mutated(chance: random.Random, corpus: list[dict[str, Any]], name: str) -> bytes:
    """A line that was changed in its members, its bytes, or both; the id is new, if it is not changed itself."""
    message: Any = json.loads(json.dumps(chance.choice(corpus)))
    if "id" in message and "method" in message:
        message["id"] = name if chance.random() < 0.8 else int(name.replace("-", "9"))
    if message.get("method") in ("session/prompt", "session/new") and chance.random() < 0.95:
        message["params"] = _scalar(chance)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        _change_member(chance, message)
    line = json.dumps(message, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    for _ in range(chance.choice((0, 0, 0, 1, 2, 5))):
        line = _change_bytes(chance, line)
    return line.replace(b"\n", b" ")


def _change_member(chance: random.Random, value: Any) -> None:
    """Replace, remove or add a member somewhere in a value."""
    while isinstance(value, dict | list) and value:
        key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
        inner = value[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.6:
            value = inner
            continue
        match chance.randrange(4):
            case 0:
                del value[key]
            case 1 if isinstance(value, dict):
                value[chance.choice(("id", "method", "params", "jsonrpc", "x", "_meta"))] = _scalar(chance)
            case _:
                value[key] = _scalar(chance)
        return


def _scalar(chance: random.Random) -> Any:
    return copy.deepcopy(chance.choice(_SCALARS))


def _change_bytes(chance: random.Random, line: bytes) -> bytes:
    at = chance.randrange(len(line) + 1)
    match chance.randrange(5):
        case 0:
            return line[:at]
        case 1:
            return line[:at] + chance.choice(_BYTES) + line[at:]
        case 2:
            return line[:at] + bytes([chance.randrange(256)]) + line[at + 1 :]
        case 3:
            return line[:at] + line[at + chance.randrange(1, 9) :]
        case _:
            return line + line


def wanted_id(line: bytes) -> str | None:
    """The id, as JSON, of the answer that a line wants; None if it wants none."""
    line = line.strip(b" \t\r\n").removeprefix(b"\xef\xbb\xbf")
    if not line:
        return None
    try:
        message = json.loads(line.decode("utf-8"), parse_constant=_refused)
    except (ValueError, RecursionError):
        return "null"
    if not isinstance(message, dict):
        return "null"
    if "id" not in message and isinstance(message.get("method"), str):
        return None  # a notification, be it valid or not
    if message.get("jsonrpc") == "2.0" and "method" not in message and ("result" in message or "error" in message):
        return None  # the answer to a request of the agent
    request_id = message.get("id")
    known = isinstance(request_id, int | float | str) and not isinstance(request_id, bool)
    return _written(request_id) if known else "null"


def _written(request_id: Any) -> str:
    """The id without what JSON cannot carry: halves of characters, and numbers without end."""
    if isinstance(request_id, float) and request_id in (float("inf"), float("-inf")):
        return "null"
    if isinstance(request_id, str):
        request_id = request_id.encode("utf-8", "replace").decode()
    return json.dumps(request_id)


def _refused(name: str) -> Any:
    raise ValueError(name)


class _Heard:
    """Counts answers by their ids, batch by batch."""

    def __init__(self, editor: ScriptedEditor) -> None:
        self._editor = editor
        self._recording = editor.recording

    async def send(self, case: Case, batch: list[bytes], number: int) -> None:
        """Send lines, and wait until each that wants an answer has it."""
        self._recording.frames.clear()
        end = f"end-{number}"
        wanted = Counter(filter(None, map(wanted_id, batch)))
        probe = {
            "jsonrpc": "2.0",
            "id": end,
            "method": "authenticate",
            "params": {"methodId": self._editor.auth_method},
        }
        await self._editor.agent.send_bytes(b"\n".join(batch) + b"\n")
        await self._editor.send_line(probe)
        await self._editor.answer_to(end)
        with anyio.move_on_after(10):
            while wanted - self._answered():
                await self._recording.until(_is_answer, len(self._recording.frames))
        heard = self._answered() - Counter([json.dumps(end)])
        for column, differing in (("missing", wanted - heard), ("doubled", heard - wanted)):
            if differing:
                ids = set(differing)
                guilty = [line for line in batch if wanted_id(line) in ids][:3] or batch[:1]
                case.fault(column, f"{dict(differing)}; lines such as {guilty}", differing.total())

    def _answered(self) -> Counter[str]:
        return Counter(json.dumps(frame.message.get("id")) for frame in self._recording.frames if _is_answer(frame))


def _is_answer(frame: RecordedFrame) -> bool:
    return from_agent(frame) and not frame.method
