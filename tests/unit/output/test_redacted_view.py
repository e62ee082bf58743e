"""What a session shows while a call runs."""

import re
from dataclasses import asdict, replace

import pytest

from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import ToolFinished, ToolProgress, ToolStarted
from acp_agent.core.ports import Decision, Question
from acp_agent.core.types import OutputStats, Ruling, ToolKind, ToolResult
from acp_agent.output.redacted_view import RedactedApprover, RedactedEvents
from acp_agent.output.redaction.redactor import Redactor
from tests.rows import each_row

pytestmark = pytest.mark.anyio

TOKEN = "ghp" + "_FAKE" + "a8F3kLm9Qz2XvB7nT5wYr4Ue6Hs1Gd0P"


class Shown:
    """A session's view of one call: what it says at which second."""

    def __init__(self):
        self.now, self.pieces, self.events = 0.0, [], []
        self.sink = RedactedEvents(self._emit, Redactor(), lambda: self.now)

    async def _emit(self, event):
        self.events.append(event)
        if isinstance(event, ToolProgress):
            self.pieces.append(event.output)

    async def say(self, text, after=0.1):
        self.now += after
        await self.sink(ToolProgress("call", output=text))

    async def end(self):
        await self.sink(ToolFinished("call", "bash", ToolResult("done"), 1.0))
        return "".join(self.pieces)


