"""The marks we speak to models in: whoever opens or closes one in a text of others could pass for us.

Fences with ids keep what is data apart by themselves. What is taken over from a model, a page or a repository is
defanged besides, for readers who do not compare ids.
"""

import re

TAGS = ("tool-output", "external-data", "user-notes", "project-notes", "tools", "knowledge", "conversation")
"""`<tag>`: all that prompts of ours are built of."""

ITSELF = "[the agent itself "
"""How a note begins on what the agent has done by itself."""

REFLECTION = "[self_reflection]"
"""The first line of a word on calls that failed again and again."""

_LIKE_OURS = re.compile(
    rf"<(?=\s{{0,16}}/?\s{{0,16}}(?:{'|'.join(TAGS)})\b)|\[(?=\s{{0,16}}/?\s{{0,16}}(?:the\sagent\sitself|self_reflection)\b)",
    re.IGNORECASE,
)
_ESCAPED = {"<": "&lt;", "[": "&#91;"}


def defanged(text: str) -> str:
    """The text, with the first character of whatever looks like one of our marks escaped."""
    return _LIKE_OURS.sub(lambda mark: _ESCAPED[mark[0]], text)
