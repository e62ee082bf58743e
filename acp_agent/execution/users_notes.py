"""The user's own notes for agents, beside his configuration. His links are followed wherever they lead."""

import os

from acp_agent.core.errors import Refused, ToolError
from acp_agent.execution.path_errors import told_as
from acp_agent.execution.project_notes import Found, beginning


def users_file(path: str) -> Found:
    """The notes in a file of the user's; nothing where there is none. Blocks, but not on a FIFO or a device."""
    try:
        with told_as(path):
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                file = beginning(fd, path, users=True)
            finally:
                os.close(fd)
    except (Refused, ToolError) as error:
        missing = isinstance(error.__cause__, FileNotFoundError | NotADirectoryError)
        return Found() if missing else Found(troubles=(f"left out of the prompt: {error}",))
    return Found((file,))
