"""Decode, encode and cut the text of files, within limits, and make the errors for files that are no text."""

import hashlib
import os
import re
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from anyio import to_thread

from acp_agent.core.backends import Lines
from acp_agent.core.errors import ToolError

BOM = b"\xef\xbb\xbf"
UTF_16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_CHUNK = 1024 * 1024
_CONTINUES = 0b1000_0000  # a byte of UTF-8 that is not the first of its character, under the mask 0b1100_0000
MOST_WHOLE = 256 * 1024
"""`stretch` also returns the whole text if it has at most so many characters."""
MOST_COMPARED = 32 * 1024 * 1024
"""The size in bytes of the largest file that has a digest. Larger files cannot be edited."""

_AT_ONCE = 16 * 1024
"""Characters that are digested and redacted in less time than a thread takes."""

T = TypeVar("T")

TextDigest = partial(hashlib.blake2b, digest_size=16)
"""Makes a digest of the UTF-8 of a text without its BOM."""


def text_digest(text: str) -> str:
    """Return the digest of a text, for comparing it with a later one."""
    return TextDigest(text.encode("utf-8", "surrogatepass")).hexdigest()


async def noted(note: Callable[[], T], size: int) -> T:
    """Call `note`, which notes a text of `size` characters. If the text is long, call it in a worker thread."""
    return note() if size <= _AT_ONCE else await to_thread.run_sync(note)


def read_bounded(fd: int, limit: int, given: str) -> bytes:
    """Return all bytes of an open file. Raises ToolError if there are more than `limit`, and OSError."""
    size = os.fstat(fd).st_size
    if size > limit:
        raise _too_large(given, size, limit)
    chunks: list[bytes] = []
    total = 0
    while chunk := os.read(fd, min(max(size - total, 0) + 1, _CHUNK)):
        chunks.append(chunk)
        total += len(chunk)
        if total > limit:  # it grew, or its size was wrong
            raise _too_large(given, total, limit)
    return b"".join(chunks)


def is_binary(data: bytes) -> bool:
    """Return whether the bytes are surely no text."""
    return b"\0" in data


def binary_error(given: str, size: int | None = None) -> ToolError:
    """Return the error for a file that is no text. `size` is in bytes, None if unknown."""
    return ToolError.permanent(
        f"{given} is a binary file" + ("" if size is None else f" ({size} bytes)"),
        "Only text can be read, and PNG, JPEG, GIF and WebP pictures of at most 3.75 MiB. For anything else "
        "use a command: `pdftotext FILE -` for a PDF, `unzip -l` for an archive, or `file` or `xxd`.",
    )


def no_utf_8_error(given: str, start: bytes, size: int) -> ToolError:
    """Return the error for a file of `size` bytes that is no UTF-8. `start` is its beginning, or a part of that.

    A file with a byte order mark of UTF-16 is called text. Any other file is called binary if it has a NUL, and text of
    an older encoding if not.
    """
    encoding = "utf-16" if start.startswith(UTF_16_BOMS) else "latin1"
    if encoding == "latin1" and is_binary(start):
        return binary_error(given, size)
    return ToolError.permanent(
        f"{given} is text that is not UTF-8 ({size} bytes)",
        f"Convert it with a command such as `iconv -f {encoding} -t utf-8 FILE`.",
    )


WINDOWS = "Windows-1252"
_UTF_16 = {b"\xff\xfe": "UTF-16LE", b"\xfe\xff": "UTF-16BE"}
_BINARY = re.compile(rb"\x89PNG|\xff\xd8\xff|GIF8|RIFF|%PDF")
_CONTROL = re.compile(rb"[\x00-\x07\x0b\x0e-\x1a\x1c-\x1f]")
"""Bytes that no text of an older encoding has."""
_WINDOWS = {code: char for code in range(0x80, 0xA0) if (char := bytes([code]).decode("cp1252", "ignore"))}
"""The characters of Windows-1252 that Latin-1 does not have, by their byte. The five bytes without one are controls."""
_TO_LATIN = {ord(char): code for code, char in _WINDOWS.items()} | dict.fromkeys(_WINDOWS, 65533)


def from_windows(data: bytes) -> str:
    """Return the text of bytes in Windows-1252, as browsers read it: every byte is one character."""
    return data.decode("latin-1").translate(_WINDOWS)


