"""The first milliseconds: answer `initialize` with the standard library alone, then load the rest.

Editors wait for this answer before they do anything else, and the rest of the agent takes a quarter of a second to
import. So a first line that is a plain, well-formed `initialize` request is answered here. Any other first line is left
to `protocol/jsonrpc`, which has the strict rules.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections.abc import Sequence

from acp_agent.capabilities import fork_offered, initialize_result

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing `typing` would take a fifth of the time to the first answer
    from acp_agent.core.types import Json, JsonObject

_CHUNK = 65536
_FIRST_LINE_LIMIT = 1024 * 1024


class Handover:
    """What the server takes over. Not a dataclass, because importing `dataclasses` would double the import time.

    input_fd, output_fd   the protocol's stream, moved away from 0 and 1
    unread                bytes that were read from the stream but not handled
    initialized           params of the `initialize` request that was answered, or None
    """

    __slots__ = ("initialized", "input_fd", "output_fd", "unread")

    def __init__(self, input_fd: int, output_fd: int, unread: bytes, initialized: JsonObject | None) -> None:
        self.input_fd = input_fd
        self.output_fd = output_fd
        self.unread = unread
        self.initialized = initialized


def main(argv: Sequence[str] = ()) -> int:
    """Serve one editor on stdin and stdout with the flags in `argv`, and return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback until the server has its own handlers
    if not (_is_open(0) and _is_open(1)):
        return 0  # there is no stream to serve
    input_fd, output_fd = claim_stdio()
    handover = answer_first_line(input_fd, output_fd)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for plugins takes 20 ms
    gc.disable()  # modules are never freed, and collecting takes a tenth of the time to load them
    from acp_agent import app  # noqa: PLC0415 - nothing heavy before the first answer

    gc.freeze()
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
    line, unread = _read_first_line(input_fd)
    request = _plain_initialize(line)
    if request is None:
        return Handover(input_fd, output_fd, line + unread, None)
    request_id, params = request
    answer = {"jsonrpc": "2.0", "id": request_id, "result": initialize_result(params, fork=fork_offered(os.environ))}
    data = json.dumps(answer, separators=(",", ":")).encode() + b"\n"
    try:
        while data:
            data = data[os.write(output_fd, data) :]
    except BrokenPipeError:
        sys.exit(0)
    return Handover(input_fd, output_fd, unread, params)


def _read_first_line(fd: int) -> tuple[bytes, bytes]:
    data = b""
    while b"\n" not in data and len(data) < _FIRST_LINE_LIMIT:
        chunk = os.read(fd, _CHUNK)
        if not chunk:
            return data, b""
        data += chunk
    line, newline, rest = data.partition(b"\n")
    return line + newline, rest


def _plain_initialize(line: bytes) -> tuple[int | str, JsonObject] | None:
    """Return the id and params of a valid `initialize` request; None for any other line."""
    if not line.endswith(b"\n"):
        return None
    try:
        message: Json = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or message.get("method") != "initialize":
        return None
    request_id, params = message.get("id"), message.get("params")
    if not isinstance(request_id, int | str) or isinstance(request_id, bool) or not isinstance(params, dict):
        return None
    return (request_id, params) if type(params.get("protocolVersion")) is int else None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
