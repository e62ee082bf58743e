"""Answers to `session/new` that are known before the configuration is read.

The answer names modes, models and options. They depend on the configuration, which takes a quarter of a second to load.
So the answer is kept with a digest of everything on which it depends. A later process with the same digest stores the
session and gives the answer at once. Then its server makes the session as always, and tells the editor what is
different, if anything is. A kept answer is only shown: it decides nothing.

`new-session.json` in the data folder has the newest 16 answers by digest, fewer if 16 are more than 1 MiB:

    {"DIGEST": {"answer": {...}, "options": "{...}", "usage": "{...}"}, ...}

`options` and `usage` are the columns of the session's row.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from acp_agent import __version__
from acp_agent.config.files import (
    PROJECT_FILE,
    RULES_FOLDER,
    config_file,
    credentials_file,
    data_path,
    database_file,
    stamp,
)
from acp_agent.core.errors import ConfigError
from acp_agent.core.untrusted import json_value, now_ms
from acp_agent.store.private_file import MAX_BYTES, lock, private_file, readable_text, replace_private
from acp_agent.store.schema import CREATE_SESSION, STATEMENT_WAIT, VERSION, TransactionConnection, version_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acp_agent.core.types import Json, JsonObject

_FILE = "new-session.json"
_MOST = 16
_LOCK_SECONDS = 0.05
_PLAIN = {"cwd", "mcpServers", "additionalDirectories", "_meta"}
_VALUES = ("ACP_AGENT_", "XDG_", "HOME")
"""Beginnings of names of variables. The digest covers the values of these, and of others only whether they are set."""
_ADDRESSES = ("_URL", "_HOST")
"""Ends of names of variables whose values the digest covers."""


class OpenedSession(NamedTuple):
    """A stored session whose `session/new` was answered. The server has still to make the session.

    params       the params of the request
    answer       the result that was sent
    created_at   milliseconds since 1970
    """

    id: str
    created_at: int
    params: JsonObject
    answer: JsonObject


class KnownAnswers:
    """The kept answers that fit an environment and the params of `initialize`."""

    def __init__(self, environ: Mapping[str, str], initialized: JsonObject) -> None:
        self._environ = environ
        self._initialized = initialized
        self._connection: TransactionConnection | None = None

    def open(self, params: JsonObject) -> OpenedSession | None:
        """Store a new session and return it with the kept answer; None if none is kept. Blocks. Call `close` later."""
        try:
            known = self._kept().get(self._digest(params) or "")
            match known:
                case {"answer": {**answer}, "options": str(options), "usage": str(usage)}:
                    session = OpenedSession(str(uuid.uuid4()), now_ms(), params, answer)
                    times = session.created_at, session.created_at
                    row = (session.id, params["cwd"], b"[]", "", *times, 0, "", options.encode(), usage.encode())
                    self._store(row)
                    return session._replace(answer={"sessionId": session.id, **answer})
                case _:
                    return None
        except (ConfigError, OSError, ValueError, RecursionError, sqlite3.Error):
            return None  # the server meets the same error and reports it

    def close(self) -> None:
        """Close the database. Blocks: the last process writes the log back."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()

    def keep(self, params: JsonObject, answer: JsonObject, options: bytes, usage: bytes) -> None:
        """Keep an answer, without the session's id, for the next process, if that is possible. Blocks."""
        with suppress(ConfigError, OSError, ValueError, RecursionError):
            digest = self._digest(params)
            if digest is None:
                return
            entry: Json = {
                "answer": {name: value for name, value in answer.items() if name != "sessionId"},
                "options": options.decode(),
                "usage": usage.decode(),
            }
            kept = self._kept()
            if kept.get(digest) != entry:
                others = [(name, value) for name, value in kept.items() if name != digest][1 - _MOST :]
                while len(text := json.dumps({**dict(others), digest: entry})) > MAX_BYTES and others:
                    del others[0]
                if len(text) <= MAX_BYTES:
                    replace_private(self._path, text)

    @property
    def _path(self) -> str:
        return os.path.join(data_path(self._environ), _FILE)

    def _kept(self) -> JsonObject:
        """Return the kept answers, none if the file is damaged."""
        try:
            kept = json_value(readable_text(self._path))
        except ValueError:
            return {}
        return kept if isinstance(kept, dict) else {}

    def _digest(self, params: JsonObject) -> str | None:
        """Return the digest of what the answer depends on; None for params whose answers are never kept."""
        cwd = params.get("cwd")
        if not isinstance(cwd, str) or not set(params) <= _PLAIN or not os.path.isabs(cwd) or not os.path.isdir(cwd):
            return None
        meta, servers = params.get("_meta"), params.get("mcpServers")
        plain = not params.get("additionalDirectories") and isinstance(servers, list | None)
        if not plain or os.path.normpath(cwd) != cwd or (isinstance(meta, dict) and "acp_agent" in meta):
            return None
        files = [
            config_file(None, self._environ),
            credentials_file(self._environ),
            *(os.path.join(cwd, name) for name in (PROJECT_FILE, RULES_FOLDER)),
        ]
        variables = {
            name: value if name.startswith(_VALUES) or name.endswith(_ADDRESSES) else ""
            for name, value in self._environ.items()
            if value
        }
        about = [__version__, self._initialized, variables, [stamp(file) for file in files]]
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()

    def _store(self, row: tuple[object, ...]) -> None:
        """Create the session's row. Raises OSError if the database must be prepared first, and sqlite3.Error."""
        file = database_file(self._environ)
        with private_file(f"{file}.lock") as fd:
            lock(fd, seconds=_LOCK_SECONDS)
            uri = f"file:{quote(os.fsencode(file))}?mode=rw"
            self._connection = connection = TransactionConnection(uri, STATEMENT_WAIT)
            (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
            if os.path.islink(file) or version_of(connection) != VERSION or journal != "wal":
                raise OSError("the server has to prepare the database")
        connection.execute("PRAGMA synchronous = FULL")
        connection.transact(
            "BEGIN IMMEDIATE", lambda own: own.execute(CREATE_SESSION, row), durable=True, wait=STATEMENT_WAIT
        )
