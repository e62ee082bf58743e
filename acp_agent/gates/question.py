"""Build the question that the user is asked about a call, so that it shows everything a yes allows."""

import json
import re
import shlex
import unicodedata
from collections.abc import Iterator, Sequence

from acp_agent.core.ports import Invocation, Question
from acp_agent.core.types import Diff, Json, Phase, ToolCall
from acp_agent.gates.gate import CallFacts
from acp_agent.gates.shell.command import Opaque, Plain, ShellText
from acp_agent.gates.shell.options import tables
from acp_agent.text import BLANK, some_of

_ASCII = re.compile(r"[\t\n\r -~]*")
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_ORDINARY = frozenset("\t\n")
_PRESENTATION = frozenset("\ufe0e\ufe0f")  # the variation selectors that draw the previous symbol as text or emoji
_JOINER = "\u200d"  # joins two emojis into one
_MOST_LINES = 5
_MOST_CHARACTERS = 10


def unseen(diffs: Sequence[Diff]) -> Iterator[str]:
    """Yield a warning for each diff whose new lines have characters that cannot be seen, with the lines' numbers."""
    for diff in diffs:
        found = _found(diff)
        if not found:
            continue
        told = [f"{_named(char)} at {_lines(numbers)}" for char, numbers in list(found.items())[:_MOST_CHARACTERS]]
        if len(found) > _MOST_CHARACTERS:
            told.append(f"and {len(found) - _MOST_CHARACTERS} more kinds")
        yield f"WARNING: the new text holds characters that cannot be seen: {'; '.join(told)}"


def _found(diff: Diff) -> dict[str, list[int]]:
    """Return the unseen characters of new lines, and the numbers of their lines from 1."""
    if _ASCII.fullmatch(diff.new_text) and "\r" not in diff.new_text.replace("\r\n", ""):
        return {}
    old = frozenset((diff.old_text or "").split("\n"))
    found: dict[str, list[int]] = {}
    for number, line in enumerate(diff.new_text.split("\n"), start=1):
        if line in old:
            continue
        for char in dict.fromkeys(_unseen_in(line.removesuffix("\r"))):
            found.setdefault(char, []).append(number)
    return found


def _unseen_in(line: str) -> Iterator[str]:
    if line.isascii() and line.isprintable():
        return
    for index, char in enumerate(line):
        if char in _ORDINARY or not (unicodedata.category(char) in _HIDDEN or BLANK.match(char)):
            continue
        before, after = line[index - 1 : index] if index else "", line[index + 1 : index + 2]
        if char in _PRESENTATION and _is_symbol(before):
            continue
        if char == _JOINER and (_is_symbol(before) or before in _PRESENTATION) and _is_symbol(after):
            continue
        yield char


def _is_symbol(char: str) -> bool:
    """Return whether a character is an emoji or a symbol that a variation selector may follow."""
    return bool(char) and (char in "#*0123456789" or unicodedata.category(char) in ("So", "Sk", "Sm", "Po"))


def _named(char: str) -> str:
    name = unicodedata.name(char, "").lower()
    return f"U+{ord(char):04X} ({name})" if name else f"U+{ord(char):04X}"


def _lines(numbers: Sequence[int]) -> str:
    return f"{'line' if len(numbers) == 1 else 'lines'} {some_of([*map(str, numbers)], _MOST_LINES)}"


MAX_TITLE = 1200
"""The most characters of a title. A longer one is cut to head, tail and length; the question's text has all of it."""

_HEAD, _TAIL = 800, 300
_MAX_LINES = 8
_ESCAPED = re.compile(r"\\(?:([bfnrt]|u[0-9a-f]{4})|.)")  # escapes of JSON
_SHOWN = {"\n": "⏎", "\t": "⇥"}


def visible(text: str) -> str:
    """Return a text with every character visible: control, bidi and zero-width ones as `<U+202E>`, line ends as ⏎."""
    return text if text.isascii() and text.isprintable() else "".join(_visible(char) for char in text)


def _visible(char: str) -> str:
    if char in _SHOWN:
        return _SHOWN[char]
    hidden = unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    odd_blank = (char != " " and unicodedata.category(char) == "Zs") or BLANK.match(char)
    return f"<U+{ord(char):04X}>" if hidden or odd_blank else char


def clipped(text: str) -> str:
    """Return a visible text. A long one is cut to head and tail, because either end may be dangerous."""
    shown = visible(text)
    if len(shown) <= MAX_TITLE:
        return shown
    return f"{shown[:_HEAD]} […{len(text):,} characters in all…] {shown[-_TAIL:]}"


