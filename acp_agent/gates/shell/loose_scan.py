"""Other spellings of a text, as a shell or a terminal may read it, and a loose reading of texts without a tree."""

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

_LONGEST = 16 * 1024  # the most characters of a word whose braces are expanded
_LINES = {"\r": "\n", "\x0b": "\n", "\x0c": "\n", "\x85": "\n", "\u2028": "\n", "\u2029": "\n"}


def normalised(text: str) -> str:
    """Return the text in NFKC without invisible and control characters, with LF for line ends and joined lines."""
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
    """Return the text and, if they differ, its normalised form and that without needless backslashes."""
    found = [text]
    clean = text if text.isascii() and text.isprintable() else normalised(text)
    """Return the text in NFKC without invisible and control characters, with LF for line ends and lines joined."""
    # a lone $ and the word on the next line for a variable.
    strange = _LONE_DOLLAR.sub("", _DESCRIPTOR.sub("", clean)).replace("<>", ">")
    for form in (clean, _NEEDLESS.sub(r"\1", clean), strange):
        if form not in found:
            found.append(form)
    return tuple(found)


def loose_constructs(text: str) -> bool:
    """Return whether a damaged text has a substitution outside single quotes."""
    return _CONSTRUCT.search(_SINGLE_QUOTED.sub("", text)) is not None


def loose_segments(text: str) -> list[tuple[str, ...]]:
    """Return the words of a damaged text, cut at every separator. Quotes and braces are ignored."""
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
