"""Keys of model providers that `acp-agent login` stored in the system's keyring, or else in a private file.

The content of the file is described in `config/files.py`. A key from a variable or the configuration comes first:
the stored key of a provider that has such a key is not used.
"""

import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from acp_agent.config.files import (
    Credential,
    Stamp,
    credentials_file,
    data_dir,
    plain_address,
    read_credentials,
    stamp,
    understood,
)
from acp_agent.core.data import frozen
from acp_agent.core.errors import ConfigError
from acp_agent.store.private_file import (
    DamagedFile,
    lock,
    private_file,
    quoted,
    read_private,
    readable_text,
    replace_private,
    set_aside,
    set_aside_before,
)

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

_SERVICE = "acp-agent"
_T = TypeVar("_T")


class KeyringError(Exception):
    """The keyring cannot be used. The message says why, in one line."""


class OsKeyring:
    """Secrets by name in the system's keyring. Blocks for at most `patience` seconds.

    The keyring may be a program that hangs, a dialog that nobody answers, or missing, and its backends raise errors of
    any type. So it is called in a thread of its own.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience

    def store(self, name: str, secret: str) -> str:
        """Store a secret, check that it is stored, and return the keyring's name. Raises KeyringError."""

        def call(keyring: "KeyringBackend") -> tuple[str, str | None]:
            keyring.set_password(_SERVICE, name, secret)  # pyright: ignore[reportUnknownMemberType] - of keyring
            return keyring.name, keyring.get_password(_SERVICE, name)

        called, kept = self._within(call)
        if kept != secret:  # the null backend accepts every secret and stores none
            raise KeyringError(f"{called} did not store the key")
        return called

    def find(self, name: str) -> str | None:
        """Return a secret, or None if there is none of that name. Raises KeyringError."""
        return self._within(lambda keyring: keyring.get_password(_SERVICE, name))

    def remove(self, name: str) -> None:
        """Delete a secret. A missing one counts as deleted. Raises KeyringError."""

        def call(keyring: "KeyringBackend") -> None:
            if keyring.get_password(_SERVICE, name) is not None:
                keyring.delete_password(_SERVICE, name)

        self._within(call)

    def _within(self, call: Callable[["KeyringBackend"], _T]) -> _T:
        answers, errors = list[_T](), list[Exception]()

        def run() -> None:
            try:
                import keyring  # noqa: PLC0415 - it looks for backends, and few people log in

                answers.append(call(keyring.get_keyring()))
            except Exception as error:  # noqa: BLE001 - a backend is foreign code
                errors.append(error)

        asked = threading.Thread(target=run, daemon=True, name="keyring")  # the end of the process does not wait for it
        asked.start()
        asked.join(self._patience)
        if asked.is_alive():
            raise KeyringError(f"the keyring did not answer in {self._patience:g} s")
        if errors:
            raise KeyringError(_reason(errors[0])) from errors[0]
        return answers[0]


def _reason(error: Exception) -> str:
    if type(error).__name__ == "NoKeyringError":
        return "this system has no keyring"
    line = " ".join(str(error).split())
    return f"the keyring failed: {line[:200] or type(error).__name__}"


_PATIENCE = 20.0
"""Seconds the keyring may take. It may ask the user for a password first."""
_KEY = re.compile(r"""\bkey["']?[ \t]*=[ \t]*["']+([^"'\r\n]+)""")
"""A key in a damaged file, with or without its quotation marks."""


@frozen
class KeyLocation:
    """The place of a stored key: the keyring's name or the file's path. `remark` is for the user and may be ""."""

    where: str
    remark: str = ""


@frozen
class RemovedKeys:
    """The providers whose keys were removed. `remark` names keys that the keyring still holds, or is ""."""

    providers: tuple[str, ...]
    remark: str = ""


