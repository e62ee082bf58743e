"""A tool call as a card that folds: its name, what it was about, how it went and how long it took; inside, all else."""

import json

from acp_agent.cli.page.diff import diff_html
from acp_agent.cli.page.escaped import text
from acp_agent.cli.page.picture import Pictures
from acp_agent.cli.session_story import Call, Outcome, outcome
from acp_agent.cli.session_words import clipped, seconds
from acp_agent.core.events import ToolStarted
from acp_agent.core.types import Json, ToolKind, ToolResult
from acp_agent.output.sanitize import sanitize

_TITLE = 400
_OUTPUT = 24_000
"""Characters of a tool's output that are shown."""
_INPUT = 6_000
_DIFFS = 20
_ARGUMENTS = 100
_SHORT = 14  # lines of output a card is open for
_IN_DIFF = {"path", "content", "old_text", "new_text"}
"""Arguments that a diff shows better."""


def card_html(call: Call, pictures: Pictures, *, brief: bool = False) -> str:
    """The whole card, or its headline where it is to be brief. Open where there is something to look at."""
    result = call.finished.result if call.finished is not None else None
    state, word = outcome(call)
    body, unfolded = ("", False) if brief else _body(call, result, state, pictures)
    took = f"<time>{seconds(call.finished.elapsed)}</time>" if call.finished is not None else ""
    return (
        f'<details class="tool {state.value}"{" open" if unfolded else ""}><summary><i class="dot"></i>'
        f'<span class="name">{text(clipped(call.started.name, 80))}</span> '
        f'<span class="title">{text(clipped(call.started.title, _TITLE))}</span> '
        f'<span class="state">{word}</span> {took}</summary><div class="body">{body}</div></details>\n'
    )


def _body(call: Call, result: ToolResult | None, state: Outcome, pictures: Pictures) -> tuple[str, bool]:
    """All below the headline, and whether it is to be seen at once: a change, a failure, a short output."""
    started = call.started
    diffs = (result.diffs if result is not None else ()) or started.diffs
    output = _output(started.kind, result)
    body = (
        _input(started, hide=_IN_DIFF if diffs else set[str]()),
        "".join(map(diff_html, diffs[:_DIFFS])),
        _more(len(diffs) - _DIFFS, "more files"),
        _screen(call, output) if started.kind is ToolKind.EXECUTE else _text(output, state),
        "".join(map(pictures.html, result.images)) if result is not None else "",
    )
    return "".join(body), bool(diffs) or state is Outcome.FAILED or (bool(output) and _is_short(call, output))


def _output(kind: ToolKind, result: ToolResult | None) -> str:
    """What the user was shown, of a command as a terminal would leave it, and not too much of it."""
    if result is None:
        return ""
    clean = sanitize(clipped(result.shown, 4 * _OUTPUT), terminal=kind is ToolKind.EXECUTE)
    return clipped(clean, _OUTPUT).strip("\n")


def _is_short(call: Call, output: str) -> bool:
    return call.started.kind is ToolKind.EXECUTE and output.count("\n") < _SHORT and len(output) < 2_000


def _screen(call: Call, output: str) -> str:
    """What ran in a terminal, with the command in front."""
    command = call.started.raw_input.get("command")
    prompt = f'<b class="prompt">$ {text(clipped(command, _INPUT))}</b>\n' if isinstance(command, str) else ""
    return f'<pre class="screen">{prompt}{text(output)}</pre>' if prompt or output else ""


def _text(output: str, state: Outcome) -> str:
    return f'<pre class="output {state.value}">{text(output)}</pre>' if output else ""


def _input(started: ToolStarted, hide: set[str]) -> str:
    """The arguments, but for those that are shown in a better way, or are the title already."""
    if started.kind is ToolKind.EXECUTE and isinstance(started.raw_input.get("command"), str):
        hide = {*hide, "command"}
    rows = [
        f"<dt>{text(clipped(name, 100))}</dt><dd>{_value(value)}</dd>"
        for name, value in list(started.raw_input.items())[:_ARGUMENTS]
        if name not in hide and value != started.title
    ]
    return f'<dl class="input">{"".join(rows)}</dl>' if rows else ""


def _value(value: Json) -> str:
    words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text(clipped(words, _INPUT))


def _more(count: int, what: str) -> str:
    return f'<p class="note">and {count} {what}</p>' if count > 0 else ""
