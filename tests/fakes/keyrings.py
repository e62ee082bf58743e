"""Keyrings that are not the machine's own. `PYTHON_KEYRING_BACKEND` names one for a process."""

import json
import os
import threading
from pathlib import Path

from keyring.backend import KeyringBackend


class FileKeyring(KeyringBackend):
    """Keeps everything, readable, in the file `$FAKE_KEYRING` names."""

    priority = 1

    @property
    def _file(self) -> Path:
        return Path(os.environ["FAKE_KEYRING"])

    def _all(self) -> dict[str, str]:
        return json.loads(self._file.read_text()) if self._file.exists() else {}

    def get_password(self, service: str, username: str) -> str | None:
        return self._all().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._file.write_text(json.dumps(self._all() | {f"{service}/{username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        entries = self._all()
        del entries[f"{service}/{username}"]
        self._file.write_text(json.dumps(entries))


class MemoryKeyring(KeyringBackend):
    """Keeps everything until it is let go; counts how often it is asked."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, str] = {}
        self.asked = 0

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        return self.entries.get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[f"{service}/{username}"] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.entries[f"{service}/{username}"]


class LockedKeyring(KeyringBackend):
    """Raises what no interface promises."""

    priority = 1

    def get_password(self, service: str, username: str, password: str = "") -> str | None:
        raise LookupError("org.freedesktop.DBus:\n  it is locked")

    set_password = delete_password = get_password


class HangingKeyring(KeyringBackend):
    """Shows a dialog that nobody answers before `release`."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    def get_password(self, service: str, username: str, password: str = "") -> str | None:
        self.release.wait()
        return None

    set_password = delete_password = get_password


class OneStoredKey:
    """A `StoredKeys` with one key for every provider. `asked_by` has the threads that read it."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.asked_by: set[int] = set()

    def has(self, provider: str, base_url: str) -> bool:
        del provider, base_url
        return True

    def key(self, provider: str, base_url: str) -> str:
        del provider, base_url
        self.asked_by.add(threading.get_ident())
        return self._key
