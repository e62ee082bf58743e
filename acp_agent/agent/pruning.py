"""Which old tool outputs give way to one line each, so that the conversation gets shorter without a model (L11)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from acp_agent.agent.tokens import part_tokens
from acp_agent.core.messages import Message, Role, ToolResultPart
from acp_agent.core.overflow import PREFIX

_WORTH_IT = 100  # tokens an output must have to be cleared
_REFERENCE = re.compile(rf"{PREFIX}[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Pruning:
    """What to put in the place of which results, by id, and the tokens this frees by our estimate."""

    stubs: dict[str, ToolResultPart] = field(default_factory=dict[str, ToolResultPart])
    freed: int = 0


def pruning(messages: Sequence[Message], wanted: float, *, kept_rounds: int) -> Pruning:
    """Clear outputs, the oldest first, until `wanted` tokens are free. Those of the last `kept_rounds` rounds stay.

    A cleared output keeps its id and whether it was an error, so it answers its call as before.
    """
    names = {use.id: use.name for message in messages if message.role is Role.ASSISTANT for use in message.tool_uses}
    stubs: dict[str, ToolResultPart] = {}
    freed = 0
    for message in _old(messages, kept_rounds):
        for part in message.parts:
            if freed >= wanted:
                return Pruning(stubs, freed)
            if isinstance(part, ToolResultPart) and (tokens := part_tokens(part)) >= _WORTH_IT:
                stubs[part.id] = ToolResultPart(part.id, _stub(names[part.id], part), part.is_error)
                freed += tokens - part_tokens(stubs[part.id])
    return Pruning(stubs, freed)


def _old(messages: Sequence[Message], kept_rounds: int) -> Sequence[Message]:
    """Messages with results, without the newest."""
    rounds = [message for message in messages if isinstance(message.parts[0], ToolResultPart)]  # results stand first
    return rounds[: len(rounds) - kept_rounds] if len(rounds) > kept_rounds else ()


def _stub(name: str, part: ToolResultPart) -> str:
    pictures = f" and {len(part.images)} images" if part.images else ""
    references = _REFERENCE.findall(part.text)
    again = (
        f"The whole output is {references[-1]}: read_overflow reads or searches it."  # ours stands at the end
        if references
        else "If it is still needed, make the call again."
    )
    return f"[The output of {name} was cleared to save room: {len(part.text):,} characters{pictures}. {again}]"