def visible_lines(text: str) -> str:
    """Return a text as `visible` shows it, but with its line ends."""
    return "\n".join(map(visible, text.split("\n")))


def build(facts: CallFacts, reasons: tuple[str, ...], always: str) -> Question:
    """Return the question about a call. It shows everything that would run, be sent or be written.

    Its title is the command itself, else what the call does, else the call's title.

    always   what "always" would cover, in words; empty if it covers only this call
    """
    invocation, line = facts.invocation, facts.command
    command = None if line is None else line.text
    title = (invocation.summary or invocation.title) if command is None else command
    details = () if line is None else _details(line)
    places = [location.path for location in invocation.locations]
    paths = [subject.path for subject in facts.paths]
    said = [f'its server says: "{invocation.spec.description}"'] if invocation.spec.server else []
    if command is not None and invocation.summary:
        said.append(invocation.summary)
    lines = [*map(visible, (*_who(invocation.call), *reasons)), *map(clipped, details), *map(visible, said)]
    arguments = invocation.call.arguments
    return Question(
        call_id=invocation.call.id,
        title=clipped(title),
        kind=invocation.spec.kind,
        raw_input=arguments if arguments is not None else {"arguments": invocation.call.raw_arguments},
        reasons=tuple(dict.fromkeys((*lines, *unseen(invocation.diffs)))),
        always=visible(always) or "exactly this text in this folder",
        diffs=invocation.diffs,
        locations=tuple(dict.fromkeys(places or paths)),
        command="" if command is None else visible_lines(command),
        text=_whole(invocation, clipped(title)) if command is None else "",
    )


def _who(call: ToolCall) -> tuple[str, ...]:
    """Return who makes the call, if it is not the session's own model."""
    if call.agent is not None:
        return (f"{call.agent.name} (sub-agent {call.agent.id}) asks",)
    return ("a check that you have configured asks, since files changed",) if call.phase is Phase.VERIFIER else ()


def _details(line: ShellText) -> list[str]:
    lines: list[str] = []
    shells, interpreter = tables().shells, tables().interpreter
    code = sorted({each.name for each in line.survey.walk() if each.name in shells or interpreter(each.name)})
    if code:
        lines.append(f"WARNING: {', '.join(code)} runs code of its own; read the whole text")
    analysis = line.analysis
    if isinstance(analysis, Plain) and [shlex.join(each.argv) for each in analysis.commands] != [line.text]:
        for each in analysis.commands[:_MAX_LINES]:
            words = [*each.assignments, shlex.join(each.argv), *map(str, each.redirections)]
            lines.append(f"runs: {' '.join(filter(None, words))}")
        if len(analysis.commands) > _MAX_LINES:
            lines.append(f"runs {len(analysis.commands) - _MAX_LINES} more commands")
    if isinstance(analysis, Opaque):  # for example a loop, a condition or a substitution: the commands in it
        inside = [*dict.fromkeys(shlex.join(each.argv) for each in line.commands if each.argv)]
        lines += [f"may run: {each}" for each in inside[:_MAX_LINES]]
        if len(inside) > _MAX_LINES:
            lines.append(f"may run {len(inside) - _MAX_LINES} more commands")
    return lines


def _whole(invocation: Invocation, title: str) -> str:
    """Return the parts of the call that neither the title nor the diffs show."""
    arguments = invocation.call.arguments
    if arguments is None or invocation.spec.server:
        return visible(_written_out(arguments)) if arguments else ""
    shown = [title, *(part for diff in invocation.diffs for part in (diff.path, diff.old_text or "", diff.new_text))]
    if invocation.diffs:  # the diff shows what the other arguments write
        arguments = {name: value for name, value in arguments.items() if name == "path"}
    hidden = {name: value for name, value in arguments.items() if not _is_shown(value, shown)}
    return "\n".join(
        f"{visible(name)}: {visible_lines(value) if isinstance(value, str) else visible(_written_out(value))}"
        for name, value in hidden.items()
    )


def _is_shown(value: Json, shown: Sequence[str]) -> bool:
    """Return whether the question already shows an argument. Numbers and booleans need not be shown."""
    match value:
        case str():
            whole = re.compile(rf"(?<!\w){re.escape(visible(value))}(?!\w)")
            return any(whole.search(text) for text in shown)
        case list():
            return all(_is_shown(each, shown) for each in value)
        case dict():
            return all(_is_shown(each, shown) for each in value.values())
        case _:
            return True


def _written_out(value: Json) -> str:
    """Return JSON with its escapes resolved, so that several lines do not read as one."""
    written = json.dumps(value, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: json.loads(f'"{found[0]}"') if found[1] else found[0], written)
