"""An HTTP status that is no page, as the error a tool call ends with (T5.12, T5.16)."""

from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from acp_agent.core.errors import ToolError, ToolErrorCategory

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

_CATEGORIES: Final = {
    400: ToolErrorCategory.INVALID_PARAMETERS,
    422: ToolErrorCategory.INVALID_PARAMETERS,
    401: ToolErrorCategory.POLICY_BLOCKED,
    403: ToolErrorCategory.POLICY_BLOCKED,
    429: ToolErrorCategory.RATE_LIMITED,
}
_PATIENT: Final = frozenset({429, 503})


def category_of(status: int) -> ToolErrorCategory:
    """The category of a status that is neither success nor a redirect."""
    if 500 <= status <= 599:
        return ToolErrorCategory.SERVER_ERROR
    return _CATEGORIES.get(status, ToolErrorCategory.PERMANENT_FAILURE)


def status_error(host: str, status: int, retry_after: str = "") -> ToolError:
    """The error for such a status. Names host and status in our words: the server's own may be anything."""
    wait = _wait(retry_after) if status in _PATIENT else ""
    return ToolError(category_of(status), f"{host} answered {status}{_phrase(status)}{wait}")


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""


def _wait(retry_after: str) -> str:
    """What a Retry-After header asks for: seconds, or a date; nothing for what is neither."""
    value = retry_after.strip()
    if value.isascii() and value.isdigit() and len(value) <= 9:
        return f"; try again after {int(value)} s"
    try:
        return f"; try again after {parsedate_to_datetime(value).isoformat()}"
    except (ValueError, OverflowError):  # a year of eleven digits is no date either
        return ""
