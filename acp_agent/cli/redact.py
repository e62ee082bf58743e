"""`acp-agent redact < TEXT`: the text without secrets, as a model would see it."""

import argparse
import codecs
import os
import sys

from acp_agent.cli.stdin import loaded_for, problem
from acp_agent.compose.output import known_secrets, redactor

_CHUNK = 1 << 16


def redact(args: argparse.Namespace) -> int:
    """Copy stdin to stdout as it comes, in constant memory. What is no UTF-8 stays as it is, and so do colours."""
    loaded = loaded_for(args)
    stream = redactor(loaded, known_secrets(os.environ, loaded.settings.llm.providers), problem).stream()
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    while chunk := os.read(sys.stdin.fileno(), _CHUNK):
        _write(stream.feed(decoder.decode(chunk)))
    _write(stream.feed(decoder.decode(b"", final=True)) + stream.finish())
    return 0


def _write(text: str) -> None:
    if text:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()
