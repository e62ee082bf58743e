"""`acp-agent sessions list`: a line a session, the last used first."""

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise

from acp_agent.cli.session_text import when
from acp_agent.cli.session_words import dollars
from acp_agent.core.events import UserMessage
from acp_agent.core.messages import TextPart
from acp_agent.core.sessions import SessionRecord, Tally, ToldAt
from acp_agent.core.types import JsonObject
from acp_agent.protocol import commands
from acp_agent.tools.visible import title

_SHORTEST_ID = 8
_TITLE, _FOLDER, _MODEL = 48, 36, 28
"""Most columns."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is told of one session. `words` are the first of its first prompt, where it has no title."""

    record: SessionRecord
    tally: Tally
    words: str = ""


async def first_words(told: AsyncIterator[ToldAt]) -> str:
    """What the user said first, commands left out as for a title; empty where that was no words."""
    async for one in told:
        if isinstance(one.event, UserMessage):
            texts = [part.text for part in one.event.parts if isinstance(part, TextPart)]
            if commands.parse(texts) is None:
                return next(iter(texts), "")
    return ""


def short_ids(identities: Iterable[str]) -> dict[str, str]:
    """The beginning of each id that no other has: 8 characters, or more."""
    ordered = sorted(set(identities))
    shared = dict.fromkeys(ordered, 0)
    for one, other in pairwise(ordered):
        common = next((n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))
        shared[one], shared[other] = max(shared[one], common), max(shared[other], common)
    return {one: one[: max(_SHORTEST_ID, shared[one] + 1)] for one in ordered}


def table(rows: list[Row], short: dict[str, str], home: str) -> Iterator[str]:
    """The lines, in columns: id, when it was last used, title, folder, prompts, model, cost."""
    cells = [_cells(row, short, home) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def json_row(row: Row) -> JsonObject:
    """The same for programs: all of the record, and of the tally what it cost and how full the window is."""
    record, tally = row.record, row.tally
    return {
        **{name: value for name, value in asdict(record).items() if name != "additional"},
        "additional": list(record.additional),
        "cost": tally.cost,
        "cost_complete": tally.complete,
        "used": tally.used,
        "size": tally.size,
    }


def _cells(row: Row, short: dict[str, str], home: str) -> tuple[str, ...]:
    record, tally = row.record, row.tally
    return (
        title(short[record.id]),
        when(record.updated_at),
        _cut(title(record.title or row.words) or "no title", _TITLE),
        _end(title(_below(home, record.cwd)), _FOLDER),
        f"{record.prompts} prompt{'' if record.prompts == 1 else 's'}",
        _cut(title(record.model.partition(":")[2] or record.model), _MODEL),
        "" if tally.cost is None else dollars(tally.cost) + ("" if tally.complete else "+"),
    )


def _below(home: str, path: str) -> str:
    return "~" + path.removeprefix(home) if path == home or path.startswith(home.rstrip("/") + "/") else path


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _end(text: str, length: int) -> str:
    return text if len(text) <= length else f"…{text[1 - length :]}"
