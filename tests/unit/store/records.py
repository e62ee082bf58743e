"""Any event, message and state there can be, for tests of what is kept of them."""

from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import get_args, get_origin

from hypothesis import strategies as st

from acp_agent.core.events import TranscriptEvent
from acp_agent.core.messages import Message

TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
"""Half surrogate pairs, zeros and all."""
_NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)
_PLAIN = {str: TEXTS, int: st.integers(), bool: st.booleans(), float: _NUMBERS, NoneType: st.none()}


def any_of(hint) -> st.SearchStrategy:
    """Values of an annotation: of each member of each class any that fits, so that new members are tried, too."""
    kinds = get_args(hint)
    if isinstance(hint, UnionType):
        return st.one_of(*map(any_of, kinds))
    if get_origin(hint) is tuple:
        return st.lists(any_of(kinds[0]), max_size=2).map(tuple)
    if get_origin(hint) is dict:
        return st.dictionaries(TEXTS, JSON, max_size=3)
    if is_dataclass(hint):
        return st.builds(hint, **{each.name: any_of(each.type) for each in fields(hint)})
    return st.sampled_from(hint) if issubclass(hint, Enum) else _PLAIN[hint]


EVENTS = any_of(TranscriptEvent)
MESSAGES = any_of(Message)
