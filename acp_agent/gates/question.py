"""The one question the user is asked about a call (requirements A20, threat 10 of security.md)."""

import json
import re
import shlex
import unicodedata

from acp_agent.core.ports import Invocation, Question
from acp_agent.core.types import CommandSubject, PathSubject
from acp_agent.gates.command import Command, Plain, analyse, survey
from acp_agent.gates.shell.tables import tables

MAX_TITLE = 1200
"""Characters of a command that are shown; of a longer one head and tail are, with its length."""

_HEAD, _TAIL = 800, 300
_MAX_LINES = 8
_ESCAPED = re.compile(r"\\(?:([bfnrt]|u[0-9a-f]{4})|.)")  # of JSON; shown as what it is, lest it read as one line
_SHOWN = {"\n": "⏎", "\t": "⇥"}
# Letters, marks and symbols that show nothing: Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties, as far
# as categories do not tell, and the blank Braille pattern.
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def visible(text: str) -> str:
    """A text with every character seen: control, bidi and zero-width ones as `<U+202E>`, line ends as ⏎."""
    return "".join(_visible(char) for char in text)


def _visible(char: str) -> str:
    if char in _SHOWN:
        return _SHOWN[char]
    hidden = unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    odd_blank = (char != " " and unicodedata.category(char) == "Zs") or _BLANK.match(char)
    return f"<U+{ord(char):04X}>" if hidden or odd_blank else char


def clipped(text: str) -> str:
    """A visible text, of a long one head and tail: what is dangerous may stand at either end."""
    shown = visible(text)
    if len(shown) <= MAX_TITLE:
        return shown
    return f"{shown[:_HEAD]} […{len(text):,} characters in all…] {shown[-_TAIL:]}"


def build(invocation: Invocation, reasons: tuple[str, ...], always: str, digest: str) -> Question:
    """The question about a call: its title is the command itself, else what the call does, else the call's title.

    always   what "always" would cover, in words; empty when it binds to exactly this call, whose digest is shown
    """
    command = next((subject.command for subject in invocation.subjects if isinstance(subject, CommandSubject)), None)
    title = (invocation.deed or invocation.title) if command is None else command
    lines = [*reasons, *(_details(command) if command is not None else ()), *_agreed_to(invocation)]
    arguments = invocation.call.arguments
    return Question(
        call_id=invocation.call.id,
        title=clipped(title),
        kind=invocation.spec.kind,
        raw_input=arguments if arguments is not None else {"arguments": invocation.call.raw_arguments},
        reasons=tuple(dict.fromkeys(clipped(line) for line in lines)),
        always=visible(always) or f"exactly this text in this folder, sha256 {digest[:16]}",
        diffs=invocation.diffs,
        locations=_locations(invocation),
    )


def _details(command: str) -> list[str]:
    lines: list[str] = []
    code = sorted({each.name for each in survey(command).walk() if runs_code(each)})
    if code:
        lines.append(f"WARNING: {', '.join(code)} runs code of its own; read the whole text")
    analysis = analyse(command)
    if isinstance(analysis, Plain) and [shlex.join(each.argv) for each in analysis.commands] != [command]:
        lines += [f"runs: {_argv(each)}" for each in analysis.commands[:_MAX_LINES]]
        if len(analysis.commands) > _MAX_LINES:
            lines.append(f"runs {len(analysis.commands) - _MAX_LINES} more commands")
    return lines


def _agreed_to(invocation: Invocation) -> list[str]:
    """What a yes to a tool of a server is a yes to; nothing else of the question says it."""
    if not invocation.spec.server:
        return []
    arguments = json.dumps(invocation.call.arguments, ensure_ascii=False)
    written = _ESCAPED.sub(lambda found: json.loads(f'"{found[0]}"') if found[1] else found[0], arguments)
    return [f"arguments: {written}", f'its server says: "{invocation.spec.description}"']


def _argv(command: Command) -> str:
    parts = [*command.assignments, shlex.join(command.argv), *map(str, command.redirections)]
    return " ".join(part for part in parts if part)


def runs_code(command: Command) -> bool:
    """Whether a command is a shell or an interpreter: its arguments are a program."""
    return command.name in tables().shells or bool(tables().interpreter(command.name))


def _locations(invocation: Invocation) -> tuple[str, ...]:
    paths = [location.path for location in invocation.locations]
    paths += [subject.path for subject in invocation.subjects if isinstance(subject, PathSubject) and not paths]
    return tuple(dict.fromkeys(paths))
