"""Databases for the tests of the store, and the wrongs that are done to them."""

import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from acp_agent.store.conversations import OverflowStore
from acp_agent.store.db import Database, Step

MIB = 1024 * 1024


@asynccontextmanager
async def opened(
    path: Path,
    warnings: list[str] | None = None,
    *,
    patience: float = 5.0,
    sync: Callable[[int], None] = os.fsync,
) -> AsyncIterator[Database]:
    database = Database(str(path), [].append if warnings is None else warnings.append, patience=patience, sync=sync)
    try:
        yield database
    finally:
        await database.aclose()


@asynccontextmanager
async def overflows(
    path: Path, *, max_bytes: int = 10 * MIB, conversation_bytes: int = 0, **named
) -> AsyncIterator[OverflowStore]:
    async with opened(path) as database:
        yield OverflowStore(database, max_bytes=max_bytes, conversation_bytes=conversation_bytes, **named)


def query(sql: str, *parameters: object) -> Step[list[tuple]]:
    return lambda connection: connection.execute(sql, parameters).fetchall()


def add(conversation: str) -> Step[list[tuple]]:
    return query("INSERT INTO conversations (id, created_at) VALUES (?, 0)", conversation)


CONVERSATIONS = query("SELECT id FROM conversations ORDER BY id")


def others(path: Path) -> sqlite3.Connection:
    """Another program at the same file."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def integrity(path: Path) -> str:
    connection = others(path)
    try:
        return connection.execute("PRAGMA integrity_check").fetchone()[0]
    finally:
        connection.close()
