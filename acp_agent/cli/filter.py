"""`acp-agent filter --command CMD < OUTPUT` and `acp-agent redact < TEXT`.

`filter` prints the part of a command's output that a model would read. `redact` prints the text without secrets.
"""

import argparse
import codecs
import os
import sys

from acp_agent.cli.config import loaded_for, warn
from acp_agent.core.types import OutputStats
from acp_agent.gates.shell.command import ShellText
from acp_agent.gates.shell.printing import printing_commands
from acp_agent.output.filters.strategy import CommandRun, Filtered
from acp_agent.output.pipeline import redaction_note, shortened, stats_line
from acp_agent.output.sanitize import faithful
from acp_agent.session.toolset.settings import filter_engine, known_secrets, redactor
from acp_agent.text import measure


def filtered(args: argparse.Namespace) -> int:
    """Print the text sanitized, redacted and filtered, but never cut. Print on stderr what was changed.

    The filters need the whole text, so stdin is read to its end first.
    """
    loaded = loaded_for(args, os.getcwd())
    raw = sys.stdin.buffer.read().decode("utf-8", "replace")
    clean = redactor(loaded, known_secrets(os.environ, loaded.settings.llm.providers), warn).redact(
        faithful(raw, terminal=True)
    )
    run = CommandRun(args.text, printing_commands(ShellText(args.text)), args.exit)
    engine = filter_engine(loaded)
    if engine is None:
        raise SystemExit("acp-agent: the filters are off; set tools.filters.enabled = true in the configuration")
    for fault in engine.warnings:
        warn(fault)
    found = shortened(clean.text, run, engine)
    text = clean.text if found is None else found.text
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    if text and not text.endswith("\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    for line in filter(None, (_statistics(measure(raw, text), found), redaction_note(clean.found))):
        print(line, file=sys.stderr)
    return 0


def _statistics(stats: OutputStats, found: Filtered | None) -> str:
    if found is None:
        return "[filter] no filter rule matches this command"
    rules = "+".join(found.rules)
    line = stats_line(stats, rules) or f"[{rules}] {stats.raw_lines} lines, none removed"
    saved = 1 - stats.shown_chars / stats.raw_chars if stats.raw_chars else 0.0
    chars = f"{stats.raw_chars} chars -> {stats.shown_chars}, {saved:.1%} saved"
    return f"{line}; {chars}; confidence {found.confidence.value}"


_CHUNK = 1 << 16


def redact(args: argparse.Namespace) -> int:
    """Copy stdin to stdout without secrets, in constant memory. Colours and bytes that are not UTF-8 are unchanged."""
    loaded = loaded_for(args, os.getcwd())
    stream = redactor(loaded, known_secrets(os.environ, loaded.settings.llm.providers), warn).stream()
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    while chunk := os.read(sys.stdin.fileno(), _CHUNK):
        _write(stream.feed(decoder.decode(chunk)))
    _write(stream.feed(decoder.decode(b"", final=True)) + stream.finish())
    return 0


def _write(text: str) -> None:
    if text:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()
