"""What the user sent: words as they were typed, pictures, and what was attached, by name."""

from collections.abc import Sequence
from typing import assert_never

from acp_agent.cli.page.escaped import is_web, link, text
from acp_agent.cli.page.picture import Pictures
from acp_agent.cli.session_words import clipped
from acp_agent.core.messages import TextPart
from acp_agent.core.prompt import LinkPart, PromptPart, ResourcePart
from acp_agent.core.types import ImagePart

_ATTACHED = 4_000
"""Characters of an attached text that are shown."""
_PARTS = 200


def user_html(parts: Sequence[PromptPart], pictures: Pictures, limit: int) -> str:
    """The message; each text of it in at most `limit` characters."""
    rest = f'<p class="note">and {len(parts) - _PARTS} more parts</p>' if len(parts) > _PARTS else ""
    return "".join(_part(part, pictures, limit) for part in parts[:_PARTS]) + rest


def _part(part: PromptPart, pictures: Pictures, limit: int) -> str:
    match part:
        case TextPart(words):
            return f'<p class="typed">{text(clipped(words.strip(), limit))}</p>' if words.strip() else ""
        case ImagePart():
            return pictures.html(part)
        case LinkPart(uri, name):
            label = text(clipped(name or uri, 300))
            return f'<p class="attached">{link(uri, label) if is_web(uri) else _named(label, uri)}</p>'
        case ResourcePart(uri, words):
            return (
                f'<details class="attached"><summary>{_named(text(_last(uri)), uri)}</summary>'
                f'<pre class="output">{text(clipped(words, min(limit, _ATTACHED)))}</pre></details>'
            )
        case _:
            assert_never(part)


def _named(label: str, uri: str) -> str:
    return f'{label} <span class="target">{text(clipped(uri, 500))}</span>'


def _last(uri: str) -> str:
    """The end of a path: the name of a file."""
    return clipped(uri.rstrip("/").rpartition("/")[2] or uri, 300)
