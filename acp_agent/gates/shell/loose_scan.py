"""Other spellings of a text that a shell, an editor's terminal or a careless reader may take it for (S1.4, S1.13)."""

import re
import unicodedata

from acp_agent.gates.shell.words import expand_braces

_DESCRIPTOR = re.compile(r"\{\w+\}(?=[<>])")
_LONE_DOLLAR = re.compile(r"\$(?=\s)")
_CONTINUATION = re.compile(r"\\\r?\n")
_NEEDLESS = re.compile(r"\\([A-Za-z0-9_./-])")
_SINGLE_QUOTED = re.compile(r"\\.|'[^']*'", re.DOTALL)
_CONSTRUCT = re.compile(r"\$\((?!\()|`|[<>]\(|<<<")
_SEGMENT = re.compile(r"&&|\|\||[;&|\n()`]")
_LIST = re.compile(r"\{[^{}\n]*\}")
_NOISE = re.compile(r"[\"'\\{}<>]|\$(?=[\"'])")

_LONGEST = 16 * 1024  # characters of a word whose braces are expanded
_LINES = {"\r": "\n", "\x0b": "\n", "\x0c": "\n", "\x85": "\n", "\u2028": "\n", "\u2029": "\n"}


def normalised(text: str) -> str:
    """NFKC, invisible and control characters gone, other line ends as LF, line continuations joined."""
    text = "".join(_shown(char) for char in unicodedata.normalize("NFKC", text))
    return _CONTINUATION.sub("", text)


def _shown(char: str) -> str:
    if char in _LINES:
        return _LINES[char]
    category = unicodedata.category(char)
    if category == "Cc" and char not in "\n\t":
        return ""
    if category == "Zs":
        return " "
    return "" if category in ("Cf", "Cn", "Cs") else char


def spellings(text: str) -> tuple[str, ...]:
    """The text and, where they differ, its normalised form and that without needless backslashes."""
    found = [text]
    clean = text if text.isascii() and text.isprintable() else normalised(text)
    # tree-sitter knows neither <>, which opens a file to read and write, nor {name}>, which names a descriptor, and
    # takes a lone $ and the word on the next line for a variable.
    strange = _LONE_DOLLAR.sub("", _DESCRIPTOR.sub("", clean)).replace("<>", ">")
    for form in (clean, _NEEDLESS.sub(r"\1", clean), strange):
        if form not in found:
            found.append(form)
    return tuple(found)


def loose_constructs(text: str) -> bool:
    """Whether a text no tree could be made of has a substitution outside single quotes."""
    return _CONSTRUCT.search(_SINGLE_QUOTED.sub("", text)) is not None


def loose_segments(text: str) -> list[tuple[str, ...]]:
    """A text no tree could be made of, cut at every separator, quotes and braces ignored."""
    spread = _LIST.sub(lambda match: match[0].replace(",", " "), text)
    expanded = (
        " ".join(expand_braces(word)) if "{" in word and len(word) < _LONGEST else word
        for word in re.split(r"(\s+)", text)
    )
    forms = dict.fromkeys((spread, "".join(expanded))) if "{" in text else (spread,)
    pieces = (_NOISE.sub(_gap, segment).split() for form in forms for segment in _SEGMENT.split(form))
    return [tuple(words) for words in pieces if words]


def _gap(match: re.Match[str]) -> str:
    return " " if match[0] in "{}<>" else ""
