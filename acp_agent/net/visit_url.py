"""A page a user is asked to open in his own browser: judged by its text, and spelt so that he sees where it leads.

Nothing is fetched here, so private addresses are the browser's business; what must not be is a URL that looks like
another (ACP and MCP, "Elicitation": show the whole URL, never let the look of a host deceive).
"""

from typing import Final
from urllib.parse import quote, urlsplit

from acp_agent.net.hosts import canonical_host

_LONGEST: Final = 2048
_LOCAL: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_PLAIN: Final = "%/:?#[]@!$&'()*+,;=-._~"


def visitable(url: str) -> str:
    """The URL in ASCII: its host as the DNS has it (`xn--…`), the rest percent-encoded.

    Raises ValueError, with the reason, for anything but https (http on this machine), user names, and what browsers
    read in a way of their own.
    """
    if len(url) > _LONGEST:
        raise ValueError(f"the URL has {len(url)} characters, and {_LONGEST} is the most")
    if not url.isprintable() or " " in url or "\\" in url:
        raise ValueError("the URL holds a blank, a backslash or a character that cannot be seen")
    try:
        parts = urlsplit(url)
        host, port = canonical_host(parts.hostname or ""), parts.port
    except ValueError:
        raise ValueError("the URL names no host that can be read") from None
    if "@" in parts.netloc:
        raise ValueError("the URL carries a user name, a password or an @ before its host")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in _LOCAL):
        raise ValueError("only https may be opened, or http on this machine")
    shown = f"[{host}]" if ":" in host else host
    rest = parts._replace(scheme="", netloc="").geturl()
    return f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}{quote(rest, safe=_PLAIN)}"
