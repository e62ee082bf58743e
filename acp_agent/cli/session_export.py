"""`acp-agent sessions export`: a session as a file, which gets its name when it is complete.

An HTML page may be shown to others, so secrets are removed from it. JSON is meant to be imported again, so
it is unchanged.
"""

import argparse
import os
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TextIO

from acp_agent.cli.config import warn
from acp_agent.core.errors import AgentError
from acp_agent.core.new_file import NewFile
from acp_agent.core.redaction import Redact
from acp_agent.core.sessions import SessionRepository, SessionSnapshot, StoredEvent
from acp_agent.session.foreign_session import redacted
from acp_agent.store.session_json import MOST_EVENTS, joined_events, session_pieces
from acp_agent.text import visible
from acp_agent.workspace.atomic_write import rename_new
from acp_agent.workspace.beneath import holding


async def without_secrets(events: AsyncIterator[StoredEvent], redact: Redact) -> AsyncIterator[StoredEvent]:
    """Yield the events with every text redacted. Messages are joined first, since a secret may be in two pieces."""
    async for one in joined_events(events):
        yield redacted(one, redact)


_STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Destination:
    """The target of an export: a file, or `-` for standard output."""

    path: str
    json: bool
    force: bool


def with_id(args: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments, corrected if the id was taken for the file name of `--html`.

    `args.html` is False if `--html` has no file name. Exits with 2 if there is no id.
    """
    if args.id in (None, _STDOUT) and args.html:
        args = argparse.Namespace(**{**vars(args), "to": args.id, "id": args.html, "html": False})
    if args.id is None:
        args.misused("the following arguments are required: ID")
    return args


def destination(args: argparse.Namespace, session_id: str) -> Destination:
    """Return the destination that the arguments name. The default is a page in this folder."""
    chosen = _STDOUT if args.to == _STDOUT else args.html or args.json
    name = (
        "".join(c for c in session_id[:8] if c.isalnum() or c in "-_") or "session"
    )  # an imported id may hold any characters
    path = os.path.expanduser(chosen) if chosen else f"acp-agent-{name}.html"
    return Destination(path, json=args.json is not None, force=args.force)


async def export(to: Destination, saved: SessionSnapshot, repository: SessionRepository, redact: Redact) -> None:
    """Write the session as JSON or as a page without secrets, and print the file's name.

    Raises:
        AgentError: The file cannot be written.
        BrokenPipeError: The reader of standard output is gone.

    """
    try:
        with _stdout() if to.path == _STDOUT else _new_file(to.path, force=to.force) as file:
            if to.json:
                await _write_json(saved, repository, file)
            else:
                from acp_agent.cli.page.page import write_page  # noqa: PLC0415 - it loads the reader of Markdown

                record = redacted(saved.record, redact)
                events = without_secrets(repository.events(), redact)
                await write_page(replace(saved, record=record), events, file.write)
    except BrokenPipeError:
        raise
    except FileExistsError:
        hint = "it is not a regular file" if to.force else "the file exists already; --force overwrites it"
        raise AgentError(f"{visible(to.path)}: {hint}") from None
    except OSError as error:
        raise AgentError(f"{visible(to.path)}: {error.strerror or error}") from error
    if to.path != _STDOUT:
        print(visible(to.path))


async def _write_json(saved: SessionSnapshot, repository: SessionRepository, file: TextIO) -> None:
    events = -2  # the first and the last piece are no events
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
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with holding(directory), closing(NewFile(directory, 0o600)) as new:
        with open(new.fd, "w", encoding="utf-8", newline="\n", closefd=False) as file:
            yield file
        if force:
            os.replace(new.temporary_name(), name, src_dir_fd=directory, dst_dir_fd=directory)
            new.renamed()
        elif not new.take_name(name):
            rename_new(directory, new.temporary_name(), directory, name)
            new.renamed()
