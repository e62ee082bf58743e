"""Starting a shell for one command line."""

import contextlib
import errno
import os
import subprocess

from acp_agent.core.backends import CommandRequest
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.process_limits import limits_for_child
from acp_agent.execution.capture import Stream


def check(request: CommandRequest) -> None:
    """Whether the request can be run at all. Raises ToolError (invalid_parameters)."""
    command = request.command
    try:
        fault = "has a NUL character in it" if "\0" in command.encode().decode() else ""
    except UnicodeEncodeError:
        fault = "has half of a surrogate pair in it"
    if fault:
        raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, f"the command {fault}")
    if not os.path.isabs(request.cwd) or "\0" in request.cwd:
        raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, f"cwd {request.cwd!r} is not an absolute path")


def spawn(
    shell: str, request: CommandRequest, environment: dict[str, str], tag: int
) -> tuple["subprocess.Popen[bytes]", dict[Stream, int]]:
    """The shell, in its own session and without input, and the non-blocking reading ends of its pipes.

    Raises ToolError. What it starts with is exactly `environment`. `tag` is told in `process_limits`.
    """
    with contextlib.ExitStack() as on_failure, contextlib.ExitStack() as writing_ends:
        reads: dict[Stream, int] = {}
        writes: dict[Stream, int] = {}
        try:
            for stream in Stream:
                reads[stream], writes[stream] = os.pipe()
                on_failure.callback(os.close, reads[stream])
                writing_ends.callback(os.close, writes[stream])
                os.set_blocking(reads[stream], False)
            with limits_for_child(tag):
                process = subprocess.Popen(
                    [shell, "-c", "--", request.command],
                    stdin=subprocess.DEVNULL,
                    stdout=writes[Stream.STDOUT],
                    stderr=writes[Stream.STDERR],
                    cwd=request.cwd,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise _spawn_error(error, request) from error
        on_failure.pop_all()
    return process, reads


def _spawn_error(error: OSError, request: CommandRequest) -> ToolError:
    if error.errno == errno.E2BIG:
        return ToolError(
            ToolErrorCategory.INVALID_PARAMETERS,
            f"the command is too long for the system ({len(request.command.encode())} bytes)",
            "Write it into a file and run that.",
        )
    about = f"cannot use the directory {request.cwd}" if error.filename == request.cwd else "cannot start a shell"
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{about}: {os.strerror(error.errno or 0).lower()}")
