"""Judging a path as text, before anything on disk is asked (requirements 2.7, security.md 2.4).

A path means what it says: nothing in it is expanded. What a shell or a browser would expand is refused with a
word of advice, because taken literally it would read nothing or create a folder named `~`.
"""

import re

from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory

_PATH_BYTES = 4095
_NAME_BYTES = 255
_HOME = re.compile(r"~([a-z_][a-z0-9_-]*)?")
_VARIABLE = re.compile(r"\$(\{\w+\}|\([^)]*\)|[A-Z_][A-Z0-9_]*)|%\w+%")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def check_text(path: object) -> str:
    """The path, if it can be one at all. Raises ToolError (type_mismatch or invalid_parameters)."""
    if not isinstance(path, str):
        msg = f"path: expected a string, got {type(path).__name__}"
        raise ToolError(ToolErrorCategory.TYPE_MISMATCH, msg)
    if not path:
        raise _invalid("path is empty: expected a file or directory")
    if "\0" in path:
        raise _invalid(f"{_shown(path)}: a path cannot contain a NUL character")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise _invalid(f"{_shown(path)}: a path cannot contain half of a surrogate pair") from None
    if size > _PATH_BYTES:
        raise _invalid(f"{_shown(path)}: {size} bytes are too long for a path (at most {_PATH_BYTES})")
    longest = max(path.split("/"), key=lambda name: len(name.encode()))
    if len(longest.encode()) > _NAME_BYTES:
        raise _invalid(f"{_shown(path)}: a name in it is longer than {_NAME_BYTES} bytes")
    return path


def expansion_wanted(path: str) -> Refused | None:
    """The refusal of a path that asks to be expanded, or None.

    Only for paths whose first name does not exist literally: `$HOME` and `~me` are legal names.
    """
    first = re.split(r"[/\\]", path, maxsplit=1)[0]
    if _HOME.fullmatch(first):
        return _unexpanded(path, "~ does not mean the home directory here")
    if _VARIABLE.fullmatch(first):
        return _unexpanded(path, "variables are not expanded in paths")
    if _URL.match(path):
        return _unexpanded(path, "a URL is not a path")
    return None


def _unexpanded(path: str, why: str) -> Refused:
    return Refused(f"{_shown(path)}: {why}", "Give the path itself, relative to the session's directory.")


def _invalid(message: str) -> ToolError:
    return ToolError(ToolErrorCategory.INVALID_PARAMETERS, message)


def _shown(path: str) -> str:
    """The path fit for a message: printable and short."""
    text = path.encode("utf-8", "replace").decode().replace("\0", "\\0")
    return text if len(text) <= 120 else f"{text[:60]}…{text[-40:]}"
