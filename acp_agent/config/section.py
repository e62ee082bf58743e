"""What all sections of the configuration share: their base model and the kinds of values they hold."""

import os
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A table of the configuration: frozen, no unknown keys, no silent conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _path(value: str) -> str:
    path = os.path.expanduser(value)
    if not os.path.isabs(path) or "\0" in path:
        raise ValueError("an absolute path, or one that starts with ~/")
    return os.path.normpath(path)


def _http_url(value: str) -> str:
    """No trailing slash, since API paths are put behind it, and no password that could end up in a log."""
    expected = "an http:// or https:// address without user, password or query (keys go through api_key_env)"
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that do not close
        raise ValueError(expected) from None
    surplus = "@" in parts.netloc or parts.query or parts.fragment or not value.isprintable() or " " in value
    if not usable or surplus:
        raise ValueError(expected)
    return value.rstrip("/")


PathText = Annotated[str, AfterValidator(_path)]
"""A path of the user's: `~` expanded, absolute, normalised; need not exist."""

HttpUrl = Annotated[str, AfterValidator(_http_url)]
"""The address an API lives at."""

Seconds = Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)]
Words = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)]
Paths = Annotated[tuple[PathText, ...], Field(strict=False)]
