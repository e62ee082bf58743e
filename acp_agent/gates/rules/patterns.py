"""The patterns of rules: globs over text, and patterns of commands whose options may stand anywhere."""

import re
from collections.abc import Iterator

from acp_agent.core.data import frozen
from acp_agent.regex import LinearRegex

_CHARACTER = "[^\\n]"
_NOT = "^\\n"


def compile_glob(pattern: str) -> LinearRegex:
    """Compile a glob: `*`, `?`, `[a-z]`, `[!a]`, and a backslash before a literal character. `*` crosses no lines.

    Matching takes time linear in the text, whatever the pattern is: it may come from a project's file.
    Raises ValueError with the reason.
    """
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
    return LinearRegex("".join(pieces))


def _literal(char: str) -> str:
    return f"\\x{{{ord(char):x}}}"


def _set(pattern: str, index: int) -> tuple[str, int]:
    """Parse a set from behind its `[`. Return its expression and the position behind its `]`."""
    end = pattern.find("]", index + (2 if pattern[index : index + 1] in ("!", "^") else 1))
    if end == -1:
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


_WILD = re.compile(r"[*?\[\\]")
_BUNDLE = re.compile(r"-([a-z0-9]{1,4})\*?")


def one_line(text: str) -> str:
    """Return a text with blanks for newlines, so that a rule that denies or asks sees all of it."""
    return text.replace("\n", " ")


@frozen
class Call:
    """The words of one command as rules read them. All but `text` are in lower case, without line ends.

    text       the words as they are, joined
    options    the words in front of `--` that begin with a dash, each with the word behind it
    letters    the letters of its short options
    """

    text: str
    name: str
    options: tuple[tuple[str, str], ...]
    letters: frozenset[str]
    operands: tuple[str, ...]

    @classmethod
    def of(cls, words: tuple[str, ...]) -> "Call":
        """Return the call of a program, which is the first of the words."""
        folded_words = [one_line(word.casefold()) for word in words]
        end = folded_words.index("--") if "--" in folded_words else len(folded_words)
        before = range(1, end)
        options = tuple(
            (folded_words[at], folded_words[at + 1] if at + 1 < len(words) else "")
            for at in (*before, *([end] if end < len(words) else ()))
            if folded_words[at].startswith("-") and folded_words[at] != "-"
        )
        short = (option[1:] for option, _ in options if not option.startswith("--"))
        operands = [
            folded_words[at] for at in before if not folded_words[at].startswith("-") or folded_words[at] == "-"
        ]
        return cls(
            text=" ".join(words),
            name=folded_words[0],
            options=options,
            letters=frozenset(letter for letters in short for letter in letters),
            operands=(*operands, *folded_words[end + 1 :]),
        )


@frozen
class _Word:
    """One word of a pattern; `stem` is its text in front of the first wildcard."""

    pattern: str
    stem: str
    glob: LinearRegex

    @classmethod
    def parse(cls, pattern: str) -> "_Word":
        """Compile a word. Raises ValueError."""
        wild = _WILD.search(pattern)
        return cls(pattern, pattern[: wild.start()] if wild else pattern, compile_glob(pattern))

    def matches(self, word: str) -> bool:
        return word.startswith(self.stem) and self.glob.matches(word)

    def among(self, call: Call) -> bool:
        """Return whether a call has this option: as written, with its value apart, abbreviated, or in a bundle."""
        bundle = _BUNDLE.fullmatch(self.pattern)
        if bundle and len(set(bundle[1])) == len(bundle[1]) and call.letters.issuperset(bundle[1]):
            return True
        short = "" if "=" in self.stem or not self.stem.startswith("--") else self.stem
        for option, following in call.options:
            name = option.partition("=")[0]
            if self.matches(option) or self.matches(name) or self.matches(f"{option}={following}"):
                return True
            if len(name) > 2 and name.startswith("--") and short.startswith(name):
                return True
        return False


@frozen
class CallPattern:
    """A command pattern whose options may stand anywhere.

    anchored   whether the first operand of a call must be the first one here: `git push*` is not for `git stash push`
    more       whether a call may have more operands
    """

    name: _Word
    options: tuple[_Word, ...]
    operands: tuple[_Word, ...]
    anchored: bool
    more: bool

    @classmethod
    def parse(cls, pattern: str) -> "CallPattern | None":
        """Parse a pattern in lower case. Return None if matching words adds nothing to matching text."""
        words = pattern.split()
        gaps = [word == "*" for word in words]
        options = [word for word in words[1:] if word.startswith("-") and word != "-"]
        more = pattern.endswith("*") or any(gaps[1:])
        if len(words) < 2 or not (options or more):
            return None
        operands = [word for word in words[1:] if word not in options and word != "*"]
        try:
            parts = [tuple(map(_Word.parse, part)) for part in (words[:1], options, operands)]
        except ValueError:  # a set with a blank in it
            return None
        first = words.index(operands[0]) if operands else 0
        return cls(parts[0][0], parts[1], parts[2], anchored=not any(gaps[1:first]), more=more)

    def matches(self, call: Call) -> bool:
        """Return whether a call matches."""
        return (
            self.name.matches(call.name)
            and self._operands(call.operands)
            and all(option.among(call) for option in self.options)
        )

    def _operands(self, given: tuple[str, ...]) -> bool:
        wanted = self.operands
        if not self.more and len(given) != len(wanted):
            return False
        if self.anchored and wanted and not (given and wanted[0].matches(given[0])):
            return False
        rest: Iterator[str] = iter(given)
        return all(any(map(word.matches, rest)) for word in wanted)
