"""The keyring of the system, through `keyring`: asked in a thread, and never waited for longer than was said.

It may be a program that hangs, a dialog nobody answers, or absent; its backends are plug-ins and raise what they like.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_SERVICE = "acp-agent"

_T = TypeVar("_T")


class KeyringTrouble(Exception):
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
            raise KeyringTrouble(f"{called} keeps nothing")
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
            raise KeyringTrouble(f"the keyring did not answer in {self._patience:g} s")
        if asked.error is not None:
            raise KeyringTrouble(_reason(asked.error)) from asked.error
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
