"""Reasoning a server has refused: which it was, and a request without it.

An API takes a thought back only where it stood, and only while it knows the key it was sealed with. What was refused
once would be refused in every later request, which would then be sent twice.
"""

import hashlib
import json
from collections.abc import Container
from dataclasses import replace

from acp_agent.core.messages import OpaquePart, Part, ThoughtPart
from acp_agent.core.ports import ModelRequest


def thoughts(request: ModelRequest, *, opaque: bool) -> frozenset[str]:
    """Digests of the thoughts in a request; with `opaque` of all else that only its maker understands, too."""
    parts = (part for message in request.messages for part in message.parts)
    return frozenset(
        _digest(part) for part in parts if isinstance(part, ThoughtPart) or (opaque and isinstance(part, OpaquePart))
    )


def without_thoughts(request: ModelRequest, unwanted: Container[str]) -> ModelRequest:
    """The same request without what is unwanted of that."""
    messages = (
        replace(message, parts=tuple(part for part in message.parts if not _unwanted(part, unwanted)))
        for message in request.messages
    )
    return replace(request, messages=tuple(messages))


def _unwanted(part: Part, unwanted: Container[str]) -> bool:
    return isinstance(part, ThoughtPart | OpaquePart) and _digest(part) in unwanted


def _digest(part: ThoughtPart | OpaquePart) -> str:
    kept = json.dumps(part.opaque if isinstance(part, ThoughtPart) else part.payload)
    return hashlib.sha256(kept.encode("utf-8", "replace")).hexdigest()
