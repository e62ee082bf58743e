"""A message of the model's conversation, as a row of the store and back (core.messages.Message)."""

from acp_agent.core.messages import Message
from acp_agent.store.record_json import dumped, loaded, read, written


def message_row(message: Message) -> tuple[str, bytes]:
    """Its role and the JSON of its parts. Raises StoreUnavailable for what is no JSON."""
    return message.role.value, dumped(written(message.parts))


def message_of(role: object, body: object) -> Message:
    """The message of a row. Raises ValueError for one that is damaged, or has parts this version does not know."""
    return read(Message, {"role": role, "parts": loaded(body)})
