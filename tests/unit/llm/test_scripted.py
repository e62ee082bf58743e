"""Scripts: what they may say, how they are checked, and where a conversation stands in one."""

import json
from pathlib import Path

import anyio
import pytest

from acp_agent.agent import prompt as notes
from acp_agent.core.errors import ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.messages import (
    Message,
    ModelDone,
    ModelEvent,
    ModelStop,
    ModelText,
    Role,
    TextPart,
    ToolResultPart,
    Usage,
)
from acp_agent.core.ports import ModelRequest
from acp_agent.llm.scripted import PACKAGED, Script, ScriptedProvider, load_script
from tests.rows import each_row

pytestmark = pytest.mark.anyio


def provider(toml: str, tmp_path: Path) -> ScriptedProvider:
    path = tmp_path / "script.toml"
    path.write_text(toml, "utf-8")
    return ScriptedProvider("scripted", "mine", load_script(str(path)), 1000)


def said(text: str) -> Message:
    return Message(Role.USER, (TextPart(text),))


async def play(model: ScriptedProvider, *history: Message) -> ModelDone:
    with anyio.fail_after(20):
        events = [event async for event in model.stream(ModelRequest("", history))]
    assert isinstance(events[-1], ModelDone)
    return events[-1]


async def play_turn(model: ScriptedProvider, history: list[Message], prompt: str) -> list[Message]:
    """A whole turn, every tool call answered."""
    history.append(said(prompt))
    while True:
        done = await play(model, *history)
        history.append(done.message)
        if done.stop is not ModelStop.TOOL_USE:
            return history
        history.append(Message(Role.USER, tuple(ToolResultPart(use.id, "ok") for use in done.message.tool_uses)))


STORY = """
[[turns]]
when = "^fix"
[[turns.steps]]
text = "I look."
tools = [{ name = "read", arguments = { path = "a" } }, { name = "read", arguments = { path = "b" } }]
[[turns.steps]]
text = "Fixed."

[[turns]]
[[turns.steps]]
text = "Anything else?"
"""


async def test_the_last_user_text_picks_the_turn_and_answers_since_pick_the_step(tmp_path: Path) -> None:
    history = await play_turn(provider(STORY, tmp_path), [], "FIX it")
    assert [message.text for message in history] == ["FIX it", "I look.", "", "Fixed."]
    history = await play_turn(provider(STORY, tmp_path), history, "thanks")
    assert history[-1].text == "Anything else?"
    history = await play_turn(provider(STORY, tmp_path), history, "fix more")
    assert [message.text for message in history[-3:]] == ["I look.", "", "Fixed."]


async def test_call_ids_differ_over_the_whole_conversation(tmp_path: Path) -> None:
    history: list[Message] = []
    for prompt in ("fix", "fix again"):
        await play_turn(provider(STORY, tmp_path), history, prompt)
    ids = [use.id for message in history for use in message.tool_uses]
    assert len(ids) == len(set(ids)) == 4


async def test_the_same_request_gives_the_same_answer_whatever_went_on_meanwhile(tmp_path: Path) -> None:
    model = provider(STORY, tmp_path)
    first = await play(model, said("fix"))
    await play_turn(model, [], "fix")
    assert await play(model, said("fix")) == first


async def test_words_beside_tool_results_do_not_start_the_turn_again(tmp_path: Path) -> None:
    model = provider(STORY, tmp_path)
    first = (await play(model, said("fix"))).message
    reminder = Message(Role.USER, (ToolResultPart("call_1_0", "ok"), TextPart("fix: remember the mode")))
    assert (await play(model, said("fix"), first, reminder)).message.text == "Fixed."


@pytest.mark.parametrize("note", [notes.CANCELLED, notes.INTERRUPTED])
@pytest.mark.parametrize("cut_off", ["before the answer", "in the answer", "in a call"])
async def test_a_turn_that_was_cut_off_is_not_played_again_for_the_next_prompt(
    tmp_path: Path, note: str, cut_off: str
) -> None:
    model = provider(STORY, tmp_path)
    behind = (TextPart(note), TextPart("thanks"))
    use = (await play(model, said("fix it"))).message
    match cut_off:
        case "before the answer":
            history = [Message(Role.USER, (TextPart("fix it"), *behind))]
        case "in the answer":
            history = [said("fix it"), Message(Role.ASSISTANT, (TextPart("I l"),)), Message(Role.USER, behind)]
        case _:
            results = tuple(ToolResultPart(each.id, "cancelled", is_error=True) for each in use.tool_uses)
            history = [said("fix it"), use, Message(Role.USER, (*results, *behind))]
    assert (await play(model, *history)).message.text == "Anything else?"


async def test_a_looping_turn_starts_over(tmp_path: Path) -> None:
    model = provider("[[turns]]\nloop = true\n[[turns.steps]]\ntext='a'\n[[turns.steps]]\ntext='b'", tmp_path)
    answer = Message(Role.ASSISTANT, (TextPart("x"),))
    texts = [(await play(model, said("go"), *[answer] * n)).message.text for n in range(4)]
    assert texts == ["a", "b", "a", "b"]


