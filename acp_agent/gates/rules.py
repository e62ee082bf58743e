"""Ordered permission rules: a glob and an action, first match wins (requirements S3.1).

`*` matches any text without a newline, `?` one character, `[abc]`, `[a-z]` and `[!a]` one of a set; a backslash
takes the next character as it is. Where a rule denies or asks, a newline counts as a blank: it hides nothing. In
command patterns a `*` at the end respects words: `git *` matches `git` and
`git status`, `git status*` matches `git status -s` but not `git statusx`.

Case does not matter when a rule denies or asks. An allowing rule keeps the case of paths and of options, so that
`git branch -d *` does not allow `-D`.
"""

from dataclasses import dataclass
from enum import StrEnum

from acp_agent.core.errors import ConfigError

INNER_BLANK = "\x1f"
"""Stands for a blank inside one word when a rule allows, so that `git log *` does not match `git "log x"`."""

_STAR, _ANY = "star", "any"


class Action(StrEnum):
    """What a rule says."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


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


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of one tool. Made by `parse`.

    text      globs for paths, URLs and arguments
    command   globs for commands; those of an allow rule keep the case of options
    literal   the words before the first wildcard: what the rule names outright
    """

    pattern: str
    action: Action
    text: tuple[Glob, ...]
    command: tuple[Glob, ...]
    literal: tuple[str, ...]

    @classmethod
    def parse(cls, pattern: str, action: Action, where: str = "rule") -> "Rule":
        """Compile a rule. Raises ConfigError naming `where`, the pattern and what is wrong with it."""
        allow = action is Action.ALLOW
        try:
            compared = pattern if allow else _one_line(pattern)
            text = (Glob.parse(compared if allow else compared.casefold()),)
            command = tuple(Glob.parse(folded(each, options=not allow)) for each in _ends(compared, strict=allow))
        except ValueError as error:
            raise ConfigError(where, "pattern", pattern, f"a glob: {error}") from None
        return cls(pattern, action, text, command, _literal(pattern))

    def matches_text(self, text: str) -> bool:
        """Whether a path, URL or argument text matches."""
        compared = text if self.action is Action.ALLOW else _one_line(text.casefold())
        return any(glob.matches(compared) for glob in self.text)

    def matches_command(self, canonical: str) -> bool:
        """Whether a command's canonical text matches."""
        allows = self.action is Action.ALLOW
        text = folded(canonical, options=not allows)
        text = text if allows else _one_line(text)
        return any(glob.matches(text) for glob in self.command)

    @property
    def everything(self) -> bool:
        """Whether the rule matches whatever the tool is given."""
        return self.pattern == "*"


def _ends(pattern: str, *, strict: bool) -> list[str]:
    """The patterns a command pattern stands for, given what a `*` at its end means."""
    if not pattern.endswith("*") or pattern.endswith("\\*") or pattern == "*":
        return [pattern]
    stem = pattern[:-1]
    if stem.endswith(" "):
        return [stem.rstrip(" "), pattern]
    if stem[-1].isalnum() or stem[-1] == "_":
        bounded = [stem, f"{stem} *"]
        return bounded if strict else [*bounded, pattern]
    return [pattern]


def _literal(pattern: str) -> tuple[str, ...]:
    words: list[str] = []
    for word in pattern.split(" "):
        start = min((word.find(char) for char in "*?[" if char in word), default=-1)
        if start >= 0:
            words += [word[:start]] if start else []
            break
        words.append(word)
    return tuple(word.casefold() if not word.startswith("-") else word for word in words if word)


def folded(text: str, *, options: bool) -> str:
    """A command text without its case; that of options only when asked."""
    if options:
        return text.casefold()
    return " ".join(word if word.startswith("-") else word.casefold() for word in text.split(" "))


def _one_line(text: str) -> str:
    """A text in which no newline hides what follows from a rule that denies or asks."""
    return text.replace("\n", " ")


def denied_outright(rules: tuple[Rule, ...]) -> bool:
    """Whether rules deny a whole tool, so that it leaves the catalogue (S3.2): `*` denied, nothing before it."""
    for rule in rules:
        if rule.action is not Action.DENY:
            return False
        if rule.everything:
            return True
    return False
