"""The conversation of `demo` and `run` on a terminal, drawn from the messages of the protocol."""

import difflib
import os
import re
import shutil
from itertools import takewhile
from typing import TextIO

from acp_agent.cli.agent_process import Direction, RecordedFrame, at, objects_at, text_at
from acp_agent.core.types import Json, JsonObject, OutputStats
from acp_agent.output.pipeline import stats_line
from acp_agent.text import BLANK, CONTINUED, wrap_line

_FENCE = re.compile(r"(`{3,}|~{3,})")
_BULLET = re.compile(r"[-*+]|\d+[.)]")


class Paragraph:
    """A message on the screen, wrapped at `width` columns between words. Every line is indented by `indent`.

    Lines keep the spaces that they begin with. Code between fences and the rows of tables are not wrapped.
    The caller has written the first `indent` columns of the first line.
    """

    def __init__(self, out: TextIO, indent: int, width: int) -> None:
        self._out = out
        self._indent = indent
        self._width = width
        self._line = ""  # what was written of the present line, without the indent
        self._indented = True
        self._is_empty = True  # blank lines at the beginning are left out
        self._word = ""
        self._spaces = ""  # between the last word and the next
        self._hang = 0  # further columns before the lines that a line is wrapped onto
        self._column = indent
        self._fence = ""  # that opened the code

    def write(self, text: str) -> None:
        """Write the next piece of the message. Its last word is shown once it is complete."""
        for character in text:
            if character == "\n":
                self._finish_word()
                self._end_line()
            elif character.isspace():
                self._finish_word()
                self._spaces += "    " if character == "\t" else " "
            else:
                self._word += character
        self._out.flush()

    def end(self) -> None:
        """End the message. A line end that it ends with is not doubled."""
        self._finish_word()
        if self._indented:
            self._out.write("\n")

    def _finish_word(self) -> None:
        word, self._word = self._word, ""
        if not word:
            return
        if not self._line:
            self._hang = len(self._spaces) + (len(word) + 1 if _BULLET.fullmatch(word) else 0)
        elif not self._is_verbatim and self._column + len(self._spaces) + len(word) > self._width:
            self._spaces = " " * self._hang
            self._out.write("\n")
            self._indented = False
        if not self._indented:
            self._out.write(" " * self._indent)
            self._indented, self._column = True, self._indent
        self._is_empty = False
        self._out.write(self._spaces + word)
        self._line += self._spaces + word
        self._column += len(self._spaces) + len(word)
        self._spaces = ""

    @property
    def _is_verbatim(self) -> bool:
        return bool(self._fence) or self._line.lstrip().startswith("|")

    def _end_line(self) -> None:
        line = self._line.strip()
        if self._is_empty:
            self._spaces = ""
            return
        if self._fence:
            self._fence = "" if line.startswith(self._fence) and not line.strip(line[0]) else self._fence
        elif opening := _FENCE.match(line):
            self._fence = opening[1]
        self._out.write("\n")
        self._line, self._spaces, self._indented, self._column = "", "", False, self._indent


_BOLD, _DIM, _RED, _GREEN, _YELLOW, _BLUE = "1", "2", "31", "32", "33", "36"
_SHOWN_LINES = 8  # lines of a tool's text; the output of a terminal is shown whole
_DEFAULT_WIDTH = 88
_INDENT = 8  # columns before a message
_TIMED_OUT = "[error] timed out"
_OF_LINES = {"text", "output"}  # members of a message that may have several lines
_OF_FILES = {"oldText", "newText"}  # members of which every character is shown


