"""Minds for a `ThinkingModel`: they call tools, remember what these said, and read on where it was cut."""

import json
import re
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.model_servers import ThinkingModel, Thought, ToolUse, thinking_model
from tests.fakes.editor import NOTHING, ScriptedEditor, editing

ROOMY = "[agent]\nmax_tool_iterations = 100\ncontext_budget_tokens = 10_000_000\n"
FENCED = re.compile(r'<tool-output id="(\w{8})">\n(.*?)\n?</tool-output id="\1">', re.DOTALL)
REFERENCE = re.compile(r"overflow:[0-9a-f-]{36}")
_GO_ON = re.compile(r"\n?\[.*: go on with (.*)\]\Z")
_PLACE = re.compile(r"(offset|column)=(\d+)")
_MORE = re.compile(r"… \[\d+ more characters: (.*)\]\Z")


def inside(said: str) -> str:
    """The text in its fence: what the tool itself said."""
    match = FENCED.search(said)
    assert match, said[:300]
    return match[2]


def reference_in(said: str) -> str:
    """The id under which the whole of a cut text is kept."""
    found = REFERENCE.findall(said)
    assert found, said[-500:]
    return found[-1]


def read_all(reference: str) -> Generator[ToolUse, str, str]:
    """The whole of a kept text, read page by page in the way the pages themselves say."""
    lines: dict[int, str] = {}
    place: dict[str, int] | None = {"offset": 1}
    while place is not None:
        page = inside((yield "read_overflow", {"id": reference, **place}))
        assert len(page) <= 20_000
        place = _take_in(page, lines)
    return "\n".join(lines[number] for number in sorted(lines))


def _take_in(page: str, lines: dict[int, str]) -> dict[str, int] | None:
    """Add the lines of a page; where to go on."""
    go_on = _GO_ON.search(page)
    for line in page[: go_on.start() if go_on else None].split("\n"):
        number, _, text = line.partition("\t")
        more = _MORE.search(text)
        lines[int(number)] = lines.get(int(number), "") + text[: more.start() if more else None]
        if more:
            return _place(more[1])
    return _place(go_on[1]) if go_on else None


def _place(words: str) -> dict[str, int]:
    return {name: int(number) for name, number in _PLACE.findall(words)}


class Mind:
    """What a model was told, a text a call.

    whole   what it read of a kept text
    """

    def __init__(self) -> None:
        self.said: list[str] = []
        self.whole = ""

    def call(self, *calls: ToolUse) -> Thought:
        for call in calls:
            self.said.append((yield call))

    def run(self, *commands: str) -> Thought:
        yield from self.call(*(("bash", {"command": command, "timeout": 60}) for command in commands))

    def run_and_read(self, command: str) -> Thought:
        yield from self.run(command)
        self.whole = yield from read_all(reference_in(self.said[-1]))


@asynccontextmanager
async def thinking(
    folder: Path, thought: Thought, *, summary: str = "", config: str = "", **options: Any
) -> AsyncIterator[tuple[ScriptedEditor, ThinkingModel]]:
    """An editor whose agent has a mind. It offers nothing, if not told otherwise."""
    options = {"capabilities": NOTHING, **options}
    async with thinking_model(thought, summary) as model:
        config = model.options["config"] + ROOMY + config
        async with editing(folder, None, config=config, environment=model.options["environment"], **options) as editor:
            yield editor, model


async def go(editor: ScriptedEditor) -> None:
    """One turn in a new session."""
    assert await editor.say(await editor.open(), "go") == "end_turn"


def bytes_of(update: dict[str, Any]) -> int:
    """The size of an update on the wire."""
    return len(json.dumps(update, ensure_ascii=False).encode())


def peak(pid: int) -> int:
    """The most memory a process has had so far, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024
