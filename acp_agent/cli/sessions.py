"""`acp-agent sessions list|show|export|delete`: the stored sessions of the user."""

import argparse
import json
import os
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

import anyio

from acp_agent.cli.config import warn
from acp_agent.cli.session_export import destination, export, with_id, without_secrets
from acp_agent.cli.session_text import dollars, when, write_text
from acp_agent.config.files import DATA_VARIABLE, database_file, session_locks_file
from acp_agent.config.load import Flags, load
from acp_agent.core.errors import AgentError, ConfigError
from acp_agent.core.events import UserMessage
from acp_agent.core.messages import TextPart
from acp_agent.core.redaction import Redact
from acp_agent.core.sessions import SessionRecord, SessionSnapshot, StoredEvent, UsageTotals
from acp_agent.core.types import JsonObject
from acp_agent.session.foreign_session import redacted
from acp_agent.session.slash import commands
from acp_agent.session.toolset.output import known_secrets, redactor
from acp_agent.store.db import Database
from acp_agent.store.session_json import event_object, json_text
from acp_agent.store.session_locks import SessionLocks
from acp_agent.store.sessions import SessionStore
from acp_agent.text import title, visible

_SHORTEST_ID = 8
_TITLE, _FOLDER, _MODEL = 48, 36, 28
"""The most characters of a column."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session of the list. `words` is the beginning of its first prompt if it has no title."""

    record: SessionRecord
    usage: UsageTotals
    words: str = ""


async def first_words(events: AsyncIterator[StoredEvent]) -> str:
    """Return the text of the first prompt that is no slash command, or "" if it has no text."""
    async for one in events:
        if isinstance(one.event, UserMessage):
            texts = [part.text for part in one.event.parts if isinstance(part, TextPart)]
            if commands.parse(texts) is None:
                return next(iter(texts), "")
    return ""


def short_ids(identities: Iterable[str]) -> dict[str, str]:
    """Return the shortest unique beginning of each id, of at least 8 characters."""
    ordered = sorted(set(identities))
    shared = dict.fromkeys(ordered, 0)
    for one, other in pairwise(ordered):
        common = next((n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))
        shared[one], shared[other] = max(shared[one], common), max(shared[other], common)
    return {one: one[: max(_SHORTEST_ID, shared[one] + 1)] for one in ordered}


