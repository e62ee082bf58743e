"""Bytes of the web as text: only character sets of the web, and a little tolerance (T5.6)."""

import codecs
from typing import Final

_CHARSETS: Final = frozenset(
    # By Python's names, and no others: Python also knows codecs that take for ever or are not about text.
    (
        *("utf-8", "utf-16-be", "utf-16-le", "koi8-r", "koi8-u", "mac-roman", "tis-620"),
        *(f"iso8859-{number}" for number in range(2, 17)),
        *(f"cp{number}" for number in (866, 874, 932, 949, 950, *range(1250, 1259))),
        *("gb2312", "gbk", "gb18030", "big5", "big5hkscs", "shift_jis", "euc_jp", "iso2022_jp", "euc_kr"),
    )
)
_MEANT: Final = {"utf-16": "utf-16-le", "iso8859-1": "cp1252"}
"""What browsers take two names for (WHATWG Encoding, 4.2): pages in "Latin 1" have Windows' quotation marks."""
_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_STRAY: Final = 100
"""One bad character in more than so many is a slip, and the rest worth reading."""


class NoTextError(ValueError):
    """Bytes that are no text; the message says why, as what follows a subject: "is binary"."""


def decoded(data: bytes, charset: str, *, cut: bool) -> str:
    """Bytes by their byte order mark, else by the charset if it is one of the web's, else as UTF-8.

    A stray byte becomes U+FFFD. Of a `cut` text, the character it was cut in is left out. Raises NoTextError when
    too much is no character, or it holds a zero byte's.
    """
    mark, name = next((known for known in _MARKS if data.startswith(known[0])), (b"", ""))
    name = name or _codec(charset)
    decoder = codecs.getincrementaldecoder(name)
    try:
        text = decoder().decode(data[len(mark) :], final=not cut)
    except UnicodeDecodeError as error:
        text = decoder("replace").decode(data[len(mark) :], final=not cut)
        if text.count("\ufffd") * _STRAY >= len(text):
            raise NoTextError(f"is not valid {name.upper()} at byte {len(mark) + error.start}") from None
    if "\0" in text:
        raise NoTextError("is binary")
    return text


def _codec(charset: str) -> str:
    """Python's name of a charset of the web; UTF-8 for ASCII, which is part of it, and for everything unknown."""
    try:
        name = codecs.lookup(charset[:40]).name if charset.isascii() else ""
    except (LookupError, ValueError):
        return "utf-8"
    name = _MEANT.get(name, name)
    return name if name in _CHARSETS else "utf-8"
