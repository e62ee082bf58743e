"""What a user sends: the blocks of one prompt as they came, for whoever shows the conversation again (A6.3).

The model is given something else: links read, resources fenced (protocol/content.py).
"""

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
