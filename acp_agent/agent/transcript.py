"""A conversation as the model that sums up is shown it (L11): one JSON object a line, an entry each.

    {"from": "user", "text": "Mend the tests"}

`from` is ours alone: a line end or a quote in a text is escaped, so that no text can begin an entry. A message of the
user's also holds what he did not write: attached files and pages, outputs, notes of ours. Each is an entry of its own.
"""

import json
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from acp_agent.agent import notes
from acp_agent.agent.tokens import BYTES_PER_TOKEN, text_tokens
from acp_agent.core.messages import (
    ImagePart,
    Message,
    OpaquePart,
    Part,
    Role,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
)
from acp_agent.core.redaction import Redact, verbatim
from acp_agent.core.tags import ITSELF, REFLECTION
from acp_agent.core.types import Json

_SIZES = (4_000, 1_500, 500, 150)
"""Characters of one entry that are shown, from the best to what a very long conversation is given."""

_OURS = (notes.CANCELLED, notes.TURN_ABOVE, notes.LOST, REFLECTION, ITSELF, notes.RAN)
_DATA = re.compile(
    r'^<(?:(tool-output|external-data|knowledge) id="([0-9a-f]{8})"[^<>\n]*|(resource) uri="[^"\n]*"|(diagnostics))>',
    re.MULTILINE,
)
_LINE_ENDS = re.compile("[\x7f-\x9f\u2028\u2029]")
"""What JSON leaves as it is and some readers take for the end of a line."""


class Speaker(StrEnum):
    """Whose words an entry holds."""

    USER = "user"
    ASSISTANT = "assistant"
    CALL = "call"
    RESULT = "result"
    ERROR = "error"
    DATA = "data"
    AGENT = "agent"
    RECORD = "record"


class _Entry(NamedTuple):
    speaker: Speaker
    text: str


_WHOLE = frozenset({Speaker.USER, Speaker.ASSISTANT, Speaker.RECORD})
"""Speakers of whose words twice as much is shown."""


def rendered(messages: Sequence[Message], room: int, redact: Redact = verbatim) -> str:
    """The messages as text of at most `room` tokens: shorter entries first, then less of the middle.

    redact   takes secrets out of each text, before anything of it is cut or escaped
    """
    entries = [
        entry for message in messages for part in message.parts for entry in _entries(message.role, part, redact)
    ]
    lines: list[str] = []
    for size in _SIZES:
        lines = [_line(entry, size) for entry in entries]
        text = "\n".join(lines)
        if text_tokens(text) <= room:
            return text
    return _without_middle(lines, room * BYTES_PER_TOKEN)


def _entries(role: Role, part: Part, redact: Redact) -> Iterator[_Entry]:
    speaker = Speaker.USER if role is Role.USER else Speaker.ASSISTANT
    match part:
        case TextPart(text):
            words = redact(text)
            yield from _told(words) if speaker is Speaker.USER else [_Entry(speaker, words)]
        case ToolUsePart(name=name, arguments=arguments, raw_arguments=raw):
            shown = raw if arguments is None else json.dumps(_redacted(arguments, redact), ensure_ascii=False)
            yield _Entry(Speaker.CALL, f"{name} {redact(shown)}")
        case ToolResultPart(text=text, is_error=is_error, images=images):
            pictures = f" [{len(images)} images]" if images else ""
            yield _Entry(Speaker.ERROR if is_error else Speaker.RESULT, f"{redact(text)}{pictures}")
        case ImagePart():
            yield _Entry(speaker, "[image]")
        case ThoughtPart() | OpaquePart():
            pass


def _told(text: str) -> Iterator[_Entry]:
    """What stands in a text of the user's message: his words, and between them what is fenced as data.

    A fence that is not closed goes to the end: better the user is heard too little than a file too much.
    """
    own = Speaker.AGENT if text.startswith(_OURS) else Speaker.USER
    at = 0
    while opening := _DATA.search(text, at):
        if before := text[at : opening.start()].strip("\n"):
            yield _Entry(own, before)
        tag, token, resource, diagnostics = opening.groups()
        closing = f'\n</{tag} id="{token}">' if tag else f"\n</{resource or diagnostics}>"
        end = text.find(closing, opening.end())
        at = len(text) if end < 0 else end + len(closing)
        record = tag == "knowledge" and opening.start() == 0
        yield _Entry(Speaker.RECORD if record else Speaker.DATA, text[opening.start() : at])
    if rest := text[at:].strip("\n"):
        yield _Entry(own, rest)


def _redacted(value: Json, redact: Redact) -> Json:
    """The value with every string of it redacted before line ends and quotes in it are escaped."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted(each, redact) for each in value]
    if isinstance(value, dict):
        return {redact(key): _redacted(each, redact) for key, each in value.items()}
    return value


def _line(entry: _Entry, size: int) -> str:
    text = _clipped(entry.text, size if entry.speaker in _WHOLE else size // 2)
    line = json.dumps({"from": entry.speaker, "text": text}, ensure_ascii=False)
    return _LINE_ENDS.sub(lambda char: f"\\u{ord(char[0]):04x}", line)


def _clipped(text: str, size: int) -> str:
    if len(text) <= size:
        return text
    head = size * 2 // 3
    return f"{text[:head]} [... {len(text) - size:,} characters ...] {text[len(text) - (size - head) :]}"


def _without_middle(lines: Sequence[str], room: int) -> str:
    """As many lines of both ends as go into `room` bytes, and how many are left out."""
    head = _fitting(lines, room // 3)
    tail = _fitting(lines[len(head) :][::-1], room // 2)[::-1]
    gap = _Entry(Speaker.AGENT, f"[... {len(lines) - len(head) - len(tail)} entries left out ...]")
    return "\n".join((*head, _line(gap, room), *tail))


def _fitting(lines: Sequence[str], room: int) -> Sequence[str]:
    for count, line in enumerate(lines):
        room -= len(line.encode("utf-8", "surrogatepass")) + 1
        if room < 0:
            return lines[:count]
    return lines
