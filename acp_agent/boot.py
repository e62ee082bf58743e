"""The first milliseconds: answer `initialize` with the standard library alone, then load the rest.

Editors wait for this answer before they do anything else, and the rest of the agent takes a quarter of a second to
import. So a first line that is a plain, well-formed `initialize` request is answered here, and so is a `session/new`
that follows at once, if its answer is known (`store/known_answers`). Any other line is left to `protocol/jsonrpc`,
which has the strict rules.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
from collections.abc import Sequence

from acp_agent.capabilities import fork_offered, initialize_result

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing `typing` would take a fifth of the time to the first answer
    from acp_agent.core.types import Json, JsonObject
    from acp_agent.store.known_answers import KnownAnswers, OpenedSession

_CHUNK = 65536
_LINE_LIMIT = 1024 * 1024
_PATIENCE = 0.02
"""Seconds to wait for a `session/new`. Editors send it at once, or after something that takes longer."""
_NEW_OBJECTS = 10_000
"""The number of new objects after which the garbage collector runs. It finds little, since few are in cycles."""
_WATCHED = ("ACP_AGENT_LOG_FRAMES", "ACP_AGENT_STRICT")
"""Variables that make the server record or check every message. With one of them, the server answers `session/new`."""


class Handover:
    """The state that boot hands over to the server. It is no dataclass: `dataclasses` would double the import time.

    input_fd, output_fd   the protocol's stream, moved away from 0 and 1
    unread                bytes that were read from the stream but not handled
    initialized           params of the `initialize` request that was answered, or None
    known                 the answers to `session/new` that are known, or None if none are kept
    opened                the session that was answered, or None
    """

    __slots__ = ("initialized", "input_fd", "known", "opened", "output_fd", "unread")

    def __init__(
        self,
        input_fd: int,
        output_fd: int,
        unread: bytes,
        initialized: JsonObject | None,
        known: KnownAnswers | None = None,
        opened: OpenedSession | None = None,
    ) -> None:
        self.input_fd = input_fd
        self.output_fd = output_fd
        self.unread = unread
        self.initialized = initialized
        self.known = known
        self.opened = opened


def main(argv: Sequence[str] = ()) -> int:
    """Serve one editor on stdin and stdout with the flags in `argv`, and return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback until the server has its own handlers
    if not (_is_open(0) and _is_open(1)):
        return 0  # there is no stream to serve
    gc.disable()  # modules are never freed, and collecting takes a tenth of the time to load them
    input_fd, output_fd = claim_stdio()
    handover = answer_first_line(input_fd, output_fd)
    if handover.initialized is not None and not argv:
        handover = answer_new_session(handover, handover.initialized)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for plugins takes 20 ms
    from acp_agent import app  # noqa: PLC0415 - nothing heavy before the first answer

    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)  # collecting took a tenth of a turn
    gc.enable()
    return app.main(handover, argv)


def claim_stdio() -> tuple[int, int]:
    """Move the protocol's stream away from fds 0 and 1, and return its private (input, output) fds.

    Afterwards fd 0 is /dev/null and fd 1 is stderr, so that no child and no stray print touches the stream. Fds 0 and 1
    must be open.
    """
    if not _is_open(2):  # otherwise a copy of the stream would get number 2, that of stderr
        os.set_inheritable(os.open(os.devnull, os.O_WRONLY), True)
    input_fd, output_fd = os.dup(0), os.dup(1)  # dup makes them non-inheritable
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return input_fd, output_fd


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def answer_first_line(input_fd: int, output_fd: int) -> Handover:
    """Read the first line, and answer it if it is a plain `initialize` request."""
    line, unread = _read_line(input_fd)
    request = _plain_request(line, "initialize")
    if request is None or type(request[1].get("protocolVersion")) is not int:
        return Handover(input_fd, output_fd, line + unread, None)
    request_id, params = request
    _write(output_fd, request_id, initialize_result(params, fork=fork_offered(os.environ)))
    return Handover(input_fd, output_fd, unread, params)


def answer_new_session(handover: Handover, initialized: JsonObject) -> Handover:
    """Answer a plain `session/new` that follows at once, if its answer is known."""
    if any(map(os.environ.get, _WATCHED)):
        return handover
    from acp_agent.store.known_answers import KnownAnswers  # noqa: PLC0415 - the first answer is out

    known = KnownAnswers(dict(os.environ), initialized)
    input_fd, output_fd, unread, opened = handover.input_fd, handover.output_fd, handover.unread, None
    if unread or select.select([input_fd], [], [], _PATIENCE)[0]:
        line, rest = _read_line(input_fd, unread)
        request = _plain_request(line, "session/new")
        opened = None if request is None else known.open(request[1])
        if request is not None and opened is not None:
            _write(output_fd, request[0], opened.answer)
        known.close()
        unread = line + rest if opened is None else rest
    return Handover(input_fd, output_fd, unread, initialized, known, opened)


def _write(fd: int, request_id: int | str, result: JsonObject) -> None:
    """Write a response. The process ends if nobody reads it."""
    answer = {"jsonrpc": "2.0", "id": request_id, "result": result}
    data = json.dumps(answer, separators=(",", ":")).encode() + b"\n"
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:  # the editor made the stream non-blocking
            select.select([], [fd], [])
        except BrokenPipeError:
            sys.exit(0)


def _read_line(fd: int, data: bytes = b"") -> tuple[bytes, bytes]:
    """Return the line that begins with `data`, and what was read behind it."""
    while b"\n" not in data and len(data) < _LINE_LIMIT:
        try:
            chunk = os.read(fd, _CHUNK)
        except BlockingIOError:  # the editor made the stream non-blocking
            select.select([fd], [], [])
            continue
        if not chunk:
            return data, b""
        data += chunk
    line, newline, rest = data.partition(b"\n")
    return line + newline, rest


def _plain_request(line: bytes, method: str) -> tuple[int | str, JsonObject] | None:
    """Return the id and params of a valid request of a method; None for any other line."""
    if not line.endswith(b"\n"):
        return None
    try:
        message: Json = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or message.get("method") != method:
        return None
    request_id, params = message.get("id"), message.get("params")
    if not isinstance(request_id, int | str) or isinstance(request_id, bool) or not isinstance(params, dict):
        return None
    return request_id, params


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