async def test_a_script_at_its_end_and_a_prompt_it_has_no_turn_for_are_errors(tmp_path: Path) -> None:
    model = provider("[[turns]]\nwhen='^a'\n[[turns.steps]]\ntext='a'", tmp_path)
    answer = Message(Role.ASSISTANT, (TextPart("x"),))
    with pytest.raises(ProviderError, match="only 1 steps"):
        await play(model, said("a"), answer)
    with pytest.raises(ProviderError, match="no turn for the prompt 'b'"):
        await play(model, said("b"))


async def test_an_error_comes_after_the_chunks(tmp_path: Path) -> None:
    step = "text='Hel'\nerror={kind='overloaded', message='busy', retry_after=2}"
    model = provider(f"[[turns]]\n[[turns.steps]]\n{step}", tmp_path)
    seen: list[ModelEvent] = []

    async def consume() -> None:
        seen.extend([event async for event in model.stream(ModelRequest("", (said("x"),)))])

    with pytest.raises(ProviderError, match="busy") as caught:
        await consume()
    assert (caught.value.kind, caught.value.retry_after) == (ProviderErrorKind.OVERLOADED, 2)


async def test_a_hanging_step_ends_only_by_cancellation(tmp_path: Path) -> None:
    model = provider("[[turns]]\n[[turns.steps]]\ntext='Hel'\nhang=true", tmp_path)
    seen: list[ModelEvent] = []
    with anyio.fail_after(20), anyio.CancelScope() as scope:
        async for event in model.stream(ModelRequest("", (said("x"),))):
            seen.append(event)
            scope.cancel()
    assert scope.cancelled_caught
    assert seen == [ModelText("Hel")]


async def test_stop_and_usage_can_be_told_and_usage_is_estimated_otherwise(tmp_path: Path) -> None:
    told = provider("[[turns]]\n[[turns.steps]]\ntext='a'\nstop='max_tokens'\nusage={input=7,output=3}", tmp_path)
    done = await play(told, said("x"))
    assert (done.stop, done.usage) == (ModelStop.MAX_TOKENS, Usage(input=7, output=3))
    estimated = await play(provider("[[turns]]\n[[turns.steps]]\ntext='abcdefgh'", tmp_path), said("x" * 400))
    assert estimated.usage == Usage(input=100, output=2)


async def test_json_scripts_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"turns": [{"steps": [{"text": ["a", "b"]}]}]}))
    assert load_script(str(path)).turns[0].steps[0].text == ("a", "b")


@each_row(
    "toml, told",
    [
        ("turns = [", "valid TOML"),
        ("", "turns: expected a value: the key is required"),
        ("turns = []", "turns = []: expected"),
        ("[[turns]]\n[[turns.steps]]", "turns.0.steps.0 = {}: expected a step with at least one of"),
        ("[[turns]]\n[[turns.steps]]\ntext=3", "turns.0.steps.0.text = 3: expected a string or a list of strings"),
        ("[[turns]]\n[[turns.steps]]\ntext=['a',3]", "turns.0.steps.0.text.1 = 3: expected a valid string"),
        ("[[turns]]\n[[turns.steps]]\ntxt='a'", "turns.0.steps.0.txt = 'a': expected no such key"),
        ("[[turns]]\nwhen='('\n[[turns.steps]]\ntext='a'", "turns.0.when = '(': expected a regular expression"),
        ("[[turns]]\n[[turns.steps]]\ntext='a'\ndelay_ms='5'", "delay_ms = '5': expected a valid integer"),
        ("[[turns]]\n[[turns.steps]]\ntext='a'\nhang='yes'", "hang = 'yes': expected a valid boolean"),
        ("[[turns]]\n[[turns.steps]]\ntools=[{}]", "tools.0.name: expected a value"),
        ("[[turns]]\n[[turns.steps]]\nerror={kind='x',message='y'}", "error.kind = 'x': expected 'auth'"),
    ],
)
async def test_a_bad_script_names_file_key_value_and_what_was_expected(tmp_path: Path, toml: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        provider(toml, tmp_path)
    assert told in str(caught.value)
    assert "script.toml" in str(caught.value)


async def test_a_script_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(ConfigError, match="packaged scripts demo, hello"):
        load_script("./no/such/script.toml")
    with pytest.raises(ConfigError, match="packaged scripts demo, hello"):
        load_script("no\0path")


async def test_a_binary_file_is_no_script(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="readable script file"):
        load_script(str(tmp_path / "s.toml"))


@pytest.mark.parametrize("name", PACKAGED)
async def test_packaged_scripts_are_valid_and_answer_any_prompt(name: str) -> None:
    model = ScriptedProvider("scripted", name, load_script(name), 1000)
    history = await play_turn(model, [], "whatever the user says")
    assert history[-1].text


async def test_the_demo_mends_the_bug_between_two_test_runs() -> None:
    script: Script = load_script("demo")
    calls = [(call.name, call.arguments) for step in script.turns[0].steps for call in step.tools]
    tests = ("bash", {"command": "python3 -m unittest -v"})
    edit = {
        "path": "inventory/stock.py",
        "old_string": "    return sum(item.price for item in items)",
        "new_string": "    return sum(item.price * item.quantity for item in items)",
    }
    assert calls == [
        ("list_directory", {"path": "."}),
        ("read", {"path": "inventory/stock.py"}),
        ("read", {"path": "tests/test_stock.py"}),
        tests,
        ("edit", edit),
        tests,
    ]
