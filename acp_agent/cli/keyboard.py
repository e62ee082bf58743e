"""What the user types at a terminal, and whether it can be an answer.

Keys typed before a question is on the screen were meant for something else.
"""

import os
import sys
import termios

import anyio

_SETTLE = 0.3  # seconds in which nobody reads a question and answers it; what is typed in them was under way before


def is_somebody_there() -> bool:
    """Return whether a user sees what is printed and can answer it: stdin and stdout are terminals.

    What a pipe holds was written before the question, so it is never an answer. A stream that was closed is None.
    """
    streams = (getattr(sys, "stdin", None), getattr(sys, "stdout", None))
    return all(stream is not None and stream.isatty() for stream in streams)


async def forget_early_keys() -> None:
    """Drop what was typed until a moment after the question was drawn."""
    await anyio.sleep(_SETTLE)
    forget_typed()


def forget_typed() -> None:
    """Drop what was typed on stdin and not read yet, a part of a line too."""
    try:
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    except termios.error:  # it hung up: reading will tell
        return


async def read_line() -> str:
    """Return what is typed up to the next line end; less, or nothing, at the end of the input.

    Without a thread: one that waits for a key would keep the process alive after Ctrl-C.
    """
    fd, line = sys.stdin.fileno(), b""
    while not line.endswith(b"\n"):
        await anyio.wait_readable(fd)
        try:
            typed = os.read(fd, 4096)  # a terminal hands out one line at most
        except OSError:  # it hung up
            return ""
        if not typed:
            break
        line += typed
    return line.decode("utf-8", "replace")
