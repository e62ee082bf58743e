"""Keys of model providers that `acp-agent login` stored: in the system's keyring, else in a private file.

What the file says is described in `config/credentials.py`. A variable or the configuration goes first: nothing here is
asked for a provider that has its key from there.
"""

import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from acp_agent.config.files import Credential, credentials_file, data_dir, plain_address, read_credentials, understood
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

_SERVICE = "acp-agent"

_T = TypeVar("_T")


class KeyringError(Exception):
    """The keyring cannot be used; the message says why, in one line."""


class OsKeyring:
    """Secrets by name. `patience` is in seconds: a dialog that unlocks it needs some. Blocks."""

    def __init__(self, patience: float) -> None:
        self._patience = patience

    def store(self, name: str, secret: str) -> str:
        """Keep a secret and see that it is kept; returns what the keyring calls itself. Raises KeyringTrouble."""

        def call() -> tuple[str, str | None]:
            import keyring  # noqa: PLC0415 - it looks for backends, and few people log in

            keyring.set_password(_SERVICE, name, secret)
            return keyring.get_keyring().name, keyring.get_password(_SERVICE, name)

        called, kept = self._within(call)
        if kept != secret:  # the null backend takes everything and keeps nothing
            raise KeyringError(f"{called} keeps nothing")
        return called

    def find(self, name: str) -> str | None:
        """A secret; None when it has none of that name. Raises KeyringTrouble."""

        def call() -> str | None:
            import keyring  # noqa: PLC0415 - see above

            return keyring.get_password(_SERVICE, name)

        return self._within(call)

    def remove(self, name: str) -> None:
        """Forget a secret; one that is not there counts as forgotten. Raises KeyringTrouble."""

        def call() -> None:
            import keyring  # noqa: PLC0415 - see above

            if keyring.get_password(_SERVICE, name) is not None:
                keyring.delete_password(_SERVICE, name)

        self._within(call)

    def _within(self, call: Callable[[], _T]) -> _T:
        asked = _Asked(call)
        asked.start()
        asked.join(self._patience)
        if asked.is_alive():
            raise KeyringError(f"the keyring did not answer in {self._patience:g} s")
        if asked.error is not None:
            raise KeyringError(_reason(asked.error)) from asked.error
        return asked.answers[0]


class _Asked(threading.Thread, Generic[_T]):
    """One question. A daemon: whoever ends the process does not wait for it either."""

    def __init__(self, call: Callable[[], _T]) -> None:
        super().__init__(daemon=True, name="keyring")
        self._call = call
        self.answers: list[_T] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.answers.append(self._call())
        except Exception as error:  # noqa: BLE001 - a backend is anybody's code
            self.error = error


def _reason(error: Exception) -> str:
    if type(error).__name__ == "NoKeyringError":
        return "this system has no keyring"
    line = " ".join(str(error).split())
    return f"the keyring failed: {line[:200] or type(error).__name__}"


_PATIENCE = 20.0
"""Seconds the keyring may take: it may ask its owner for a password first."""
_KEY = re.compile(r"""\bkey["']?[ \t]*=[ \t]*["']+([^"'\r\n]+)""")
"""A key in what is left of a file, whether its quotation mark is there or not."""


@dataclass(frozen=True, slots=True)
class KeyLocation:
    """Where a key went: the keyring's name or the file's path; and what is to be told besides, if anything."""

    where: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class RemovedKeys:
    """The providers whose keys are no longer used; and what the keyring still holds, if anything."""

    providers: tuple[str, ...]
    remark: str = ""


class CredentialStore:
    """The stored keys of this user. Blocks; may be used from any thread.

    tell       hears of every key before anybody else does: it must be taken out of what is shown (S9.4)
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

    def all(self) -> tuple[Credential, ...]:
        """What is stored. Reads a small file. Raises ConfigError for one that cannot be read."""
        found = read_credentials(credentials_file(self._environ))
        if self._tell is not None:
            self._tell(credential.key for credential in found)
        return found

    def introduce(self) -> None:
        """Tell the keys in the file, before anything else could show them; and those in files that were set aside."""
        with suppress(ConfigError):  # whoever loads the configuration tells what is wrong
            path = credentials_file(self._environ)
            try:
                self.all()
            except ConfigError:
                self._tell_rest(path)
            for aside in set_aside_before(path):
                self._tell_rest(aside)

    def has(self, provider: str, base_url: str) -> bool:
        """Whether a key for this provider at this address is stored. Asks no keyring."""
        return self._credential(provider, base_url) is not None

    def key(self, provider: str, base_url: str) -> str:
        """The key for this provider at this address, as it is stored now; empty when none is.

        May wait for the keyring, where `has` says yes: not from the event loop then. Raises ConfigError.
        """
        credential = self._credential(provider, base_url)
        if credential is None or credential.key:
            return credential.key if credential else ""
        with self._one_at_a_time:
            if credential not in self._from_keyring:
                self._from_keyring[credential] = self._asked(provider)
            return self._from_keyring[credential]

    def keep(self, provider: str, base_url: str | None, key: str) -> KeyLocation:
        """Store a key in the place of the provider's former one. Raises ConfigError when nothing can be kept."""
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
        damage = self._change(lambda before: [*(each for each in before if each.provider != provider), credential])
        return KeyLocation(where, "; ".join(filter(None, (remark, damage))))

    def forget(self, provider: str | None = None) -> RemovedKeys:
        """Remove the stored key of a provider, or all of them. Raises ConfigError.

        What the keyring does not let go is used no more all the same, and told.
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
        """What the keyring holds. Raises ConfigError."""
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
        """Tell the keys in a file that cannot be read as TOML."""
        if self._tell is not None:
            text = readable_text(path)
            self._tell(found[1] for found in _KEY.finditer(text))

    def _change(self, change: Callable[[tuple[Credential, ...]], list[Credential]]) -> str:
        """Write the file anew, whole. Returns what became of one that was damaged. Raises ConfigError."""
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
        kept = f"keyring = {quoted(each.mark)}" if each.mark else f"key = {quoted(each.key)}"
        lines += [f"[{quoted(each.provider)}]", f"base_url = {quoted(each.base_url)}", kept, ""]
    return "\n".join(lines)
