"""What a user sends: the blocks of one prompt as they came, for whoever shows the conversation again (A6.3).

The model is given something else: links read, resources fenced (protocol/content.py).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from acp_agent.core.messages import TextPart
from acp_agent.core.types import ImagePart


@dataclass(frozen=True, slots=True)
class LinkPart:
    """Something named by its URI."""

    uri: str
    name: str


@dataclass(frozen=True, slots=True)
class ResourcePart:
    """A text that came along. `mime_type` is empty where nobody said."""

    uri: str
    text: str
    mime_type: str = ""


PromptPart: TypeAlias = TextPart | ImagePart | LinkPart | ResourcePart

_TYPED = (TextPart, LinkPart)


def typed(parts: Iterable[PromptPart]) -> str:
    """What the user wrote or attached himself: texts and the addresses of links. No file's words, and no page's."""
    texts = (part.text if isinstance(part, TextPart) else part.uri for part in parts if isinstance(part, _TYPED))
    return "\n".join(texts)
