"""Globs over text in which a `*` does not cross lines (requirements S3.1)."""

from dataclasses import dataclass

_STAR, _ANY = "star", "any"


@dataclass(frozen=True, slots=True)
class Glob:
    """A compiled pattern. Matching takes time proportional to pattern times text at worst.

    tokens   ("literal", one character), ("star",), ("any",), ("in" | "not in", characters)
    """

    tokens: tuple[tuple[str, frozenset[str]], ...]

    @classmethod
    def parse(cls, pattern: str) -> "Glob":
        """Compile. Raises ValueError with the reason."""
        tokens: list[tuple[str, frozenset[str]]] = []
        index = 0
        while index < len(pattern):
            char = pattern[index]
            index += 1
            match char:
                case "*":
                    if not tokens or tokens[-1][0] != _STAR:
                        tokens.append((_STAR, frozenset()))
                case "?":
                    tokens.append((_ANY, frozenset()))
                case "[":
                    token, index = _set(pattern, index)
                    tokens.append(token)
                case "\\":
                    if index == len(pattern):
                        raise ValueError("a backslash at the end escapes nothing")
                    tokens.append(("in", frozenset(pattern[index])))
                    index += 1
                case _:
                    tokens.append(("in", frozenset(char)))
        return cls(tuple(tokens))

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        at = token = 0
        star = resume = -1
        while at < len(text):
            if token < len(self.tokens) and self.tokens[token][0] == _STAR:
                star, resume = token, at
                token += 1
            elif token < len(self.tokens) and _fits(self.tokens[token], text[at]):
                at += 1
                token += 1
            elif star >= 0 and text[resume] != "\n":
                resume += 1
                at, token = resume, star + 1
            else:
                return False
        return all(kind == _STAR for kind, _ in self.tokens[token:])


def _fits(token: tuple[str, frozenset[str]], char: str) -> bool:
    kind, chars = token
    match kind:
        case "in":
            return char in chars
        case "not in":
            return char not in chars and char != "\n"
        case _:
            return char != "\n"


def _set(pattern: str, index: int) -> tuple[tuple[str, frozenset[str]], int]:
    """A set from behind its `[`; gives the token and the position behind its `]`."""
    end = pattern.find("]", index + (2 if pattern[index : index + 1] in ("!", "^") else 1))
    if end < 0:
        raise ValueError("a [ without its ]")
    negated = pattern[index] in "!^"
    body = pattern[index + negated : end]
    chars: set[str] = set()
    at = 0
    while at < len(body):
        if body[at + 1 : at + 2] == "-" and at + 2 < len(body):
            first, last = ord(body[at]), ord(body[at + 2])
            if first > last or last - first > 0xFFFF:
                raise ValueError(f"the range {body[at : at + 3]} is empty")
            chars.update(map(chr, range(first, last + 1)))
            at += 3
        else:
            chars.add(body[at])
            at += 1
    return ("not in" if negated else "in", frozenset(chars)), end + 1