class CredentialStore:
    """The stored keys of this user. Blocks; may be used from any thread.

    tell       called with every key before anything else gets it, so that the key can be redacted
    patience   seconds the keyring may take
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        tell: Callable[[Iterable[str]], None] | None = None,
        patience: float = _PATIENCE,
    ) -> None:
        self._environ = environ
        self._tell = tell
        self._keyring = OsKeyring(patience)
        self._one_at_a_time = threading.Lock()  # so that several models do not raise several dialogs
        self._from_keyring: dict[Credential, str] = {}
        self._introduced: tuple[str, Stamp] | None = None

    def all(self) -> tuple[Credential, ...]:
        """Return the stored credentials. Reads a small file. Raises ConfigError if it cannot be read."""
        found = read_credentials(credentials_file(self._environ))
        if self._tell is not None:
            self._tell(credential.key for credential in found)
        return found

    def introduce(self) -> None:
        """Pass the keys in the file, and in damaged copies of it, to `tell` before anything could show them.

        A file that has not changed since the last time costs one `stat`.
        """
        with suppress(ConfigError):  # loading the configuration reports it
            path = credentials_file(self._environ)
            now = path, stamp(path)
            if now == self._introduced:
                return
            is_read = True
            try:
                self.all()
            except ConfigError:  # the reason may be temporary, so the file is read again the next time
                is_read = False
                self._tell_rest(path)
            for aside in set_aside_before(path):
                self._tell_rest(aside)
            self._introduced = now if is_read else None

    def has(self, provider: str, base_url: str) -> bool:
        """Return whether a key for this provider at this address is stored. Does not use the keyring."""
        return self._credential(provider, base_url) is not None

    def key(self, provider: str, base_url: str) -> str:
        """Return the stored key for this provider at this address, or "".

        If `has` returns True this may wait for the keyring, so do not call it in the event loop then. Raises
        ConfigError.
        """
        credential = self._credential(provider, base_url)
        if credential is None or credential.key:
            return credential.key if credential else ""
        with self._one_at_a_time:
            if credential not in self._from_keyring:
                self._from_keyring[credential] = self._asked(provider)
            return self._from_keyring[credential]

    def keep(self, provider: str, base_url: str | None, key: str) -> KeyLocation:
        """Store a key in place of the provider's former one. Raises ConfigError if it cannot be stored.

        If the keyring cannot be used now but has the former key, the file says so, and `forget` removes both.
        """
        if self._tell is not None:
            self._tell([key])
        address = plain_address(base_url)
        try:
            where = self._keyring.store(provider, key)
        except KeyringError as trouble:
            remark = str(trouble)
            credential = Credential(provider, address, key=key)
            where = credentials_file(self._environ)
        else:
            remark = ""
            credential = Credential(provider, address, mark=secrets.token_hex(16))

        def changed(before: tuple[Credential, ...]) -> list[Credential]:
            former = next((each.mark for each in before if each.provider == provider), "")
            stored = credential if credential.mark else replace(credential, mark=former)
            return [*(each for each in before if each.provider != provider), stored]

        damage = self._change(changed)
        return KeyLocation(where, "; ".join(filter(None, (remark, damage))))

    def forget(self, provider: str | None = None) -> RemovedKeys:
        """Remove the stored key of a provider, or all keys. Raises ConfigError.

        A key that the keyring does not delete is no longer used, and the remark names it.
        """
        doomed = [each for each in self.all() if provider in (None, each.provider)]
        if not doomed:
            return RemovedKeys(())
        self._change(lambda before: [each for each in before if provider not in (None, each.provider)])
        with self._one_at_a_time:
            self._from_keyring.clear()
        stuck: list[str] = []
        for each in doomed:
            if each.mark:
                try:
                    self._keyring.remove(each.provider)
                except KeyringError as trouble:
                    stuck.append(f"the key of {each.provider} is still in the keyring, under acp-agent ({trouble})")
        return RemovedKeys(tuple(each.provider for each in doomed), "; ".join(stuck))

    def _credential(self, provider: str, base_url: str) -> Credential | None:
        with suppress(ConfigError):
            return next((each for each in self.all() if each.fits(provider, base_url)), None)
        return None

    def _asked(self, provider: str) -> str:
        """Return the key that the keyring holds. Raises ConfigError."""
        where = f"provider {provider!r}"
        try:
            key = self._keyring.find(provider)
        except KeyringError as trouble:
            raise ConfigError(where, "key", "", f"the keyring to give the stored key: {trouble}") from trouble
        if not key:
            raise ConfigError(where, "key", "", "the keyring to hold the stored key; run `acp-agent login` again")
        if self._tell is not None:
            self._tell([key])
        return key

    def _tell_rest(self, path: str) -> None:
        """Pass the keys in a file that is not valid TOML to `tell`."""
        if self._tell is not None:
            text = readable_text(path)
            self._tell(found[1] for found in _KEY.finditer(text))

    def _change(self, change: Callable[[tuple[Credential, ...]], list[Credential]]) -> str:
        """Rewrite the whole file. Return a remark about a damaged one, or "". Raises ConfigError."""
        path, damage = os.path.join(data_dir(self._environ), "credentials.toml"), ""
        try:
            with private_file(f"{path}.lock") as fd:
                lock(fd)
                try:
                    before = understood(read_private(path))
                except DamagedFile as error:
                    self._tell_rest(path)
                    before, damage = (), f"{path}: {error}; it was set aside as {set_aside(path)}"
                replace_private(path, _toml(change(before)))
        except OSError as error:
            raise ConfigError(
                path, "", "", f"expected a file that can be written: {error.strerror or error}"
            ) from error
        return damage


def _toml(credentials: Iterable[Credential]) -> str:
    lines = ["# Keys that `acp-agent login` stored; `acp-agent logout` removes them.", ""]
    for each in credentials:
        lines += [f"[{quoted(each.provider)}]", f"base_url = {quoted(each.base_url)}"]
        lines += [f"key = {quoted(each.key)}"] if each.key else []
        lines += [f"keyring = {quoted(each.mark)}"] if each.mark else []
        lines.append("")
    return "\n".join(lines)
