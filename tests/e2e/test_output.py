"""What commands print, however much and whatever it is: the model gets little of it, and can read all."""

import os
import random
import re
import shlex
import signal
import sqlite3
import sys
from contextlib import closing
from functools import partial

import pytest

from acp_agent.core.services import UNKNOWN_OVERFLOW
from acp_agent.output.sanitize import faithful
from acp_agent.workspace.text_files import WINDOWS_BYTES
from tests.e2e import thoughts as thoughts_agents
from tests.e2e.model_servers import Thought
from tests.e2e.thoughts import Mind, bytes_of, go, inside, peak, reference_in
from tests.fakes.editor import EVERYTHING, NOTHING, TERMINAL_ONLY

pytestmark = pytest.mark.anyio

thinking = partial(thoughts_agents.thinking, serves=__name__)

PYTHON = shlex.quote(sys.executable)
MODEL_LIMIT = 6 * 1024
EDITOR_LIMIT = 40 * 1024
MEMORY_LIMIT = 64 * 1024 * 1024
SOON = "[tools.shell]\ntimeout = 0.1\n[acp]\nterminal_timeout_secs = 0.1\n"
"""A configuration in which a command that names no timeout gets 0.1 seconds."""

LINES = "".join(f"{number}: {'ÄÖ漢🙂'[number % 4]} a line of some tool that talks\n" for number in range(1700))
OUTPUTS = {
    "one line": "ab漢🙂".encode() * 15_000,
    "binary": random.Random(5).randbytes(140_000),
    "CRLF": LINES.replace("\n", "\r\n").encode(),
    "progress": b"".join(b"\r%3d%% of it" % (number % 101) for number in range(30_000)) + b"\n" + LINES.encode(),
    "zeros": (b"\0" * 30 + b"x\n") * 2_600,
}


@pytest.mark.parametrize("capabilities", [NOTHING, TERMINAL_ONLY], ids=["local", "editor"])
async def test_of_a_long_output_the_model_gets_little_and_reads_the_rest_byte_for_byte(tmp_path, capabilities):
    minds = {kind: Mind() for kind in OUTPUTS}

    def read_each() -> Thought:
        for kind, mind in minds.items():
            yield from mind.run_and_read(f"cat '{kind}'")

    async with thinking(tmp_path, read_each(), capabilities=capabilities) as (editor, _):
        for kind, output in OUTPUTS.items():
            (editor.workspace / kind).write_bytes(output)
        await go(editor)
    for kind, mind in minds.items():
        local = OUTPUTS[kind].decode(errors="surrogateescape").translate(WINDOWS_BYTES)
        printed = OUTPUTS[kind].decode(errors="replace") if capabilities else local
        whole = faithful(printed, terminal=True).removesuffix("\n")
        head, tail = re.split(r"\[[\d,]+ (?=characters left out here\])", inside(mind.said[0]))
        assert len(mind.said[0]) < MODEL_LIMIT, kind
        assert whole.startswith(head.rstrip("\n")), kind
        assert whole.endswith(tail.partition("here]\n")[2]), kind
        assert mind.whole == whole, kind
    assert {call.status for call in editor.calls} == {"completed"}
    ends = [call.final["rawOutput"] for call in editor.calls if call.kind == "execute"]
    assert [(raw["exit_code"], raw["truncated"]) for raw in ends] == [(0, True)] * len(OUTPUTS)


async def test_a_long_log_costs_the_model_forty_lines_and_its_error_is_found_under_its_number(tmp_path):
    mind = Mind()
    log = "import sys\nfor at in range(1, 10001):\n"
    log += "    print('assertion `balance` failed' if at == 4321 else f'[trace] step {at}: ok')\nsys.exit(1)\n"

    def thought() -> Thought:
        yield from mind.run(f"{PYTHON} log.py")
        reference = reference_in(mind.said[0])
        yield from mind.call(("read_overflow", {"id": reference, "offset": 4321, "limit": 1}))

    async with thinking(tmp_path, thought()) as (editor, _):
        (editor.workspace / "log.py").write_text(log)
        await go(editor)
    shown = inside(mind.said[0]).split("\n")
    assert len(shown) < 45
    assert shown[10] == "[9,965 lines left out]"
    assert shown[-1] == "4321: assertion `balance` failed"
    assert "(10000 lines, " in mind.said[0]
    assert "4321\tassertion `balance` failed" in inside(mind.said[1])


