"""Which site a URL leads to, where that is beyond doubt: what a user allows when he allows "pages of a host"."""

import re

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# No userinfo, no escapes, no brackets, nothing but ASCII in front of the path, and nowhere a character at which one
# reader of URLs stops and another goes on: whatever reads this, reads the same host.
_PLAIN = re.compile(
    rf"https://(?P<host>{_LABEL}(?:\.{_LABEL}){{0,126}})\.?(?::(?P<port>[0-9]{{1,5}}))?(?:[/?#][^\s\x00-\x20\x7f-\x9f\\]*)?",
    re.IGNORECASE,
)
_HTTPS = 443


def site(url: str) -> str:
    """`https://host/` or `https://host:port/` in lower case; empty when the URL leaves any doubt about its host."""
    plain = _PLAIN.fullmatch(url)
    if plain is None or not url.isprintable():
        return ""
    host, port = plain["host"].lower(), int(plain["port"] or _HTTPS)
    return f"https://{host}/" if port == _HTTPS else f"https://{host}:{port}/"


def host_of(key: str) -> str:
    """The host, and the port where it is another than usual, of what `site` gave."""
    return key.removeprefix("https://").removesuffix("/")
