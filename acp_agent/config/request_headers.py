"""`headers` of a provider: what else is sent with each request, such as OpenRouter's X-Title."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from acp_agent.config.masking import HIDDEN, holds_secret, is_everyday
from acp_agent.core.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")  # RFC 9110 5.1
_VALUE = re.compile(r"[!-~]([ -~]{0,2046}[!-~])?")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MOST = 32
_RESERVED = re.compile(
    r"(?xi) host | content-.* | transfer-encoding | connection | keep-alive | te | trailer | upgrade | expect | cookie"
    r" | accept | accept-encoding | proxy-.* | anthropic-version | authorization | x-api-key"
)


def _headers(value: Mapping[str, str]) -> Mapping[str, str]:
    if len(value) > _MOST:
        raise ValueError(f"at most {_MOST} headers")
    for name, text in value.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"names such as X-Title, not {name[:50]!r}")
        if name.lower() in ("authorization", "x-api-key"):
            raise ValueError(f"no {name}: keys go through api_key_env")
        if _RESERVED.fullmatch(name):
            raise ValueError(f"no {name}: the agent sets it itself")
        if not _VALUE.fullmatch(text):
            raise ValueError(f"a value of 1 to 2048 printable ASCII characters for {name}")
    if len({name.lower() for name in value}) < len(value):
        raise ValueError("each header once: capital letters make no difference")
    return value


Headers = Annotated[Mapping[str, str], AfterValidator(_headers), Field(strict=False)]
"""HTTP headers by name. What the agent sets itself, and what would break the request, is refused."""


def filled_in(headers: Mapping[str, str], environ: Mapping[str, str], where: str) -> Mapping[str, str]:
    """The headers with each `${NAME}` replaced. Raises ConfigError: a variable that is not set, or holds no header."""
    filled: dict[str, str] = {}
    for name, text in headers.items():
        for variable in _VARIABLE.findall(text):
            if not environ.get(variable):
                raise ConfigError(where, f"headers.{name}", text, f"the environment variable {variable} to be set")
        filled[name] = _VARIABLE.sub(lambda match: environ[match[1]].strip(), text)
        if not _VALUE.fullmatch(filled[name]):
            raise ConfigError(where, f"headers.{name}", text, "variables of printable ASCII")
    return filled


def variables(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of the environment variables that stand in the headers."""
    for text in headers.values():
        yield from _VARIABLE.findall(text)


def secret_parts(headers: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[str]:
    """What a header holds that must never be shown: its variables, and its own text where the name says so."""
    for name, text in headers.items():
        yield from (environ[variable] for variable in _VARIABLE.findall(text) if environ.get(variable))
        if _hides(name, text):
            yield text


def hidden(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers as they may be shown."""
    return {name: HIDDEN if _hides(name, text) else text for name, text in headers.items()}


def _hides(name: str, text: str) -> bool:
    return holds_secret(name) and not _VARIABLE.search(text) and not is_everyday(text)
