"""What the URI of a linked resource leads to (A24.8-A24.10). Editors spell files in many ways."""

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

_WINDOWS = re.compile(r"/?[A-Za-z]:(?:[\\/]|\Z)|\\\\")
_SHOWN = 2000  # characters of a URI


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URI leads. At most one is set; none where it only names something.

    path      absolute, of a file or folder on this machine
    page      the URL of a page that may be read
    refused   why it is not read
    """

    path: str = ""
    page: str = ""
    refused: str = ""


def target(uri: str) -> Target:
    """Where a URI leads, or the bare absolute path some clients send. Touches nothing."""
    if _WINDOWS.match(uri):
        return _windows()
    if uri.startswith("/"):
        return Target(path=uri)
    try:
        parts = urlsplit(uri)
    except ValueError:  # http://[
        return Target()
    match parts.scheme:
        case "file":
            return _file(parts)
        case "https" if parts.netloc:
            return Target(page=uri)
        case "http" if parts.netloc:
            return Target(refused="only https links are read")
        case "data":
            return Target(refused="its content is in the link itself: attach it instead")
        case _:
            return Target()


def shown(uri: str) -> str:
    """A URI fit for a line of text."""
    line = " ".join(uri.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def _file(parts: SplitResult) -> Target:
    path = unquote(parts.path)
    if _WINDOWS.match(path) or parts.netloc.endswith(":"):  # file://C:/
        return _windows()
    if parts.netloc not in ("", "localhost"):
        return Target(refused=f"a file of another machine ({parts.netloc})")
    return Target(path=path) if path.startswith("/") else Target(refused="not an absolute path")


def _windows() -> Target:
    return Target(refused="a Windows path, which leads nowhere on this machine")