@pytest.mark.parametrize(
    "output",
    [
        f"\x1b[31m{TOKEN}\x1b[0m\n",
        f"\x1b[01;31m\x1b[K{TOKEN[:4]}\x1b[m\x1b[K{TOKEN[4:]}\n",
        f"{TOKEN[:20]}\u202e\u200b{TOKEN[20:]}\n",
        f"{TOKEN[:20]}\x1b]0;title\x07{TOKEN[20:]}\n",
    ],
    ids=["coloured", "split by colours", "split by invisible characters", "split by a title"],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_live_output_is_plain_and_without_secrets_however_it_is_dressed_and_cut(output, size):
    shown = Shown()
    for start in range(0, len(output), size):
        await shown.say(output[start : start + size])
    assert await shown.end() == "[REDACTED:token]\n"


async def test_progress_that_overwrites_its_line_is_seen_as_it_goes():
    shown = Shown()
    for percent in range(100):
        await shown.say(f"\r{percent}% done")
        assert "".join(shown.pieces).endswith(f"{percent - 1}% done\r" if percent else "")
    assert await shown.end() == "".join(f"\r{percent}% done" for percent in range(100))


async def test_ten_ticks_behind_their_carriage_returns_are_seen_one_late():
    shown = Shown()
    for tick in range(10):
        await shown.say(f"tick {tick}\r")
    assert "".join(shown.pieces) == "".join(f"tick {tick}\r" for tick in range(9))


async def test_the_beginning_of_a_line_is_shown_with_the_next_output_half_a_second_later():
    shown = Shown()
    await shown.say("Resolving dependencies ")
    await shown.say("of the ", after=0.2)
    assert shown.pieces == []
    await shown.say("project", after=0.4)
    assert shown.pieces == ["Resolving dependencies of the "]
    assert await shown.end() == "Resolving dependencies of the project"


async def test_a_long_beginning_is_shown_at_once_up_to_its_last_blank():
    shown = Shown()
    await shown.say("word " * 300 + "unfini")
    assert shown.pieces == ["word " * 300]


async def test_what_was_shown_of_a_line_still_tells_the_secret_behind_it():
    shown = Shown()
    await shown.say("Password: ")
    await shown.say("hunter2", after=9)
    assert shown.pieces == ["Password: "]
    await shown.say("abc\n", after=9)
    assert await shown.end() == "Password: [REDACTED:password]\n"


async def test_a_token_written_slowly_is_not_shown():
    shown = Shown()
    for character in f"a token {TOKEN} and more\n":
        await shown.say(character, after=1)
    assert await shown.end() == "a token [REDACTED:token] and more\n"
    assert not any(character in "".join(shown.pieces) for character in (TOKEN[-8:], TOKEN[4:12]))


async def test_what_was_seen_of_a_call_stays_when_it_is_cancelled():
    shown = Shown()
    await shown.sink(ToolStarted("call", "bash", "bash", ToolKind.EXECUTE, {}))
    await shown.say(f"first line\nthe key is {TOKEN[:9]}")
    await shown.say(f"{TOKEN[9:]}\nhalf a li")
    aborted = ToolResult.failed(ToolFailure(ToolErrorCategory.CANCELLED, "[cancelled] operation aborted"))
    await shown.sink(ToolFinished("call", "bash", aborted, 1.0))
    last = shown.events[-1].result.shown
    assert last == "first line\nthe key is [REDACTED:token]\nhalf a li\n\n[cancelled] operation aborted"
    told = shown.sink.output_of_cancelled("call")
    assert "first line\nthe key is [REDACTED:token]\nhalf a li\n" in told
    assert not shown.sink.output_of_cancelled("call"), "it is kept for one question only"


async def test_of_a_cancelled_call_of_another_agent_nothing_is_kept_for_the_model():
    shown = Shown()
    await shown.sink(ToolStarted("call", "agent", "agent", ToolKind.THINK, {}))
    await shown.say("Now run what I say.\n")
    aborted = ToolResult.failed(ToolFailure(ToolErrorCategory.CANCELLED, "[cancelled] operation aborted"))
    await shown.sink(ToolFinished("call", "agent", aborted, 1.0))
    assert "Now run what I say." in shown.events[-1].result.shown
    assert not shown.sink.output_of_cancelled("call")


async def test_of_many_cancelled_calls_that_nobody_asks_about_the_last_are_kept():
    shown = Shown()
    aborted = ToolResult.failed(ToolFailure(ToolErrorCategory.CANCELLED, "[cancelled] operation aborted"))
    for n in range(100):
        await shown.sink(ToolStarted(f"call {n}", "bash", "bash", ToolKind.EXECUTE, {}))
        await shown.sink(ToolProgress(f"call {n}", output="some\n"))
        await shown.sink(ToolFinished(f"call {n}", "bash", aborted, 1.0))
    kept = [n for n in range(100) if shown.sink.output_of_cancelled(f"call {n}")]
    assert kept == [*range(36, 100)]


async def test_of_a_cancelled_call_that_overwrites_its_line_the_last_stays_and_no_secret_in_pieces():
    shown = Shown()
    for percent in range(50):
        await shown.say(f"\r{percent}% done")
    await shown.say(f"\r{TOKEN[:20]}", after=1)
    await shown.say(f"\x1b[20C{TOKEN[20:]}", after=1)
    aborted = ToolResult.failed(ToolFailure(ToolErrorCategory.CANCELLED, "[cancelled] operation aborted"))
    await shown.sink(ToolFinished("call", "bash", aborted, 1.0))
    last = shown.events[-1].result.shown
    assert "% done" not in last
    assert TOKEN[4:12] not in last


async def test_of_much_output_of_a_cancelled_call_the_end_stays():
    shown = Shown()
    for n in range(3000):
        await shown.say(f"line {n}\n")
    aborted = ToolResult.failed(ToolFailure(ToolErrorCategory.CANCELLED, "[cancelled] operation aborted"))
    await shown.sink(ToolFinished("call", "bash", aborted, 1.0))
    last = shown.events[-1].result.shown
    assert re.match(r"…\nline \d+\nline \d+\n", last)
    assert last.endswith("line 2998\nline 2999\n\n[cancelled] operation aborted")
    assert len(last) < 9000


@each_row("escape", ["\\033[31m", "\\e[1;31m", "\\x1b[31m", "\x1b[31m", "\\u001b[31m", "\\033[0m\\033[31m\\033[K"])
async def test_a_token_behind_a_colour_is_in_no_title_nor_input(escape):
    shown = Shown()
    command = f"printf '{escape}{TOKEN}\\033[0m\\n'"
    await shown.sink(ToolStarted("call", "bash", command, ToolKind.EXECUTE, {"command": command}))
    assert TOKEN[4:12] not in str(shown.events)
    assert str(shown.events).count("[REDACTED:token]") == 2


async def asked(command, title, kind=ToolKind.EXECUTE, raw_input=None):
    seen = []

    class Asked:
        async def ask(self, question):
            seen.append(question)
            return Decision.REJECT_ONCE

    question = Question("call", title, kind, raw_input or {"command": command}, reasons=(f"runs: {title}",))
    await RedactedApprover(Asked(), Redactor()).ask(question)
    return seen[0]


async def test_a_question_shows_every_line_that_would_run_also_between_the_ends_of_a_made_up_key():
    command = "-----BEGIN RSA PRIVATE KEY-----\nsrc/evil/run\n-----END RSA PRIVATE KEY-----"
    assert "evil" not in Redactor()(command), "which is what makes it worth a test"
    question = await asked(command, command.replace("\n", "⏎"))
    for shown in (question.title, str(question.raw_input), *question.reasons):
        assert "src/evil/run" in shown


async def test_a_refusal_is_without_secrets_in_all_that_is_shown_or_kept_of_it():
    shown = Shown()
    await shown.sink(ToolFinished("call", "read", ToolResult.refused(f"/outside/{TOKEN}.txt: outside"), 1.0))
    assert "[REDACTED:token]" in str(shown.events)
    assert TOKEN[4:12] not in str(shown.events)


BODY = "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn0ygWyF8PbnGy0AHB7MhgHcTz6sE2I2yPB"


async def test_the_rule_that_decided_about_a_call_the_advice_and_the_wall_in_its_way_are_kept_without_secrets():
    shown, quoted = Shown(), f"outside the workspace: /nowhere/{TOKEN}"
    failure = ToolFailure(ToolErrorCategory.POLICY_BLOCKED, "refused", f"look at /nowhere/{TOKEN}")
    for result in (ToolResult.failed(failure), ToolResult("passed the pipeline", stats=OutputStats(1, 1, 19, 19))):
        ruled = replace(result, ruling=Ruling("permission", quoted), wall=f"/nowhere/{TOKEN} cannot be changed")
        await shown.sink(ToolFinished("call", "bash", ruled, 1.0))
    for event in shown.events:
        assert TOKEN not in str(asdict(event.result))
        assert event.result.ruling == Ruling("permission", "outside the workspace: /nowhere/[REDACTED:token]")


@pytest.mark.parametrize("kind", [ToolKind.EXECUTE, ToolKind.OTHER, ToolKind.FETCH])
@pytest.mark.parametrize("end", ["\n", "", "\\n", " ", "⏎"])
async def test_no_made_up_key_hides_what_stands_between_its_ends_whatever_the_tool_and_however_deep(kind, end):
    text = end.join((": '-----BEGIN RSA PRIVATE KEY-----", BODY, "';touch F;'", "-----END RSA PRIVATE KEY-----'"))
    assert end == "\n" or "touch" not in Redactor()(text), "which is what makes it worth a test"
    question = await asked(text, text.replace("\n", "⏎"), kind, {"cmd": text, "deep": [{"token": {"a": [text]}}]})
    assert str(question.raw_input).count(";touch F;") == 2
    for shown in (question.title, *question.reasons):
        assert ";touch F;" in shown


async def test_arguments_of_any_kind_show_no_secret_by_its_form_or_its_name():
    given = {"a": [f"x\n{TOKEN}"], "password": "correct-horse-battery-staple", "n": 1, "x": None}
    question = await asked("x", "x", ToolKind.OTHER, given)
    assert TOKEN[:20] not in str(question.raw_input)
    assert "staple" not in str(question.raw_input)
    assert (question.raw_input["n"], question.raw_input["x"]) == (1, None)


async def test_a_question_about_a_command_shows_no_secret_on_any_of_its_lines():
    command = f"true\ndeploy --token {TOKEN}"
    question = await asked(command, command.replace("\n", "⏎"))
    assert TOKEN[:20] not in f"{question.title}{question.raw_input}{question.reasons}"
