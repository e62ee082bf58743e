"""`acp-agent sessions list|show|resume|export|undo|delete`: the stored sessions of the user.

An exported file gets its name when it is complete. An HTML page may be shown to others, so secrets are removed from it.
JSON is meant to be imported again, so it is unchanged.
"""

import argparse
import json
import os
import sys
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager, suppress
from dataclasses import asdict, replace
from itertools import pairwise
from typing import TextIO

import anyio

from acp_agent.cli.config import warn
from acp_agent.cli.session_text import dollars, when, write_text
from acp_agent.config.files import DATA_VARIABLE, data_source, database_file, session_locks_file, snapshots_folder
from acp_agent.config.load import Flags, load
from acp_agent.core.data import frozen
from acp_agent.core.errors import AgentError, ConfigError
from acp_agent.core.events import UserMessage
from acp_agent.core.messages import TextPart
from acp_agent.core.new_file import NewFile, open_folder
from acp_agent.core.secrets import Redact
from acp_agent.core.sessions import SessionRecord, SessionRepository, SessionSnapshot, StoredEvent, UsageTotals
from acp_agent.core.types import JsonObject
from acp_agent.session.foreign_session import redacted
from acp_agent.session.slash import commands
from acp_agent.session.toolset.settings import known_secrets, redactor
from acp_agent.store.db import Database
from acp_agent.store.session_json import MOST_EVENTS, event_object, joined_events, json_text, session_pieces
from acp_agent.store.session_locks import SessionLocks
from acp_agent.store.sessions import SessionStore
from acp_agent.text import title, visible
from acp_agent.workspace.changed_files import SessionSnapshots
from acp_agent.workspace.entries import take_new_name
from acp_agent.workspace.git.objects import SnapshotLimits
from acp_agent.workspace.roots import Roots
from acp_agent.workspace.undo import UndoError, journal_file, report, store_folder


async def without_secrets(events: AsyncIterator[StoredEvent], redact: Redact) -> AsyncIterator[StoredEvent]:
    """Yield the events with every text redacted. Messages are joined first, since a secret may be in two pieces."""
    async for one in joined_events(events):
        yield redacted(one, redact)


_STDOUT = "-"


