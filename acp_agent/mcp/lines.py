"""Bytes cut into lines of bounded length, and into the data of server-sent events."""

from collections.abc import Iterable
from typing import Final

MESSAGE_LIMIT: Final = 8 * 1024 * 1024
"""Bytes of one message: room for a picture of 5 MiB in base64."""


class BrokenServerError(Exception):
    """A server that cannot be listened to any longer; the message says why, as what follows its name."""


class Lines:
    """Splits at LF. Never holds more than one message's worth."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> Iterable[bytes]:
        """The lines these bytes complete, without their ends. Raises BrokenServerError for one that is too long."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._hold(end)
            line = b"".join(self._pieces)
            self._pieces, self._held = [], 0
            yield line
        self._hold(rest)

    def _hold(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held > MESSAGE_LIMIT:
            self._pieces = []
            raise BrokenServerError(f"sent a message of more than {MESSAGE_LIMIT} bytes")
        if piece:
            self._pieces.append(piece)


class Events:
    """The data of server-sent events (WHATWG HTML, 9.2). Their names and ids mean nothing here.

    Lines end at LF or CRLF. A CR alone ends one too by the standard, which no server makes use of.

    ignored   bytes so far that were part of no data
    """

    def __init__(self) -> None:
        self._lines = Lines()
        self._data: list[bytes] = []
        self._size = 0
        self.ignored = 0

    def feed(self, data: bytes) -> Iterable[bytes]:
        """The data of the events these bytes complete. Raises BrokenServerError for one that is too long."""
        for line in self._lines.feed(data):
            field, _, value = line.removesuffix(b"\r").partition(b":")
            if field == b"data":
                self._size += len(value)
                if self._size > MESSAGE_LIMIT:
                    raise BrokenServerError(f"sent an event of more than {MESSAGE_LIMIT} bytes")
                self._data.append(value.removeprefix(b" "))
            elif not field and not value and self._data:
                event, self._data, self._size = b"\n".join(self._data), [], 0
                yield event
            else:
                self.ignored += len(line) + 1
