"""Texts for people and models: made visible, cut to one line, clipped, wrapped, and freed of marks like ours."""

import json
import re
import unicodedata

from acp_agent.core.types import OutputStats

_TITLE_LIMIT = 120
_SCAN_LIMIT = 2000  # characters: a title needs no more of a command of ten megabytes
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # controls, bidi and zero-width, surrogates, separators
_BLANK_LETTERS = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
BLANK = re.compile(f"[{_BLANK_LETTERS}\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Letters, marks and symbols that are drawn as nothing, although their Unicode categories do not tell.

These are the ones of Default_Ignorable_Code_Point in Unicode's DerivedCoreProperties, and the blank Braille pattern.
"""
_BLANK = frozenset(_BLANK_LETTERS)  # without variation selectors, which belong to the symbol before them
_LINE_END = re.compile(r"\s*[\r\n]+\s*")


def visible(text: str) -> str:
    """Return the text with every control, invisible or direction-changing character as its JSON escape.

    A model that copies the JSON escape into its next call names the same character again.
    """
    if text.isprintable() and _BLANK.isdisjoint(text):
        return text
    return "".join(
        json.dumps(char)[1:-1] if char in _BLANK or unicodedata.category(char) in _HIDDEN else char for char in text
    )


def title(text: str) -> str:
    """Return one line of at most 120 characters. Line ends become a visible sign and not a blank.

    With a blank, two commands would look like one with more arguments.
    """
    text = text.strip()
    flat = visible(_LINE_END.sub(" ⏎ ", text[:_SCAN_LIMIT]).replace("\t", " "))
    if len(flat) <= _TITLE_LIMIT and len(text) <= _SCAN_LIMIT:
        return flat
    return f"{flat[:_TITLE_LIMIT]}…"


# ----------------------------------------------------------------------------------- cutting

SMALLEST_LIMIT = 256
_RESERVED = 128  # room for the marker line, whatever the numbers in it
_SNAP = 8  # a cut moves to a line end if that costs at most this part (1/8) of the half


def clip(text: str, limit: int) -> str:
    """Return `text` if it has at most `limit` characters, else its head, a marker line and its tail.

    The cuts fall on line ends if one is near. Raises ValueError for a limit under 256.
    """
    if limit < SMALLEST_LIMIT:
        raise ValueError(f"limit = {limit}: expected at least {SMALLEST_LIMIT} characters")
    if len(text) <= limit:
        return text
    half = (limit - _RESERVED) // 2
    head = text[: text.rfind("\n", half - half // _SNAP, half) + 1 or half]
    start = len(text) - half
    line_end = text.find("\n", start - 1, start + half // _SNAP)
    tail = text[line_end + 1 if line_end >= 0 else start :]
    left_out = len(text) - len(head) - len(tail)
    marker = f"[{left_out:,} characters left out here]"
    before = "" if head.endswith("\n") else "\n"
    return f"{head}{before}{marker}\n{tail}"


def lines_left_out(count: int, what: str = "") -> str:
    """Return the note that stands for lines which a reader does not get: `[12 lines left out]`."""
    return f"[{count:,} {what}line{'' if count == 1 else 's'} left out]"


def shortened_line(line: str, limit: int) -> str:
    """Return a line of at most about `limit` characters, with a note where its middle was."""
    if len(line) <= limit:
        return line
    tail = limit // 5
    return f"{line[: limit - tail]} [{len(line) - limit:,} characters left out here] {line[-tail:]}"


def lines_of(text: str) -> int:
    """Return the number of lines. The last line counts even without a line feed."""
    return text.count("\n") + (text != "" and not text.endswith("\n"))


def measure(raw: str, shown: str) -> OutputStats:
    """Return the lines and characters of `raw` and of what is shown of it."""
    return OutputStats(raw_lines=lines_of(raw), shown_lines=lines_of(shown), raw_chars=len(raw), shown_chars=len(shown))


CONTINUED = "↪ "
"""The beginning of a continued line. No line of a wrapped text may begin with it otherwise."""

_TO_LAST_BLANK = re.compile(r".*\s", re.DOTALL)
_TO_WORD_END = re.compile(r".*[^\w]", re.DOTALL)


def wrap_line(line: str, width: int) -> list[str]:
    """Return the pieces of a line, each of at most `width` characters. Words are broken only if they are longer."""
    found: list[str] = []
    start, half = 0, width // 2
    while len(line) - start > width:
        late = line[start + half : start + width]
        break_ = _TO_LAST_BLANK.match(late) or _TO_WORD_END.match(late)
        end = start + (half + break_.end() if break_ else width)
        found.append(line[start:end])
        start = end
    return [*found, line[start:]]


# ------------------------------------------------------------------------ the marks of our prompts

TAGS = ("tool-output", "external-data", "user-notes", "project-notes", "workspace", "knowledge", "conversation")
"""The names of all tags that our prompts are built of: `<tag>`."""

ITSELF = "[the agent itself "
"""The beginning of a note about something that the agent did by itself."""

REFLECTION = "[self_reflection]"
"""The first line of a note about calls that failed again and again."""

_LIKE_OURS = re.compile(
    rf"<(?=\s{{0,16}}/?\s{{0,16}}(?:{'|'.join(TAGS)})\b)|\[(?=\s{{0,16}}/?\s{{0,16}}(?:the\sagent\sitself|self_reflection)\b)",
    re.IGNORECASE,
)
_ESCAPED = {"<": "&lt;", "[": "&#91;"}


def defanged(text: str) -> str:
    """Return the text with the first character of everything that looks like one of our marks escaped.

    A text of a model, a page or a repository that opens or closes such a mark could pass for ours. Fences have ids that
    keep data apart; this is for readers that do not compare the ids.
    """
    return _LIKE_OURS.sub(lambda mark: _ESCAPED[mark[0]], text)