async def test_a_part_of_what_was_cut_is_found_by_its_line_its_column_and_its_words(tmp_path):
    mind = Mind()

    def look() -> Thought:
        yield from mind.run("seq -f 'line %g of many' 20000; printf 'x%.0s' {1..3000}; echo needle; echo end")
        kept = {"id": reference_in(mind.said[0])}
        for wanted in ({"offset": 10_000, "limit": 2}, {"offset": -1}, {"offset": 20_001, "column": 2995}):
            yield from mind.call(("read_overflow", kept | wanted))
        yield from mind.call(("read_overflow", kept | {"pattern": "1234[0-2] of", "limit": 2}))
        yield from mind.call(("read_overflow", kept | {"pattern": "need.e", "offset": 20_001}))
        yield from mind.call(("read_overflow", kept | {"pattern": "nothing like it"}))
        yield from mind.call(("read_overflow", kept | {"pattern": "(unclosed"}))

    async with thinking(tmp_path, look()) as (editor, _):
        await go(editor)
    lines, last, column, found, needle, nothing, wrong = mind.said[1:]
    assert inside(lines) == "10000\tline 10000 of many\n10001\tline 10001 of many"
    assert inside(last).split() == ["20002", "end"]
    assert "20001\txxxxxneedle\n" in inside(column)
    assert "12340: line 12340 of many" in inside(found)
    assert "12341: line 12341 of many" in inside(found)
    assert "[more matches than these 2: go on with offset=" in inside(found)
    assert "xxneedle" in inside(needle)
    assert inside(nothing) == 'No matches for: "nothing like it"'
    assert wrong.startswith("[error] ")
    assert "(unclosed" in wrong


async def test_a_failed_call_says_in_a_line_what_happened_and_in_a_line_what_is_permitted(tmp_path):
    ends = {
        ("bash", "sleep 60"): ("timed out after 0.1 s", "Give a larger `timeout` (up to 600), or `background: true` "),
        ("bash", "sudo ls"): ("the command is blocked, because it matches 'sudo'", "Do it without this command, "),
        ("bash", "cat /etc/shadow"): ("/etc/shadow holds secrets", "Do without it, "),
        ("write", "../x"): ("../x: outside the directories", "Stay below the working directory."),
        ("teleport", "x"): ('there is no tool "teleport"', "Use one of your tools: bash, "),
    }
    keys = {"bash": "command", "write": "path", "teleport": "path"}
    extra = {"../x": {"content": "x"}}
    mind = Mind()
    calls = [(tool, {keys[tool]: value, **extra.get(value, {})}) for tool, value in ends]
    async with thinking(tmp_path, mind.call(*calls), config=SOON) as (editor, _):
        await go(editor)
    for said, (happened, permitted) in zip(mind.said, ends.values(), strict=True):
        first, second = said.split("\n")[:2]
        assert first.startswith(f"[error] {happened}")
        assert second.startswith(f"[advice] {permitted}")
        assert not [word for word in ("category", "retryable", "tool_error") if word in said]


async def test_a_character_that_comes_in_two_pieces_is_one_and_bytes_that_are_none_are_shown(tmp_path):
    code = r"""import array, fcntl, os, termios, time
left = array.array("i", [1])
for piece in b"caf\xc3", b"\xa9 \xff \xf0\x9f", b"\x99\x82 \xe2\x82":
    os.write(1, piece)
    while fcntl.ioctl(1, termios.FIONREAD, left) or left[0]:
        time.sleep(0.001)
"""
    mind = Mind()
    async with thinking(tmp_path, mind.run(f"{PYTHON} pieces.py")) as (editor, _):
        (editor.workspace / "pieces.py").write_text(code)
        await go(editor)
    assert inside(mind.said[0]) == "café ÿ 🙂 â‚"
    assert editor.call.final["rawOutput"]["stdout"] == "café ÿ 🙂 â‚"


async def test_a_hundred_thousand_lines_and_a_hundred_megabytes_cost_neither_memory_nor_the_model_much(tmp_path):
    mind, peaks = Mind(), list[int]()

    def talk() -> Thought:
        yield from mind.run("seq 300", "yes 'it never stops' | head -c 1000000")  # loads what a long output needs
        yield "now the big ones"
        yield from mind.run(
            "seq -f 'line %g of some tool that talks' 100000", "yes 'it never stops' | head -c 100000000"
        )

    async with thinking(tmp_path, talk(), serves="") as (editor, model):
        session = await editor.open()
        for _ in range(2):
            await editor.say(session, "go")
            peaks.append(peak(editor.agent.pid))
    before, after = peaks
    assert after - before < MEMORY_LIMIT
    *_, lines, giant = mind.said
    assert lines.count("line") < 200 < lines.count("\n") + 200
    assert inside(lines).startswith("line 1 of")
    assert inside(lines).endswith("line 100000 of some tool that talks")
    assert "(100000 lines, " in lines, "all of it is kept"
    assert "[output truncated]" in giant, "not all of this"
    assert len(lines) < MODEL_LIMIT
    assert len(giant) < MODEL_LIMIT
    assert max(bytes_of(call.final) for call in editor.calls) < EDITOR_LIMIT
    assert len(model.requests) == 6