def with_id(args: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments, corrected if the id was taken for the file name of `--html`.

    `args.html` is False if `--html` has no file name. Exits with 2 if there is no id.
    """
    if args.id in (None, _STDOUT) and args.html:
        args = argparse.Namespace(**{**vars(args), "to": args.id, "id": args.html, "html": False})
    if args.id is None:
        args.misused("the following arguments are required: ID")
    return args


async def export(
    args: argparse.Namespace, saved: SessionSnapshot, repository: SessionRepository, redact: Redact
) -> None:
    """Write the session as JSON or as a page without secrets, by default in this folder, and print the file's name.

    Raises:
        AgentError: The file cannot be written.
        BrokenPipeError: The reader of standard output is gone.

    """
    path = _destination(args, saved.record.id)
    try:
        with _stdout() if path == _STDOUT else _new_file(path, force=args.force) as file:
            if args.json is not None:
                await _write_json(saved, repository, file)
            else:
                from acp_agent.cli.page import write_page  # noqa: PLC0415 - it loads the reader of Markdown

                record = redacted(saved.record, redact)
                events = without_secrets(repository.events(), redact)
                await write_page(replace(saved, record=record), events, file.write)
    except BrokenPipeError:
        raise
    except FileExistsError:
        hint = "it is not a regular file" if args.force else "the file exists already; --force overwrites it"
        raise AgentError(f"{visible(path)}: {hint}") from None
    except OSError as error:
        raise AgentError(f"{visible(path)}: {error.strerror or error}") from error
    if path != _STDOUT:
        print(visible(path))


def _destination(args: argparse.Namespace, session_id: str) -> str:
    chosen = args.to or args.html or args.json
    name = "".join(c for c in session_id[:8] if c.isalnum() or c in "-_")  # an imported id may hold any characters
    return os.path.expanduser(chosen) if chosen else f"acp-agent-{name or 'session'}.html"


async def _write_json(saved: SessionSnapshot, repository: SessionRepository, file: TextIO) -> None:
    events = -2  # the first and the last piece contain no event
    async for piece in session_pieces(saved, repository.events()):
        file.write(piece)
        events += 1
    if events > MOST_EVENTS:
        warn(f"this session has {events:,} events, more than the {MOST_EVENTS:,} that can be imported again")


@contextmanager
def _stdout() -> Generator[TextIO]:
    """Open standard output in UTF-8, the encoding that the page declares, whatever the terminal uses."""
    with open(sys.stdout.fileno(), "w", encoding="utf-8", newline="\n", closefd=False) as file:
        yield file


@contextmanager
def _new_file(path: str, *, force: bool) -> Generator[TextIO]:
    """Create a file with mode 0600. It gets its name after the body, and is removed if the body fails.

    Raises:
        FileExistsError: The name is taken; with `force`, by something that is no regular file.
        OSError: The file cannot be written.

    """
    path = os.path.realpath(path) if force else os.path.abspath(path)
    folder, name = os.path.split(path)
    if os.path.lexists(path) and not (force and os.path.isfile(path)):
        raise FileExistsError
    with open_folder(folder) as directory, closing(NewFile(directory, 0o600)) as new:
        with open(new.fd, "w", encoding="utf-8", newline="\n", closefd=False) as file:
            yield file
        if force:
            new.replace(name)
        elif not take_new_name(new, directory, name):
            raise FileExistsError


_SHORTEST_ID = 8
_TITLE, _FOLDER, _MODEL = 48, 36, 28
"""The most characters of a column."""


@frozen
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
    folder = record.cwd
    if folder == home or folder.startswith(home.rstrip("/") + "/"):
        folder = "~" + folder.removeprefix(home)
    folder = title(folder)
    return (
        title(short[record.id]),
        when(record.updated_at),
        _cut(title(record.title or row.words) or "no title", _TITLE),
        folder if len(folder) <= _FOLDER else f"…{folder[1 - _FOLDER :]}",
        f"{record.prompts} prompt{'' if record.prompts == 1 else 's'}",
        _cut(title(record.model.partition(":")[2] or record.model), _MODEL),
        "" if usage.cost is None else dollars(usage.cost) + ("" if usage.complete else "+"),
    )


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


_PAGE = 500
_SHORTEST = 4  # characters of an id that the user must give at least


def sessions(args: argparse.Namespace) -> int:
    """Do what `args.action` says. Return 1 if a session was not deleted. Raises AgentError."""
    if args.action == "resume":
        from acp_agent.cli.run import run  # noqa: PLC0415 - the other actions start no agent

        return run(args)
    if args.action == "export":
        args = with_id(args)
    path = database_file(os.environ)
    if os.path.exists(path):
        return anyio.run(_run, args, path)
    folder = os.path.dirname(path)
    try:
        os.stat(os.path.join(folder, ""))
    except OSError as error:
        if not isinstance(error, FileNotFoundError) or os.environ.get(DATA_VARIABLE):
            where = data_source(os.environ)
            raise ConfigError(where, "", "", f"expected a folder for data: {folder}: {error.strerror}") from error
    if args.action == "list":  # nothing was ever stored, and `list` creates no database
        _print_none(args.cwd)
        return 0
    raise _unknown(args.ids[0] if args.action == "delete" else args.id)


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
                saved = await _saved(store, args.id)
                await export(args, saved, store.of(saved.record.id), _redactor(args))
            case "undo":
                print(_restored(args, await _named(store, args.id)))
            case _:
                return await _delete(args, store)
        return 0
    finally:
        with anyio.CancelScope(shield=True):
            await database.aclose()


# ------------------------------------------------------------------------------------------- list


async def _list(args: argparse.Namespace, store: SessionStore) -> None:
    """Print the sessions that had a prompt, the last used first."""
    rows = [await _row(store, record) for record in await store.page(cwd=args.cwd, limit=args.number)]
    if args.json:
        for row in rows:
            _print_json(json_row(row))
    elif not rows:
        _print_none(args.cwd)
    else:
        short = short_ids([record.id async for record in _every(store)])
        for line in table(rows, short, os.environ.get("HOME", "")):
            print(line)


def _print_none(folder: str | None) -> None:
    """Say on stderr that the list is empty."""
    print(f"No session is stored for {visible(folder)}" if folder else "No session is stored", file=sys.stderr)


async def _row(store: SessionStore, record: SessionRecord) -> SessionRow:
    repository = store.of(record.id)
    usage = await repository.usage() or UsageTotals()  # none if the session was deleted meanwhile
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
        for each, record in records.items():
            if not locks.take(each):
                warn(f"session {title(each)} is open in another process; close it there first")
                code = 1
            elif await store.delete(each):
                with suppress(OSError):  # a session that changed no files has no journal
                    os.unlink(journal_file(_snapshots(record), each))
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


# ------------------------------------------------------------------------------------------ undo


def _restored(args: argparse.Namespace, record: SessionRecord) -> str:
    """Take back the changes of a turn, or bring them back. Return what the user is told. Raises AgentError."""
    settings = load(Flags(config=args.config), os.environ).settings.tools.undo
    limits = SnapshotLimits(settings.max_file_bytes, settings.max_bytes, settings.max_age_days)
    cwd = os.path.realpath(record.cwd)
    locks = SessionLocks(session_locks_file(os.environ))
    try:
        if not locks.take(record.id):
            raise AgentError(f"session {title(record.id)} is open in another process; use /undo there, or close it")
        snapshots = SessionSnapshots(_snapshots(record), record.id)
        with closing(snapshots), Roots(cwd, record.additional) as roots:
            restored = snapshots.restore(roots, limits, args.turn, redo=args.redo)
            return report(restored, cwd, redo=args.redo)
    except UndoError as error:
        raise AgentError(_redactor(args)(str(error))) from None
    finally:
        locks.close()


def _snapshots(record: SessionRecord) -> str:
    return store_folder(snapshots_folder(os.environ), os.path.realpath(record.cwd))


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
    return AgentError(f"there is no session {visible(wanted)}; `acp-agent sessions list` names all")
