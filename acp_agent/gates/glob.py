"""Globs over text in which a `*` does not cross lines (requirements S3.1)."""

from dataclasses import dataclass

from acp_agent.linear_regex import LinearRegex

_CHARACTER = "[^\\n]"
_NOT = "^\\n"


@dataclass(frozen=True, slots=True)
class Glob:
    """A compiled pattern: `*`, `?`, `[a-z]`, `[!a]`, and a backslash before what is meant literally.

    Matching takes time proportional to the text, whatever the pattern: a project's file may bring it.
    """

    regex: LinearRegex

    @classmethod
    def parse(cls, pattern: str) -> "Glob":
        """Compile. Raises ValueError with the reason."""
        pieces: list[str] = []
        index = 0
        while index < len(pattern):
            char = pattern[index]
            index += 1
            match char:
                case "*":
                    if not pieces or pieces[-1] != f"{_CHARACTER}*":
                        pieces.append(f"{_CHARACTER}*")
                case "?":
                    pieces.append(_CHARACTER)
                case "[":
                    piece, index = _set(pattern, index)
                    pieces.append(piece)
                case "\\":
                    if index == len(pattern):
                        raise ValueError("a backslash at the end escapes nothing")
                    pieces.append(_literal(pattern[index]))
                    index += 1
                case _:
                    pieces.append(_literal(char))
        return cls(LinearRegex("".join(pieces)))

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        return self.regex.matches(text)


def _literal(char: str) -> str:
    return char if char.isalnum() or char == "_" else f"\\x{{{ord(char):x}}}"


def _set(pattern: str, index: int) -> tuple[str, int]:
    """A set from behind its `[`; gives the expression and the position behind its `]`."""
    end = pattern.find("]", index + (2 if pattern[index : index + 1] in ("!", "^") else 1))
    if end < 0:
        raise ValueError("a [ without its ]")
    negated = pattern[index] in "!^"
    body = pattern[index + negated : end]
    members: list[str] = []
    at = 0
    while at < len(body):
        if body[at + 1 : at + 2] == "-" and at + 2 < len(body):
            if body[at] > body[at + 2]:
                raise ValueError(f"the range {body[at : at + 3]} is empty")
            members.append(f"{_literal(body[at])}-{_literal(body[at + 2])}")
            at += 3
        else:
            members.append(_literal(body[at]))
            at += 1
    return f"[{_NOT if negated else ''}{''.join(members)}]", end + 1
