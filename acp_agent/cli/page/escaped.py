"""Anything as text of a page: nothing in it is markup, nothing in it is hidden, no link leads anywhere but the web."""

import html
import re
from urllib.parse import urlsplit

from acp_agent.cli.session_words import clipped, shown

_URL = re.compile(r"https?://[!-~]{1,2000}", re.IGNORECASE)  # no blank, no control, nothing that looks like another


def text(value: str) -> str:
    """HTML text, and as good between the quotes of an attribute. Line ends and tabs stay as they are."""
    return html.escape(shown(value))


def is_web(url: str) -> bool:
    """Whether a link may lead there: http or https, to a host by its name alone, in ASCII."""
    if not _URL.fullmatch(url):
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and "@" not in parts.netloc and "\\" not in url
    except ValueError:
        return False


def link(url: str, label: str) -> str:
    """A link for a person to follow; `label` is HTML. What leads elsewhere than to the web is told, not linked."""
    if not is_web(url):
        return f'{label} <span class="target">({text(clipped(url, 500))})</span>'
    return f'<a href="{text(url)}" rel="noopener noreferrer nofollow">{label}</a>'
