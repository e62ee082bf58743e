"""What the user said "always" to, kept in a TOML file (requirements A20.4-A20.9).

    [tools]
    write = "allow"                     # the whole tool

    [tools.bash.patterns]
    "git status" = "allow"              # a program and what belongs to its name, whatever follows

    [tools.bash.payloads]
    "5e884898da28…" = "allow"           # exactly one text in one folder, by its SHA-256

`reject` means `deny`. Anything else in the file is skipped. The file is read once and shared by all sessions of a
process; every change is merged with what other processes wrote meanwhile.
"""

import contextlib
import fcntl
import json
import os
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

import anyio.to_thread

MAX_BYTES = 1024 * 1024
"""A larger file is treated as damaged (A20.5); nothing is added to a file that has grown so large."""

_LOCK_SECONDS = 5.0
_WORDS = {"allow": True, "deny": False, "reject": False}


class GrantKind(StrEnum):
    """What a grant is about; the values are the names in the file."""

    TOOL = "default"
    PREFIX = "patterns"
    PAYLOAD = "payloads"


@dataclass(frozen=True, slots=True)
class Grant:
    """One decision. `key` is empty for a whole tool, a prefix such as "git status", or a SHA-256 in hex."""

    tool: str
    kind: GrantKind
    key: str
    allowed: bool


_Key = tuple[str, GrantKind, str]
_Grants = dict[_Key, bool]


class _Damaged(Exception):
    """The file cannot be used; the message says why."""


class GrantStore:
    """The grants of a user. Lookups are in memory and may come from any thread.

    `warn` is told, in one line, what went wrong with the file; nothing here raises for that.
    """

    def __init__(self, path: str, warn: Callable[[str], None]) -> None:
        """Reads the file at once: it is small, and a session must not start without it."""
        self._path = path
        self._warn = warn
        self._lock = threading.Lock()
        self._grants: Mapping[_Key, bool] = self._load()

    def find(self, tool: str, kind: GrantKind, key: str = "") -> bool | None:
        """Whether this was allowed or denied for ever, or None."""
        return self._grants.get((tool, kind, key))

    async def remember(self, *grants: Grant) -> None:
        """Keep decisions. They hold for this process even when the file cannot be written (then `warn` is told)."""
        await anyio.to_thread.run_sync(self._remember, grants)

    def _remember(self, grants: tuple[Grant, ...]) -> None:
        # NUL marks keys of one session in other stores and is refused by TOML; a key with it is never kept.
        added = {(each.tool, each.kind, each.key): each.allowed for each in grants if "\0" not in each.tool + each.key}
        with self._lock:
            self._grants = {**self._grants, **added}
            try:
                os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
                with _locked(f"{self._path}.lock"):
                    merged = {**self._load(), **added}
                    self._write(merged)
            except (OSError, TimeoutError) as error:
                self._warn(f"{self._path}: the decision holds until the agent ends, but could not be kept: {error}")
                return
            self._grants = {**self._grants, **merged}

    def _load(self) -> _Grants:
        try:
            return _read(self._path)
        except _Damaged as damage:
            aside = _aside(self._path)
            with contextlib.suppress(OSError):
                os.replace(self._path, aside)
            self._warn(f"{self._path}: {damage}; it was set aside as {aside}, and you will be asked again")
        except OSError as error:
            self._warn(f"{self._path}: {error.strerror}; you will be asked again")
        return {}

    def _write(self, grants: Mapping[_Key, bool]) -> None:
        text = _toml(grants).encode()
        if len(text) > MAX_BYTES:
            raise OSError(f"the file would be larger than {MAX_BYTES} bytes; remove decisions from it")
        folder = os.path.dirname(self._path)
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".grants-")  # mkstemp makes it 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _read(path: str) -> _Grants:
    """The grants in a file; none when there is no file. Raises _Damaged, OSError."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    if len(data) > MAX_BYTES:
        raise _Damaged(f"larger than {MAX_BYTES} bytes")
    try:
        parsed = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise _Damaged(f"not readable as TOML ({error})") from None
    tools = parsed.get("tools", {})
    if not isinstance(tools, dict):
        raise _Damaged("'tools' is not a table")
    return {
        key: allowed
        for key, word in _entries(cast("dict[str, object]", tools))
        if (allowed := _allowed(word)) is not None
    }


def _allowed(word: object) -> bool | None:
    return _WORDS.get(word) if isinstance(word, str) else None


def _entries(tools: dict[str, object]) -> Iterator[tuple[_Key, object]]:
    for tool, value in tools.items():
        if not isinstance(value, dict):
            yield (tool, GrantKind.TOOL, ""), value
            continue
        table = cast("dict[str, object]", value)
        yield (tool, GrantKind.TOOL, ""), table.get(GrantKind.TOOL)
        for kind in (GrantKind.PREFIX, GrantKind.PAYLOAD):
            inner = table.get(kind)
            if isinstance(inner, dict):
                yield from (((tool, kind, key), word) for key, word in cast("dict[str, object]", inner).items())


def _toml(grants: Mapping[_Key, bool]) -> str:
    lines = ['# What you answered with "always". Remove a line to be asked again.', ""]
    tools = sorted({tool for tool, _, _ in grants})
    for tool in tools:
        whole = grants.get((tool, GrantKind.TOOL, ""))
        if whole is not None:
            lines += [f"[tools.{_quoted(tool)}]", f'default = "{_word(allowed=whole)}"', ""]
        for kind in (GrantKind.PREFIX, GrantKind.PAYLOAD):
            keys = sorted(
                (key, allowed) for (owner, each, key), allowed in grants.items() if (owner, each) == (tool, kind)
            )
            if keys:
                lines.append(f"[tools.{_quoted(tool)}.{kind}]")
                lines += [f'{_quoted(key)} = "{_word(allowed=allowed)}"' for key, allowed in keys]
                lines.append("")
    return "\n".join(lines)


def _word(*, allowed: bool) -> str:
    return "allow" if allowed else "deny"


def _quoted(key: str) -> str:
    """A TOML key. JSON strings are TOML strings but for DEL, and for surrogates, which UTF-8 cannot hold."""
    clean = key.encode(errors="replace").decode()
    return json.dumps(clean, ensure_ascii=False).replace("\x7f", "\\u007f")


def _aside(path: str) -> str:
    for number in range(1, 100):
        name = f"{path}.damaged-{number}"
        if not os.path.lexists(name):
            return name
    return f"{path}.damaged-100"


@contextlib.contextmanager
def _locked(path: str) -> Generator[None]:
    """Hold a lock file against other processes. Raises TimeoutError when one does not let go."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError("another process holds the lock file") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