WINDOWS_BYTES = {
    0xDC00 + code: _WINDOWS.get(code, "\ufffd" if code < 0xA0 else chr(code)) for code in range(0x80, 0x100)
}
"""What stands for a byte that the error handler "surrogateescape" gave. A control would act on a terminal."""


def decode_line(line: bytes) -> str:
    """Return the text of a line: UTF-8, or else Windows-1252."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return from_windows(line)


def cut_line(line: bytes, longest: int) -> bytes:
    """Return a line without its CR. One of more than `longest` bytes is cut at a whole character of UTF-8."""
    line = line.removesuffix(b"\r")
    end = min(len(line), longest)
    while longest - 3 <= end < len(line) and line[end] & 0b1100_0000 == _CONTINUES:
        end -= 1
    return line[:end]


def changed_error(given: str) -> ToolError:
    """Return the error for a file that changed since the preview of a change."""
    return ToolError.permanent(
        f"{given}: file changed between diff preview and write; aborting",
        "Read the file again, then repeat the change.",
    )


def encoding_of(data: bytes) -> str:
    """Return the encoding of a text file: "" for UTF-8 and for no text, else UTF-16 (by its mark) or Windows-1252.

    Every byte is one character in Windows-1252.
    """
    for mark, encoding in _UTF_16.items():
        if data.startswith(mark):
            return encoding
    if _BINARY.match(data):
        return ""
    try:
        data.decode()
    except UnicodeDecodeError:
        return "" if _CONTROL.search(data) else WINDOWS
    return ""


def decode_text(data: bytes, given: str) -> str:
    """Return the text in its encoding without a BOM, line ends as they are. Raises ToolError if it is no text."""
    encoding = encoding_of(data)
    try:
        match encoding:
            case "":
                text = data.removeprefix(BOM).decode()
            case _ if encoding == WINDOWS:
                text = from_windows(data)
            case _:
                text = data[2:].decode(encoding)
    except UnicodeDecodeError:
        raise no_utf_8_error(given, data, len(data)) from None
    if "\0" in text:
        raise binary_error(given, len(data))
    return text


def encode_like(text: str, old: bytes, data: bytes, given: str) -> bytes:
    """Return the bytes to write in place of `old`, in its encoding. `data` is the text in UTF-8.

    Raises ToolError for a character that the encoding does not have.
    """
    encoding = encoding_of(old)
    if not encoding:
        has_mark = data.startswith(BOM) and not old.startswith(BOM * 2)  # of two marks, the second is part of the text
        return BOM + data if old.startswith(BOM) and not has_mark else data
    if encoding != WINDOWS:
        return old[:2] + text.encode(encoding)
    try:
        return text.translate(_TO_LATIN).encode("latin-1")
    except UnicodeEncodeError as error:
        char = error.object[error.start]
        msg = f"{given} is in {WINDOWS}, which has no U+{ord(char):04X}"
        advice = "Use another character, or convert the file first: `iconv -f windows-1252 -t utf-8`."
        raise ToolError.permanent(msg, advice) from None


def encode_text(text: str, given: str, limit: int) -> bytes:
    """Return the bytes to write. Raises ToolError if the text cannot be encoded or has more than `limit` bytes."""
    if "\0" in text:
        raise ToolError.invalid(f"{given}: the content has a NUL character; only text can be written")
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        msg = f"{given}: the content has half of a surrogate pair at character {error.start}"
        raise ToolError.invalid(msg) from None
    if len(data) > limit:
        raise ToolError.invalid(f"{given}: the content is {len(data)} bytes; at most {limit} can be written")
    return data


def stretch(text: str, offset: int, limit: int, encoding: str = "") -> Lines:
    """Return some lines of a text, as FileSystem.read_lines does. A line ends with LF or CRLF only."""
    total = text.count("\n") + (text != "" and not text.endswith("\n"))
    first = min(offset, total) if offset >= 0 else max(total + offset, 0)
    end = min(first + limit, total)
    lines = text.split("\n", end)[first:end]  # the rest need not be split
    whole = text if len(text) <= MOST_WHOLE else None
    return Lines(tuple(line.removesuffix("\r") for line in lines), first, total, text_digest(text), whole, encoding)


def _too_large(given: str, size: int, limit: int) -> ToolError:
    return ToolError.permanent(
        f"{given}: {size} bytes are too large to read (at most {limit})",
        "Search it with grep, or take a part of it with a command such as `head`, `tail` or `sed -n`.",
    )
