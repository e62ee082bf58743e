"""Text of a model or a file name on one line that a person can read safely."""

import json
import re
import unicodedata

_TITLE_LIMIT = 120
_SCAN_LIMIT = 2000  # characters: a title needs no more of a command of ten megabytes
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # controls, bidi and zero-width, surrogates, separators
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")  # letters and marks that are drawn as nothing
_LINE_END = re.compile(r"\s*[\r\n]+\s*")


def visible(text: str) -> str:
    """Return the text with every control, invisible or direction-changing character as its JSON escape.

    A model that copies the JSON escape into its next call names the same character again.
    """
    if text.isprintable() and _BLANK.isdisjoint(text):
        return text
    return "".join(json.dumps(char)[1:-1] if _is_hidden(char) else char for char in text)


def title(text: str) -> str:
    """Return one line of at most 120 characters. Line ends become a visible sign and not a blank.

    With a blank, two commands would look like one with more arguments.
    """
    text = text.strip()
    flat = visible(_LINE_END.sub(" ⏎ ", text[:_SCAN_LIMIT]).replace("\t", " "))
    if len(flat) <= _TITLE_LIMIT and len(text) <= _SCAN_LIMIT:
        return flat
    return f"{flat[:_TITLE_LIMIT]}…"


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _HIDDEN or char in _BLANK