def table(rows: list[SessionRow], short: dict[str, str], home: str) -> Iterator[str]:
    """Yield the lines of the table: id, last use, title, folder, prompts, model, cost."""
    cells = [_cells(row, short, home) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def json_row(row: SessionRow) -> JsonObject:
    """Return a row for programs: the whole record, the cost, and the tokens in the context window."""
    record, usage = row.record, row.usage
    return {
        **{name: value for name, value in asdict(record).items() if name != "additional"},
        "additional": list(record.additional),
        "cost": usage.cost,
        "cost_complete": usage.complete,
        "used": usage.used,
        "size": usage.size,
    }


def _cells(row: SessionRow, short: dict[str, str], home: str) -> tuple[str, ...]:
    record, usage = row.record, row.usage
    return (
        title(short[record.id]),
        when(record.updated_at),
        _cut(title(record.title or row.words) or "no title", _TITLE),
        _end(title(_below(home, record.cwd)), _FOLDER),
        f"{record.prompts} prompt{'' if record.prompts == 1 else 's'}",
        _cut(title(record.model.partition(":")[2] or record.model), _MODEL),
        "" if usage.cost is None else dollars(usage.cost) + ("" if usage.complete else "+"),
    )


def _below(home: str, path: str) -> str:
    return "~" + path.removeprefix(home) if path == home or path.startswith(home.rstrip("/") + "/") else path


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _end(text: str, length: int) -> str:
    return text if len(text) <= length else f"…{text[1 - length :]}"


_PAGE = 500
_SHORTEST = 4  # characters of an id that the user must give at least


def sessions(args: argparse.Namespace) -> int:
    """Do what `args.action` says. Return 1 if a session was not deleted. Raises AgentError."""
    if args.action == "export":
        args = with_id(args)
    path = database_file(os.environ)
    if os.path.exists(path):
        return anyio.run(_run, args, path)
    _look_for(os.path.dirname(path))
    if args.action == "list":  # `list` creates no database
        return 0
    raise _unknown(args.ids[0] if args.action == "delete" else args.id)


def _look_for(folder: str) -> None:
    """Raise ConfigError if the data folder is no folder, or if the user named it and it does not exist."""
    try:
        os.stat(os.path.join(folder, ""))
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not os.environ.get(DATA_VARIABLE):
            return  # nothing was ever stored
        where = f"environment variable {DATA_VARIABLE}"
        raise ConfigError(where, "", "", f"expected a folder for data: {folder}: {error.strerror}") from error


async def _run(args: argparse.Namespace, path: str) -> int:
    database = Database(path, warn)
    store = SessionStore(database)
    try:
        match args.action:
            case "list":
                await _list(args, store)
            case "show":
                await _show(args, store)
            case "export":
                await _export(args, store)
            case _:
                return await _delete(args, store)
        return 0
    finally:
        with anyio.CancelScope(shield=True):
            await database.aclose()


# ------------------------------------------------------------------------------------------- list


async def _list(args: argparse.Namespace, store: SessionStore) -> None:
    """Print the sessions that had a prompt, the last used first."""
    rows = [await _row(store, record) for record in await store.page(cwd=_folder(args.cwd), limit=args.number)]
    if args.json:
        for row in rows:
            _print_json(json_row(row))
    elif rows:
        short = short_ids([record.id async for record in _every(store)])
        for line in table(rows, short, os.environ.get("HOME", "")):
            print(line)


def _folder(given: str | None) -> str | None:
    return None if given is None else os.path.abspath(os.path.expanduser(given))


async def _row(store: SessionStore, record: SessionRecord) -> SessionRow:
    repository = store.of(record.id)
    saved = await repository.snapshot()
    usage = UsageTotals() if saved is None else saved.usage  # deleted meanwhile
    if record.title:
        return SessionRow(record, usage)
    async with aclosing(repository.events()) as events:
        return SessionRow(record, usage, await first_words(events))


# -------------------------------------------------------------------------------- show and export


async def _show(args: argparse.Namespace, store: SessionStore) -> None:
    """Print one session. As text it is shown without secrets, even where a killed process cut an answer."""
    saved = await _saved(store, args.id)
    events = store.of(saved.record.id).events()
    if not args.json:
        redact = _redactor(args)
        saved = replace(saved, record=redacted(saved.record, redact))
        await write_text(saved, without_secrets(events, redact), sys.stdout)
        return
    async for one in events:
        _print_json(event_object(one))


async def _export(args: argparse.Namespace, store: SessionStore) -> None:
    """Write one session to a file."""
    saved = await _saved(store, args.id)
    await export(destination(args, saved.record.id), saved, store.of(saved.record.id), _redactor(args))


def _redactor(args: argparse.Namespace) -> Redact:
    loaded = load(Flags(config=args.config), os.environ)
    return redactor(loaded, known_secrets(os.environ, loaded.settings.llm.providers), warn)


# ----------------------------------------------------------------------------------------- delete


async def _delete(args: argparse.Namespace, store: SessionStore) -> int:
    """Delete sessions, all of which must exist. A session that another process has open is not deleted."""
    records = {record.id: record for record in [await _named(store, wanted) for wanted in args.ids]}
    if not args.yes and not _agreed(list(records.values())):
        return 1
    locks, code = SessionLocks(session_locks_file(os.environ)), 0
    try:
        for each in records:
            if not locks.take(each):
                warn(f"session {title(each)} is open in another process; close it there first")
                code = 1
            elif await store.delete(each):
                print(f"deleted {title(each)}")
    finally:
        locks.close()
    return code


def _agreed(records: Sequence[SessionRecord]) -> bool:
    """Return True if the user at the terminal agrees. Raises AgentError if there is no terminal."""
    if not sys.stdin.isatty():
        raise AgentError("stdin is not a terminal, so nobody can be asked; use --yes to delete without asking")
    for record in records:
        print(f"{title(record.id)}  {title(record.title) or 'no title'}  {title(record.cwd)}")
    what = "this session" if len(records) == 1 else f"these {len(records)} sessions"
    try:
        return input(f"Delete {what} permanently? [y/N] ").strip().lower() in {"y", "yes"}
    except EOFError:
        print()
        return False


# ---------------------------------------------------------------------------------------- finding


async def _saved(store: SessionStore, wanted: str) -> SessionSnapshot:
    saved = await store.of((await _named(store, wanted)).id).snapshot()
    if saved is None:
        raise _unknown(wanted)
    return saved


async def _named(store: SessionStore, wanted: str) -> SessionRecord:
    """Return the session with this id, or the only one whose id starts with it. Raises AgentError."""
    if (exact := await store.find(wanted)) is not None:
        return exact
    if len(wanted) < _SHORTEST:
        raise AgentError(f"{visible(wanted)!r}: expected a session's id, or at least its first {_SHORTEST} characters")
    found = [record async for record in _every(store) if record.id.startswith(wanted)]
    if len(found) > 1:
        names = ", ".join(title(record.id) for record in found[:5])
        raise AgentError(f"{len(found)} sessions begin with {visible(wanted)}: {names}")
    if not found:
        raise _unknown(wanted)
    return found[0]


async def _every(store: SessionStore) -> AsyncIterator[SessionRecord]:
    """Yield all sessions, including those without a prompt."""
    after: tuple[int, str] | None = None
    while records := await store.page(after=after, limit=_PAGE, prompted=False):
        for record in records:
            yield record
        after = records[-1].updated_at, records[-1].id


def _print_json(value: JsonObject) -> None:
    """Print one line of JSON, in ASCII on a terminal, which would interpret other characters."""
    print(json.dumps(value).replace("\x7f", "\\u007f") if sys.stdout.isatty() else json_text(value))


def _unknown(wanted: str) -> AgentError:
    return AgentError(f"there is no session {visible(wanted)}")