class Screen:
    """Draws messages as they pass. `root` is the session's folder, which is left out of paths.

    Models and files may contain any characters. Therefore `frame`, `question` and `terminal_output` first remove those
    that a terminal interprets.
    """

    def __init__(self, out: TextIO, root: str) -> None:
        self._out = out
        folder = re.escape(_one_line(root).rstrip("/"))  # it must not match a part of a longer path
        self._root = re.compile(rf"(?<![\w./~-]){folder}(?:(/)|(?![\w.-]))") if folder else None
        self._colour = out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        columns = shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns if out.isatty() else _DEFAULT_WIDTH
        self._width = min(max(columns, 60), 100)
        self._speaker = ""  # the author of the open message
        self._message: Paragraph | None = None
        self._started: dict[str, float] = {}
        self._diffed: set[str] = set()  # tool calls whose diff was shown
        self._running: dict[str, str] = {}  # the titles of the tool calls that run
        self._walls: dict[str, str] = {}  # the words that say where their commands run
        self._has_status = False  # the last line says what runs; the next output replaces it
        self._in_terminal: dict[str, str] = {}  # the terminals of tool calls whose output is shown live
        self._printing = ""  # the call whose output was drawn last
        self._partial: dict[str, str] = {}  # the unfinished last line of each terminal

    def heading(self, text: str) -> None:
        """Draw a heading."""
        self._line(self._paint(text, _BOLD))

    def note(self, text: str) -> None:
        """Draw a remark in dim text."""
        self._line(self._paint(text, _DIM))

    def check(self, text: str, *, passed: bool) -> bool:
        """Draw the result of a checked step, and return it."""
        mark = self._paint("✔", _GREEN) if passed else self._paint("✘", _RED)
        self._line(f"  {mark} {text}")
        return passed

    def patch(self, text: str) -> None:
        """Draw a unified diff."""
        for line in text.splitlines():
            style = {"+": _GREEN, "-": _RED, "@": _BLUE}.get(line[:1], _DIM)
            self._wrapped("    ", plain(line), style)

    def user(self, text: str) -> None:
        """Draw the user's prompt."""
        self._line(f"\n{self._paint('you'.ljust(_INDENT), _BOLD)}{text}")

    def frame(self, frame: RecordedFrame) -> None:
        """Draw a message if an editor would show it. On a terminal the last line then says what runs."""
        if frame.direction is Direction.TO_AGENT:
            return
        self._draw(frame)
        if self._colour and self._running and self._message is None:
            *_, last = self._running.values()
            more = f" and {len(self._running) - 1} more" if len(self._running) > 1 else ""
            self._clear_status()
            self._out.write(self._paint("  ● ", _YELLOW) + self._cut(last, 6 + len(more)) + more)
            self._out.flush()
            self._has_status = True

    def _draw(self, frame: RecordedFrame) -> None:
        update, params = _plain_object(frame.update), _plain_object(frame.params)
        match notice_of(update) or text_at(update, "sessionUpdate") or frame.method:
            case "info" | "warning" | "error" as severity:
                text = text_at(update, "content", "text").strip().removeprefix(f"> **{severity}**: ")
                mark = self._paint("!", _RED if severity == "error" else _YELLOW)
                self._line("")
                self._wrapped(f"  {mark} ", text, _DIM if severity == "info" else "")
            case "agent_message_chunk":
                self._say("agent", _BOLD, text_at(update, "content", "text"))
            case "agent_thought_chunk":
                self._say("thinks", _DIM, text_at(update, "content", "text"))
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
        """Draw the output of a terminal line by line. Of a line with carriage returns the last piece is drawn."""
        *lines, self._partial[terminal_id] = (self._partial.get(terminal_id, "") + text).split("\n")
        for line in lines:
            self._bar(plain(line.rstrip("\r").rpartition("\r")[2]))

    def question(self, params: JsonObject, chosen: str) -> None:
        """Draw a whole permission question. `chosen` is the id of the chosen option, or "" before the answer."""
        params, chosen = _plain_object(params), _one_line(chosen)
        content = objects_at(params, "toolCall", "content")
        title = text_at(params, "toolCall", "title")
        self._line(f"\n  {self._paint('?', _YELLOW)} {self._paint('May it?', _BOLD)}  {self._short(title)}")
        self._diffs(text_at(params, "toolCall", "toolCallId"), title, content)
        texts = [text_at(item, "content", "text") for item in content if item.get("type") == "content"]
        lines = [line for text in texts for line in text.replace(f"\n{CONTINUED}", "").split("\n")]
        fences = (line for line in lines if line.startswith("```") and not line.strip("`"))
        fence = max(fences, key=len, default=None)  # the Markdown fence is the longest
        is_inside = False
        for line in lines:
            is_inside = is_inside is not (line == fence)
            if line != fence and (line or is_inside):  # blank lines outside of the fence separate Markdown's paragraphs
                self._wrapped(self._paint("    │ ", _DIM), self._short(line.expandtabs(4)), "")
        names: list[str] = []
        for option in objects_at(params, "options"):
            name = text_at(option, "name")
            names.append(self._paint(f"[{name}]", _GREEN) if option.get("optionId") == chosen else name)
        if chosen:
            for name in names:
                self._line(f"    {name}")

    def _tool_call(self, update: JsonObject, time: float) -> None:
        call_id, name = text_at(update, "toolCallId"), text_at(update, "name") or text_at(update, "kind")
        title = self._short(text_at(update, "title"))
        self._running[call_id] = title if title.split(" ")[0] == name else f"{name}  {title}"
        self._walls[call_id] = "".join(text_at(item, "content", "text") for item in objects_at(update, "content")[-1:])
        self._started[call_id] = time

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
        said, code = text_at(update, "rawOutput", "output"), at(update, "rawOutput", "exit_code")
        ending = f"exit {code}" if isinstance(code, int) else status
        if said.startswith(_TIMED_OUT):
            ending = said.removeprefix("[error] ").partition("\n")[0]
        texts = [text_at(item, "content", "text") for item in content]
        walls = self._walls.pop(call_id, "")
        if walls and texts[-1:] == [walls]:
            ending, texts = f"{ending}, {walls}", texts[:-1]
        elapsed = time - self._started.get(call_id, time)
        mark = self._paint("✔", _GREEN) if status == "completed" else self._paint("✘", _RED)
        title = self._running.pop(call_id, "")
        gap = "" if call_id in self._in_terminal else "\n"
        self._printing = ""
        self._line(f"{gap}  {mark} {self._paint(title, _BOLD)}  {self._paint(f'{ending}, {elapsed:.2f} s', _DIM)}")
        self._diffs(call_id, title, content)
        if call_id not in self._in_terminal:
            # A terminal that printed nothing has no text beside it.
            self._texts(texts if not terminal else [said])
        elif text_at(update, "rawOutput", "process"):  # what is said of it stands behind its output
            for line in reversed(list(takewhile(lambda line: line.startswith("["), reversed(said.splitlines())))):
                self._bar(line)
        raw, shown = at(update, "_meta", "acp_agent", "rawLines"), at(update, "_meta", "acp_agent", "shownLines")
        if isinstance(raw, int) and isinstance(shown, int):
            stats = OutputStats(raw, shown, 0, 0)
            self.note(f"    {stats_line(stats, text_at(update, '_meta', 'claudeCode', 'toolName'))}")

    def _began(self, call_id: str) -> None:
        """Draw the title of a call whose output is drawn below it."""
        self._line(f"\n  {self._paint('●', _YELLOW)} {self._paint(self._running.get(call_id, ''), _BOLD)}")

    def _output(self, call_id: str, text: str) -> None:
        """Draw what a command has printed that the agent runs itself."""
        if text:
            if call_id != self._printing:
                self._printing = self._in_terminal[call_id] = call_id
                self._began(call_id)
            self.terminal_output(call_id, text)

    def _plan(self, entries: list[JsonObject]) -> None:
        if entries:
            self._line(f"\n  {self._paint('plan', _BOLD)}")
        marks = {"completed": self._paint("✔", _GREEN), "in_progress": self._paint("●", _YELLOW)}
        for entry in entries:
            self._line(f"    {marks.get(text_at(entry, 'status'), '○')} {self._cut(text_at(entry, 'content'), 6)}")

    def _texts(self, texts: list[str]) -> None:
        lines = [line for text in texts for line in text.splitlines()]
        lines = [line for line in lines if not line.startswith("```")]  # the fence is for editors that draw Markdown
        if len(lines) > _SHOWN_LINES:  # show the beginning and the end
            half = _SHOWN_LINES // 2
            lines = [*lines[:half], f"… {len(lines) - 2 * half} more lines", *lines[-half:]]
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
                    self._wrapped("    ", path, _BOLD)
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
        self._line(self._paint(f"    → {method} {what}", _DIM))

    def _bar(self, line: str) -> None:
        self._line(self._paint(f"    │ {self._cut(self._short(line.expandtabs(4)), 6)}", _DIM))

    def _say(self, who: str, style: str, text: str) -> None:
        if self._speaker != who:
            self._end_message()
            self._clear_status()
            self._printing = ""
            self._speaker, self._message = who, Paragraph(self._out, _INDENT, self._width)
            self._out.write("\n" + self._paint(who.ljust(_INDENT), style))
        if self._message is not None:
            self._message.write(text)

    def end(self) -> None:
        """End the open message, and remove the line that says what runs."""
        self._end_message()
        self._clear_status()
        self._out.flush()

    def _end_message(self) -> None:
        if self._message is not None:
            self._message.end()
        self._speaker, self._message = "", None

    def _clear_status(self) -> None:
        if self._has_status:
            self._out.write("\r\x1b[K")
            self._has_status = False

    def _wrapped(self, prefix: str, line: str, style: str) -> None:
        """Draw a line, wrapped onto several if necessary."""
        sign = prefix
        for piece in wrap_line(line, self._width - 6):
            self._line(sign + (self._paint(piece, style) if style else piece))
            sign = self._paint(f"    {CONTINUED}", _DIM)

    def _line(self, text: str) -> None:
        self._end_message()
        self._clear_status()
        self._out.write(text + "\n")
        self._out.flush()

    def _cut(self, line: str, indent: int) -> str:
        line = plain(line)
        room = self._width - indent
        return line if len(line) <= room else line[: room - 1] + "…"

    def _short(self, text: str) -> str:
        return text if self._root is None else self._root.sub(lambda found: "" if found[1] else ".", text)

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colour else text


def notice_of(update: JsonObject) -> str:
    """Return the severity of an update that is a notice of the agent and no word of the model, else ""."""
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
