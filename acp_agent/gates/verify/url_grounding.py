"""Refuse URLs that the user has not typed. It is off unless configured."""

import re
from urllib.parse import SplitResult, urlsplit

from acp_agent.core.types import Allow, Deny, Verdict
from acp_agent.gates.verify.verifier import Verifier

MAX_URLS = 1000
"""The most URLs that a session remembers. The oldest are forgotten first."""

_URL = re.compile(r"(?:https?://|www\.)[^\s<>\"'`|\\^{}\x00-\x1f]{1,4096}", re.IGNORECASE)
_ENDS = ".,;:!?*_\u2026\u00bb\u201d\u2019\u3002\uff0c\u3001"
_CLOSERS = {")": "(", "]": "["}
_PORTS = {"http": 80, "https": 443}


class UrlMemory:
    """The URLs in the user's messages of one session."""

    def __init__(self) -> None:
        self._known: dict[str, None] = {}

    def learn(self, text: str) -> None:
        """Remember every URL in a message: with its scheme, or beginning with `www.`."""
        for match in _URL.finditer(text):
            key = _key(_trimmed(match[0]))
            if key:
                self._known.pop(key, None)
                self._known[key] = None
        for old in [*self._known][:-MAX_URLS]:
            del self._known[old]

    def knows(self, url: str) -> bool:
        """Return whether the user has typed a URL, apart from `http` for `https`, the fragment and the last slash."""
        return _key(url) in self._known

    def clear(self) -> None:
        """Forget all URLs, for /clear."""
        self._known.clear()


class UrlGrounding(Verifier):
    """Refuses URLs that are not in the memory. The targets of redirects are not judged here."""

    name = "url_grounding"

    def __init__(self, memory: UrlMemory) -> None:
        self._memory = memory

    def url(self, url: str) -> Verdict:
        if self._memory.knows(url):
            return Allow()
        return Deny(
            "only URLs that the user has typed may be reached (tools.verifiers.url_grounding)", rule="url_grounding"
        )


def _trimmed(url: str) -> str:
    """Return a URL without the full stop of its sentence and a bracket that was opened before it."""
    while url:
        last = url[-1]
        opener = _CLOSERS.get(last)
        if last not in _ENDS and (opener is None or url.count(last) <= url.count(opener)):
            break
        url = url[:-1]
    return url


def _key(url: str) -> str:
    """Return one spelling for URLs of the same page; empty for an invalid URL."""
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        host, port = parts.hostname, _port(parts)
    except ValueError:  # a bracket without its end, or a port that is no number
        return ""
    if not host or parts.scheme not in _PORTS or "@" in parts.netloc:
        return ""
    return f"{host.rstrip('.')}{port}{parts.path.rstrip('/')}{'?' if parts.query else ''}{parts.query}"


def _port(parts: SplitResult) -> str:
    return "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
