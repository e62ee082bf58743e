"""The conversation of `demo` and `run` on a terminal, drawn from the messages of the protocol."""

import difflib
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from typing import TextIO

from acp_agent.capabilities import at
from acp_agent.cli.agent_process import Direction, RecordedFrame, objects_at, text_at
from acp_agent.cli.paragraph import BLUE, BOLD, DIM, GREEN, RED, YELLOW, Paragraph, cut_at, wrapped_at
from acp_agent.cli.session_text import call_title, seconds
from acp_agent.core.data import frozen
from acp_agent.core.types import Json, JsonObject, OutputStats
from acp_agent.output.pipeline import stats_line
from acp_agent.text import BLANK, CONTINUED, counted

_SHOWN_LINES = 8  # lines of a tool's text; the output of a terminal is shown whole
_DEFAULT_WIDTH, _LEAST_WIDTH, _MOST_WIDTH = 88, 24, 100
_INDENT = 8  # columns before a message
_LONGEST_MAKER = 32  # columns of the task of the sub-agent that made a call
_TIMED_OUT = "[error] timed out"
_OF_LINES = {"text", "output"}  # members of a message that may have several lines
_OF_FILES = {"oldText", "newText"}  # members of which every character is shown
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PAUSE = 1.0  # seconds without text after which the status line is drawn below an open message


@frozen
class ShownCall:
    """A tool call that runs.

    since       when it started, or when the user answered the question about it
    walls       the words that say where its command runs
    was_asked   whether the user was asked about it
    """

    title: str
    name: str
    kind: str
    since: float
    walls: str
    was_asked: bool = False