@pytest.mark.parametrize("capabilities", [NOTHING, EVERYTHING], ids=["local", "editor"])
async def test_how_a_command_ended_is_said_to_the_model_and_in_the_envelope(tmp_path, capabilities):
    """T2.5, T2.18, T2.19; what the streams of an editor's terminal said apart, nobody can know."""
    ends = {
        "echo out; echo err >&2": (0, None, ""),
        "echo 'all went wrong'; exit 3": (3, None, ""),
        "./plain": (126, None, "command cannot be executed"),
        "no-such-program": (127, None, "no-such-program: command not found\n[advice] It is not installed here.\n"),
        "kill -9 $$": (137, "SIGKILL", ""),
        "cat /missing; true": (0, None, ""),
        "cat ./missing": (1, None, "the command reported: no such file" if capabilities == NOTHING else ""),
        "sleep 60": (124, None, "timed out after 0.1 s"),
    }
    mind = Mind()
    calls = [("bash", {"command": command, **({} if "60" in command else {"timeout": 30})}) for command in ends]
    async with thinking(tmp_path, mind.call(*calls), capabilities=capabilities, config=SOON) as (editor, _):
        (editor.workspace / "plain").write_text("echo no\n")
        await go(editor)
    for said, call, (code, signal_name, failure) in zip(mind.said, editor.calls, ends.values(), strict=True):
        raw = call.final["rawOutput"]
        assert (raw["exit_code"], raw["signal"], raw["truncated"]) == (code, signal_name, False), said
        assert call.status == ("completed" if code == 0 else "failed")
        assert said.startswith(f"[error] {failure}") if failure else "[error]" not in said
        assert (f"[exit {code}" in said) == (code != 0)
    raw = editor.calls[0].final["rawOutput"]
    apart = ("out\n", "err\n") if capabilities == NOTHING else ("out\nerr\n", "")
    assert (raw["stdout"], raw["stderr"]) == apart
    assert inside(mind.said[0]).split() == ["out", "err"]


async def test_a_reference_is_worth_nothing_in_another_session_or_process(tmp_path):
    one, other = Mind(), Mind()
    bad = ["overflow:00000000-0000-4000-8000-000000000000", "00000000-0000-0000-0000-000000000000"]
    malformed = ["", "'; DROP TABLE tool_overflow; --", "overflow:../../etc/passwd"]

    def steal() -> Thought:
        yield from one.run("seq 30000")
        yield "mine"
        reference = reference_in(one.said[0])
        for wanted in (reference, reference.removeprefix("overflow:").upper(), *bad, *malformed):
            yield from other.call(("read_overflow", {"id": wanted}), ("bash", {"command": "date +%N"}))
        yield "theirs"
        yield from one.call(("read_overflow", {"id": reference}))

    async with thinking(tmp_path, steal(), serves="") as (editor, _):
        first = await editor.open()
        await editor.say(first, "go")
        await editor.say(await editor.new_session(str(editor.workspace)), "go")
        await editor.say(first, "go")
        outside = Mind()
        stranger = outside.call(("read_overflow", {"id": reference_in(one.said[0])}))
        async with thinking(tmp_path, stranger, serves="") as (second, _):  # the same home, another process
            await go(second)
    answers = other.said[::2]
    assert [answer for answer in answers[:4] if UNKNOWN_OVERFLOW not in answer] == []
    assert len({*answers[:4], *outside.said}) == 1, "one answer, whatever the id"
    assert [answer for answer in answers[4:] if "id must be a valid UUID" not in answer] == []
    assert len(set(answers[4:])) == 1
    assert inside(one.said[1]).startswith("   1\t1\n   2\t2\n"), "it was there all the time"


async def test_what_a_reference_was_given_for_survives_a_kill_right_after(tmp_path):
    mind = Mind()
    async with thinking(tmp_path, mind.run("seq 30000", "sleep 60"), lawful=False, serves="") as (editor, _):
        session = await editor.open()
        prompt = {
            "jsonrpc": "2.0",
            "id": "go",
            "method": "session/prompt",
            "params": editor.prompt_params(session, "go"),
        }
        await editor.send_line(prompt)
        await editor.seen(lambda frame: frame.update.get("title") == "sleep 60")
        os.kill(editor.agent.pid, signal.SIGKILL)
        await editor.agent.wait()
    kept = reference_in(mind.said[0]).removeprefix("overflow:")
    async with thinking(tmp_path, Mind().run("seq 30000"), serves="") as (editor, _):
        await go(editor)
        assert "database" not in editor.told
    with closing(sqlite3.connect(tmp_path / "home" / "data" / "acp-agent.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = dict(database.execute("SELECT id, content FROM tool_overflow").fetchall())
    assert len(rows) == 2
    assert rows[kept] == b"\n".join(b"%d" % number for number in range(1, 30001))


async def test_no_frame_is_broken_by_any_byte(tmp_path):
    """The recording reads every line as JSON in UTF-8, or the test fails."""
    mind = Mind()
    data = bytes(range(256)) * 40 + b"\xed\xa0\x80\xed\xb0\x80 \xe2\x80\xa8 \xc2\x85 \x1b]0;title\x07\x9b31m"
    async with thinking(tmp_path, mind.run("cat bytes", "cat bytes >&2; exit 1")) as (editor, _):
        (editor.workspace / "bytes").write_bytes(data)
        await go(editor)
    for said in mind.said:
        assert not {"\x00", "\x07", "\x1b", "\x9b", "\r"} & set(said)
    assert [call.status for call in editor.calls] == ["completed", "failed"]
