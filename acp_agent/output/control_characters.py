r"""Shows the characters of an answer that act on a screen instead of standing on it.

An escape sequence of a model's answer would steer the terminal of a text client, and a direction override makes code
read as something else (CVE-2021-42574). Nothing is dropped: each character is shown as its JSON escape, `\u001b`, so
that code which holds one stays readable. Tabs and line ends stay; a carriage return alone becomes a line end.
"""

import re

_ACTING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_RETURNS = re.compile(r"\r(?!\n)")


class ControlGuard:
    """Shows the acting characters of a stream. However the stream is cut, the pieces given back join to the same text.

    At most one character is held back: a carriage return that a line feed may follow.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, chunk: str) -> str:
        """Return what is certain after this chunk; may be empty."""
        text = self._held + chunk
        self._held = "\r" if text.endswith("\r") else ""
        return _shown(text.removesuffix("\r"))

    def finish(self) -> str:
        """Return the rest."""
        rest, self._held = self._held, ""
        return _shown(rest)


def _shown(text: str) -> str:
    if "\r" in text:
        text = _RETURNS.sub("\n", text)
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