class Screen:
    """Draws messages as they pass. `root` is the session's folder, which is left out of paths. `clock` is monotonic.

    Models and files may contain any characters. Therefore `frame`, `question` and `terminal_output` first remove those
    that a terminal interprets.
    """

    def __init__(self, out: TextIO, root: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        folder = re.escape(_one_line(root).rstrip("/"))  # it must not match a part of a longer path
        self._root = re.compile(rf"(?<![\w./~-]){folder}(?:(/)|(?![\w.-]))") if folder else None
        self._moves = out.isatty() and os.environ.get("TERM") != "dumb"  # whether the last line may be drawn anew
        self._colour = self._moves and not os.environ.get("NO_COLOR")
        self._speaker = ""  # the author of the open message
        self._message: Paragraph | None = None
        self._heard: float | None = None  # when the agent last sent anything; None while no turn runs
        self._diffed: set[str] = set()  # tool calls whose diff was shown
        self._running: dict[str, ShownCall] = {}
        self._is_below_call = False  # whether the last line is that of an ended call
        self._has_status = False  # whether the last line says what runs; the next output replaces it
        self._above = 0  # the column where the unfinished message above the status line continues; 0 without one
        self._in_terminal: dict[str, str] = {}  # the terminals of tool calls whose output is shown live
        self._printing = ""  # the call whose output was drawn last
        self._partial: dict[str, str] = {}  # what is drawn of the unfinished last line of each terminal

    def heading(self, text: str) -> None:
        self._line(self._paint(text, BOLD))

    def note(self, text: str) -> None:
        """Draw a remark in dim text, wrapped at the terminal's width."""
        for line in text.split("\n"):
            for piece in wrapped_at(line, self._width):
                self._line(self._paint(piece.rstrip(), DIM))

    def summary(self, text: str) -> str:
        """Return the last line of a turn as it stands on the terminal below the answer."""
        return f"\n{self._paint(text, DIM)}"

    def check(self, text: str, *, passed: bool) -> bool:
        """Draw the result of a checked step, and return it."""
        mark = self._paint("✔", GREEN) if passed else self._paint("✘", RED)
        self._line(f"  {mark} {text}")
        return passed

    def patch(self, text: str) -> None:
        """Draw a unified diff."""
        for line in text.splitlines():
            style = {"+": GREEN, "-": RED, "@": BLUE}.get(line[:1], DIM)
            self._wrapped("    ", plain(line), style)

    def user(self, text: str) -> None:
        self._line(f"\n{self._paint('you'.ljust(_INDENT), BOLD)}{text}")

    def begin(self) -> None:
        """Begin a turn. Until its end the last line of a terminal says what runs."""
        self._heard = self._clock()
        self.tick()

    def frame(self, frame: RecordedFrame) -> None:
        """Draw a message if an editor would show it."""
        if frame.direction is Direction.TO_AGENT:
            return
        self._draw(frame)
        if self._heard is not None:
            self._heard = self._clock()
            self.tick()

    def tick(self) -> None:
        """Draw the last line anew: what runs, and for how long. Call this several times a second."""
        now = self._clock()
        if self._heard is None or not self._moves or (self._message is not None and now - self._heard < _PAUSE):
            return
        *_, last = self._running.values() or [ShownCall("waiting for the model", "", "", self._heard, "")]
        elapsed = f"  {_whole_seconds(now - last.since)}" if now - last.since >= 1 else ""
        more = f"{elapsed}, and {len(self._running) - 1} more" if len(self._running) > 1 else elapsed
        self._clear_status()
        if self._message is not None:
            self._message.pause()
            self._above = self._message.column
            self._out.write("\n" if self._above else "")
        sign = self._paint(f"  {_SPINNER[int(now * 10) % len(_SPINNER)]} ", YELLOW)
        self._out.write(sign + self._paint(self._cut(last.title, 5 + len(more)) + more, DIM))
        self._out.flush()
        self._has_status = True

    def _draw(self, frame: RecordedFrame) -> None:
        update, params = _plain_object(frame.update), _plain_object(frame.params)
        match notice_of(update) or text_at(update, "sessionUpdate") or frame.method:
            case "info" | "warning" | "error" as severity:
                text = text_at(update, "content", "text").strip().removeprefix(f"> **{severity}**: ")
                mark = self._paint("!", RED if severity == "error" else YELLOW)
                self._line("")
                self._wrapped(f"  {mark} ", text, DIM if severity == "info" else "")
            case "agent_message_chunk":
                self._say("agent", BOLD, text_at(update, "content", "text"))
            case "agent_thought_chunk":
                self._say("thinks", DIM, text_at(update, "content", "text"))
            case "tool_call":
                self._tool_call(update, frame.time)
            case "tool_call_update":
                self._output(text_at(update, "toolCallId"), text_at(frame.update, "_meta", "terminal_output", "data"))
                self._tool_call_update(update, frame.time)
            case "plan":
                self._plan(objects_at(update, "entries"))
            case "fs/read_text_file" | "fs/write_text_file":
                self._request(frame.method, self._short(text_at(params, "path")))
            case "terminal/create":
                self._request(frame.method, "runs in the editor's terminal")
            case _:
                pass  # an editor shows the others elsewhere

    def terminal_output(self, terminal_id: str, text: str) -> None:
        """Draw the output of a terminal line by line. Only the text after a line's last carriage return is drawn."""
        *lines, last = (self._partial.get(terminal_id, "") + text).split("\n")
        self._partial[terminal_id] = _last_drawn(last) + ("\r" if last.endswith("\r") else "")
        for line in lines:
            self._bar(plain(_last_drawn(line)))

    def question(self, params: JsonObject, chosen: str) -> None:
        """Draw a whole permission question. `chosen` is the id of the chosen option, or "" before the answer."""
        params, chosen = _plain_object(params), _one_line(chosen)
        content = objects_at(params, "toolCall", "content")
        title = text_at(params, "toolCall", "title")
        self._line("")
        self._wrapped(
            f"  {self._paint('?', YELLOW)} {self._paint('Allow?', BOLD)}  ", self._short(title), "", indent=12
        )
        self._diffs(text_at(params, "toolCall", "toolCallId"), title, content)
        texts = [text_at(item, "content", "text") for item in content if item.get("type") == "content"]
        lines = [line for text in texts for line in text.replace(f"\n{CONTINUED}", "").split("\n")]
        fences = (line for line in lines if line.startswith("```") and not line.strip("`"))
        fence = max(fences, key=len, default=None)  # the fence around the command is longer than those inside it
        is_inside = False
        for line in lines:
            is_inside = is_inside is not (line == fence)
            is_repeated = is_inside and line == title  # the question repeats the command for editors without titles
            # Blank lines outside of the fence separate Markdown's paragraphs.
            if line != fence and not is_repeated and (line or is_inside):
                self._wrapped(self._paint("    │ ", DIM), self._short(line), "")
        names: list[str] = []
        for option in objects_at(params, "options"):
            name = text_at(option, "name")
            names.append(self._paint(f"[{name}]", GREEN) if option.get("optionId") == chosen else name)
        if chosen:
            for name in names:
                self._line(f"    {name}")

    def answered(self, params: JsonObject) -> None:
        """Count the duration of a call from now on, because the user has answered the question about it."""
        call_id = text_at(_plain_object(params), "toolCall", "toolCallId")
        if call_id in self._running:
            self._running[call_id] = replace(self._running[call_id], since=self._clock(), was_asked=True)

    def _tool_call(self, update: JsonObject, time: float) -> None:
        call_id, name = text_at(update, "toolCallId"), text_at(update, "name") or text_at(update, "kind")
        shown = call_title(name, self._short(text_at(update, "title")))
        walls = "".join(text_at(item, "content", "text") for item in objects_at(update, "content")[-1:])
        self._running[call_id] = ShownCall(shown, name, text_at(update, "kind"), time, walls)

    def _tool_call_update(self, update: JsonObject, time: float) -> None:
        call_id, content = text_at(update, "toolCallId"), objects_at(update, "content")
        status = text_at(update, "status")
        terminal = next((text_at(item, "terminalId") for item in content if item.get("type") == "terminal"), "")
        if status == "in_progress" and terminal and call_id not in self._in_terminal:
            self._in_terminal[call_id] = terminal
            self._began(call_id)
        if status not in {"completed", "failed"}:
            return
        if rest := self._partial.pop(self._in_terminal.get(call_id, ""), ""):
            self.terminal_output(call_id, f"{rest}\n")
        call = self._running.pop(call_id, ShownCall("", "", "", time, ""))
        if (call.name, status) != ("update_plan", "completed"):  # the plan was drawn already
            self._ended(call_id, call, update, time)

    def _ended(self, call_id: str, call: ShownCall, update: JsonObject, time: float) -> None:
        """Draw the line of a call that has ended, and its output below."""
        content, said = objects_at(update, "content"), text_at(update, "rawOutput", "output")
        texts = [text_at(item, "content", "text") for item in content]
        walls = [texts.pop()] if call.walls and texts[-1:] == [call.walls] else []
        lines, passed = _lines_of(texts), text_at(update, "status") == "completed"
        count = [counted(len(lines), "line")] if call.kind == "read" and passed and lines else []
        measured = at(update, "_meta", "claudeCode", "elapsedMs")  # it includes the time that the user took to answer
        elapsed = measured / 1000 if isinstance(measured, int) and not call.was_asked else time - call.since
        mark = self._paint("✔", GREEN) if passed else self._paint("✘", RED)
        behind = f"  {', '.join([*_ending(update, said), *count, *walls, seconds(elapsed)])}"
        gap = "" if self._is_below_call or call_id in self._in_terminal else "\n"
        nested = bool(at(update, "_meta", "claudeCode", "parentToolUseId"))  # by a sub-agent, which reports
        indent = "      " if nested else "  "
        whose = self._maker(update)
        title = self._cut(call.title, 2 + len(indent) + len(whose) + len(behind))
        self._printing = ""
        self._line(f"{gap}{indent}{mark} {self._paint(whose, DIM)}{self._paint(title, BOLD)}{self._paint(behind, DIM)}")
        self._is_below_call = True
        self._diffs(call_id, call.title, content)
        if nested and passed:
            return
        if call_id not in self._in_terminal and not count:
            # If a terminal printed nothing, the content has no text, so `said` is drawn.
            self._ends(_lines_of([said]) if any(item.get("type") == "terminal" for item in content) else lines)
        elif text_at(update, "rawOutput", "process"):  # the notes about the process follow its output
            for line in reversed(list(takewhile(lambda line: line.startswith("["), reversed(said.splitlines())))):
                self._bar(line)
        raw, shown = at(update, "_meta", "acp_agent", "rawLines"), at(update, "_meta", "acp_agent", "shownLines")
        if isinstance(raw, int) and isinstance(shown, int):
            stats = OutputStats(raw, shown, 0, 0)
            self.note(f"    {stats_line(stats, text_at(update, '_meta', 'claudeCode', 'toolName'))}")

    def _maker(self, update: JsonObject) -> str:
        """Return the task of the sub-agent whose call has ended, if several sub-agents work; else ""."""
        parent = self._running.get(text_at(update, "_meta", "claudeCode", "parentToolUseId"))
        if parent is None or sum(each.name == parent.name for each in self._running.values()) == 1:
            return ""
        return f"{cut_at(plain(parent.title.removeprefix(parent.name).strip()), _LONGEST_MAKER)}: "

    def _began(self, call_id: str) -> None:
        """Draw the title of a call whose output is drawn below it."""
        title = self._running[call_id].title if call_id in self._running else ""
        self._line(f"\n  {self._paint('●', YELLOW)} {self._paint(self._cut(title, 4), BOLD)}")

    def _output(self, call_id: str, text: str) -> None:
        """Draw new output of a command that the agent itself runs."""
        if text:
            if call_id != self._printing:
                self._printing = self._in_terminal[call_id] = call_id
                self._began(call_id)
            self.terminal_output(call_id, text)

    def _plan(self, entries: list[JsonObject]) -> None:
        if entries:
            self._line(f"\n  {self._paint('plan', BOLD)}")
        marks = {"completed": self._paint("✔", GREEN), "in_progress": self._paint("●", YELLOW)}
        for entry in entries:
            self._line(f"    {marks.get(text_at(entry, 'status'), '○')} {self._cut(text_at(entry, 'content'), 6)}")

    def _ends(self, lines: list[str]) -> None:
        """Draw the beginning and the end of a text."""
        if len(lines) > _SHOWN_LINES:
            half = _SHOWN_LINES // 2
            lines = [*lines[:half], f"… {counted(len(lines) - 2 * half, 'more line')}", *lines[-half:]]
        for line in lines:
            self._bar(line)

    def _diffs(self, call_id: str, title: str, content: list[JsonObject]) -> None:
        """Draw the diffs of a call once, although the question about it and its end carry the same ones.

        Each has the path above it, unless the title names it.
        """
        if call_id in self._diffed:
            return
        for diff in content:
            if diff.get("type") == "diff":
                path = self._short(text_at(diff, "path"))
                if path not in title:
                    self._wrapped("    ", path, BOLD)
                self._diff(diff)
                self._diffed.add(call_id)

    def _diff(self, diff: JsonObject) -> None:
        old, new = (text_at(diff, side).split("\n") for side in ("oldText", "newText"))
        if diff.get("oldText") is None:
            old = [""]
        if old[-1] == new[-1] == "":  # both texts end with a line end; if only one does, that is a change
            old, new = old[:-1], new[:-1]
        changed = list(difflib.unified_diff(old, new, n=2, lineterm=""))[2:]
        self.patch("\n".join(changed))

    def _request(self, method: str, what: str) -> None:
        self._line(self._paint(f"    → {method} {what}", DIM))

    def _bar(self, line: str) -> None:
        self._line(self._paint(f"    │ {self._cut(self._short(line.expandtabs(4)), 6)}", DIM))

    def _say(self, who: str, style: str, text: str) -> None:
        if self._speaker != who:
            self._end_message()
            self._clear_status()
            self._printing, self._is_below_call = "", False
            paint = self._paint if style == BOLD else self._dimmed
            self._speaker, self._message = who, Paragraph(self._out, _INDENT, lambda: self._width, paint)
            self._out.write("\n" + self._paint(who.ljust(_INDENT), style))
        if self._message is not None:
            self._clear_status()
            self._message.write(text)

    def end(self) -> None:
        """End the turn: its open message, and the line that says what runs."""
        self._heard = None
        self._end_message()
        self._clear_status()
        self._out.flush()

    def _end_message(self) -> None:
        if self._message is not None:
            self._clear_status()
            self._message.end()
        self._speaker, self._message = "", None

    def _clear_status(self) -> None:
        if self._has_status:
            self._out.write("\r\x1b[K" + (f"\x1b[A\x1b[{self._above + 1}G" if self._above else ""))
            self._has_status, self._above = False, 0

    def _wrapped(self, prefix: str, line: str, style: str, *, indent: int = 6) -> None:
        """Draw a line, wrapped onto several if necessary. `indent` is the room that is left free.

        Tabs become spaces: a terminal draws a tab with up to eight columns, which could not be counted here.
        """
        sign = prefix
        for piece in wrapped_at(line.expandtabs(4), self._width - indent):
            self._line(sign + (self._paint(piece, style) if style else piece))
            sign = self._paint(f"    {CONTINUED}", DIM)

    def _line(self, text: str) -> None:
        self._end_message()
        self._clear_status()
        self._out.write(text + "\n")
        self._out.flush()
        self._is_below_call = False

    def _cut(self, line: str, indent: int) -> str:
        return cut_at(plain(line), self._width - indent)

    def _short(self, text: str) -> str:
        return text if self._root is None else self._root.sub(lambda found: "" if found[1] else ".", text)

    @property
    def _width(self) -> int:
        columns = shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns if self._out.isatty() else _DEFAULT_WIDTH
        return min(max(columns, _LEAST_WIDTH), _MOST_WIDTH)

    def _dimmed(self, text: str, _style: str) -> str:
        return self._paint(text, DIM)

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colour and style else text


def _last_drawn(line: str) -> str:
    """Return what a progress line showed last: the text after the last carriage return that has text behind it."""
    return line.rstrip("\r").rpartition("\r")[2]


def _lines_of(texts: list[str]) -> list[str]:
    """Return the lines of texts without the fences, which are for editors that draw Markdown."""
    return [line for text in texts for line in text.splitlines() if not line.startswith("```")]


def _whole_seconds(elapsed: float) -> str:
    return f"{elapsed:.0f} s" if elapsed < 60 else f"{elapsed // 60:.0f} min {elapsed % 60:.0f} s"


def _ending(update: JsonObject, said: str) -> list[str]:
    """Return details about the end of a call: that it timed out, or its exit code."""
    code = at(update, "rawOutput", "exit_code")
    if said.startswith(_TIMED_OUT):
        return [said.removeprefix("[error] ").partition("\n")[0]]
    return [f"exit {code}"] if isinstance(code, int) and code else []


def notice_of(update: JsonObject) -> str:
    """Return the severity of an update that is a notice of the agent, else ""."""
    return text_at(update, "_meta", "acp_agent", "notice")


def plain(text: str) -> str:
    """Return the text without characters that move the cursor or hide text. Line ends and tabs stay."""
    return "".join(c for c in text if c.isprintable() or c in "\n\t")


def marked(text: str) -> str:
    """Return the text with invisible characters written as `<U+202E>`. Line ends and tabs stay."""
    return "".join(c if (c.isprintable() and not BLANK.match(c)) or c in "\n\t" else f"<U+{ord(c):04X}>" for c in text)


def _one_line(text: str) -> str:
    return plain(text).replace("\n", " ").replace("\t", " ")


def _plain_object(message: JsonObject) -> JsonObject:
    return {name: _plain_value(name, value) for name, value in message.items()}


def _plain_value(name: str, value: Json) -> Json:
    """Return a member's value with safe strings, each on one line unless the member may have several."""
    if isinstance(value, str):
        if name in _OF_FILES:
            return marked(value)
        return plain(value) if name in _OF_LINES else _one_line(value)
    if isinstance(value, list):
        return [_plain_value(name, item) for item in value]
    return _plain_object(value) if isinstance(value, dict) else value
