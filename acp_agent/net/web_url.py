"""A URL judged by its text alone, before any look-up (T5.1, T5.2, T5.15; security.md 2.5).

Two parsers read it and must agree, so that no spelling means one host to us and another to whoever connects.
"""

from typing import Final
from urllib.parse import SplitResult, urlsplit

from acp_agent.core.web import BlockReason
from acp_agent.net.hosts import HostRules, canonical_host
from acp_agent.net.lean_httpx import httpx
from acp_agent.net.target import MAX_URL, Blocked, Target

_HTTPS: Final = 443


def judge_url(url: str, rules: HostRules) -> Target:
    """The target a URL means. Raises Blocked when it is malformed, ambiguous or against the rules."""
    _check_text(url)
    split, parsed = _parsed_twice(url)
    if split.scheme != "https" or parsed.scheme != "https":
        named = f"not {split.scheme[:20]}" if split.scheme else "and none is named"
        raise Blocked(BlockReason.SCHEME, f"only https may be used, {named}", host=_host_or_nothing(split))
    if "@" in split.netloc or parsed.userinfo:
        raise _malformed("it carries a user name or password, or an @ before the host")
    host, port = _agreed(split, parsed)
    rules.check(host, port)
    return Target(str(parsed.copy_with(fragment=None)), host, port, parsed.raw_path)


def redirected(base: str, location: str) -> str:
    """The URL a Location header means, not judged yet: what cannot be read is left for `judge_url` to refuse."""
    try:
        _check_text(location)
        return str(httpx.URL(base).join(location))
    except (Blocked, httpx.InvalidURL, ValueError):
        return location


def _check_text(url: str) -> None:
    """Refuse what parsers repair, each in its own way: blanks, control and invisible characters, backslashes."""
    if len(url) > MAX_URL:
        raise _malformed(f"it has {len(url)} characters, and {MAX_URL} is the most")
    if not url.isprintable() or " " in url or "\\" in url:
        raise _malformed("it holds a blank, a backslash or a character that cannot be seen")


def _parsed_twice(url: str) -> tuple[SplitResult, httpx.URL]:
    try:
        return urlsplit(url), httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        raise _malformed("it cannot be read") from None


def _agreed(split: SplitResult, parsed: httpx.URL) -> tuple[str, int]:
    """Host and port, the same by both parsers."""
    theirs = parsed.raw_host.decode("ascii")
    if not split.hostname or not theirs:
        raise _malformed("it names no host")
    try:
        host, port = canonical_host(split.hostname), split.port
        agreed = host == canonical_host(theirs) and (port or _HTTPS) == (parsed.port or _HTTPS)
    except ValueError as error:
        raise _malformed(f"its host or port cannot be used ({error})") from None
    if not agreed or port == 0:
        raise _malformed("its host or port can be read in two ways")
    return host, port or _HTTPS


def _host_or_nothing(split: SplitResult) -> str:
    """For the record of a URL that is refused anyway."""
    try:
        return canonical_host(split.hostname or "")
    except ValueError:
        return ""


def _malformed(why: str) -> Blocked:
    return Blocked(BlockReason.SSRF, f"this URL may not be used: {why}", suggestion="Use the plain https:// address.")
