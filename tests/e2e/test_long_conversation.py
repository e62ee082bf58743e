"""Conversations that outgrow their context: cleared, summed up, or kept as they are when no summary comes."""

import json

import pytest

from tests.e2e.aided import SECRET, aided, last, offered, rows, system, told

pytestmark = pytest.mark.anyio

SMALL = (
    "[agent]\ncontext_budget_tokens = 6_000\ncompaction_soft = 0.5\ncompaction_hard = 0.8\n"
    'compress_provider = "chores:any"\ncompress_context = true\n'
)
BIG = "\n".join(f"line {number} of a long file" for number in range(300))  # about 2,000 tokens
METHODS = "SELECT compaction_method, text FROM summaries ORDER BY seq"


def prompt(word: str) -> str:
    """About 1,250 tokens."""
    return f"{word} " * (5_000 // (len(word) + 1))


async def test_old_outputs_are_cleared_and_old_turns_summed_up_by_the_named_model_when_room_gets_short(tmp_path):
    reads = [("read", {"path": f"{name}.txt"}) for name in "abc"]
    steps = [*reads, "first", "second", "third", "fourth"]
    async with aided(tmp_path, *steps, chores=f"They read. Key: {SECRET}", config=SMALL) as (session, model, second):
        for name in "abc":
            session.write(f"{name}.txt", f"this is {name}\n{BIG}")
        heard = await session.say("Read the files")
        assert "Cleared 1 old tool outputs" in heard
        assert "this is a" in told(model.requests[1])
        assert "[The output of read was cleared to save room" in told(model.requests[3])
        assert "this is a" not in told(model.requests[3])
        assert "this is c" in told(model.requests[3]), "the newest outputs stay"
        assert second.requests == [], "no model is asked for that"

        heard = await session.say(prompt("parrot"))
        assert heard.index("Summing up the conversation, with chores:any") < heard.index("(triggered)")
        (asked,) = second.requests
        assert "Read the files" in told(asked)
        assert "parrot" not in told(asked), "the current turn is not summed up"
        assert offered(asked) == []
        now = model.requests[-1]
        assert "<knowledge id=" in told(now)
        assert "They read. Key: [REDACTED" in told(now)
        assert SECRET not in told(now)
        assert "parrot" in told(now)
        assert "Read the files" not in told(now)
        assert [message["role"] for message in now["messages"]] == ["system", "user"]
        assert system(now) == system(model.requests[0]), "the prompt cache holds"

        when = "old output is left out at 50%, old messages are summed up at 80%"
        assert f"of 6,000 tokens; {when}; summaries: 1" in await session.status()
    assert [(method, SECRET in text) for method, text in rows(tmp_path, METHODS)] == [("triggered", False)]


async def test_the_conversation_of_a_sub_agent_is_cleared_and_summed_up_as_the_sessions_is(tmp_path):
    reads = [("read", {"path": f"{name}.txt"}) for name in "abc"]
    steer = ("agent", {"op": "steer", "id": "explore-1", "task": prompt("parrot")})
    steps = [("agent", {"agent": "explore", "task": "Look"}), *reads, "found", steer, "I wait", "all", "done"]
    async with aided(tmp_path, *steps, chores="They read.", config=SMALL) as (session, model, second):
        for name in "abc":
            session.write(f"{name}.txt", f"this is {name}\n{BIG}")
        await session.say("go")
        assert "this is a" in told(model.requests[2])
        assert "[The output of read was cleared to save room" in told(model.requests[4])
        assert "this is a" not in told(model.requests[4])
        cards = [call.text for call in session.calls]
        assert len(second.requests) == 1
        (summed,) = [request for request in model.requests if "<knowledge id=" in told(request)]
        assert "parrot" in told(summed)
        assert "They read." in told(summed)
        assert "summaries: 0" in await session.status(), "those of a sub-agent are none of the session"
    assert "found" in cards[0]
    assert rows(tmp_path, METHODS) == []


async def test_a_summary_on_request_stands_behind_those_there_are_and_nothing_goes_when_none_comes(tmp_path):
    steps = [prompt("answer"), ("compress_context", {"focus": "the port"}), "second", "third", "fourth", "fifth"]
    config = SMALL.replace("6_000", "50_000")
    async with aided(tmp_path, *steps, chores="It is about a parrot.", config=config) as (session, model, second):
        await session.say(prompt("parrot"))
        await session.say("And the port?")
        assert "Summed up 2 older messages (autonomous)" in last(model.requests[-1])
        assert "the port" in told(second.requests[0])
        assert session.calls[0].status == "completed"
        assert session.questions == 0
        assert "It is about a parrot." in told(model.requests[-1])
        assert "And the port?" in told(model.requests[-1])
        roles = [message["role"] for message in model.requests[-1]["messages"]]
        assert roles == ["system", "user", "assistant", "tool"], "the turn's own pairs stay"

        await session.say(prompt("cockatoo"))
        second.summary = "It is about a cockatoo, too."
        heard = await session.say("/compact which birds there are")
        assert "Summed up" in heard
        assert "(manual)" in heard
        *_, before, after = (update["used"] for update in session.editor.recording.updates("usage_update"))
        assert after < before / 2, "the editor is told how full the window is now"
        assert "Keep above all, where the record has it: which birds there are" in told(second.requests[-1])
        await session.say("Now")
        now = told(model.requests[-1])
        assert now.index("It is about a parrot.") < now.index("It is about a cockatoo, too.") < now.index("Now")
        assert now.count("<knowledge id=") == 2
        assert "summaries: 2" in await session.status()

        second.summary = ""
        await session.say(prompt("macaw"))
        before = told(model.requests[-1])
        heard = await session.say("/compact")
        assert "The conversation was not summed up: chores/any gave no summary" in heard
        assert "Nothing was removed." in heard
        await session.say("Still there?")
        assert told(model.requests[-1]).startswith(before)
        assert "summaries: 2" in await session.status()
    assert [method for method, _ in rows(tmp_path, METHODS)] == ["autonomous", "manual"]


async def test_a_failing_summary_keeps_all_and_says_so_and_the_turn_stops_before_the_context_is_full(tmp_path):
    steps = [prompt("one"), prompt("two"), "never said"]
    async with aided(tmp_path, *steps, chores="", config=SMALL) as (session, model, second):
        await session.say(prompt("parrot"))
        await session.say(prompt("cockatoo"))
        asked = len(model.requests)
        heard = await session.ends(prompt("macaw"), "max_tokens")
        assert "The conversation was not summed up: chores/any gave no summary" in heard
        assert "I stopped: the conversation fills about" in heard
        assert len(model.requests) == asked
        assert second.requests
        second.summary = "Birds."
        assert "Summed up 4 older messages" in await session.say("/compact")
        assert await session.say("Go on") == "never said"
        assert "Birds." in told(model.requests[-1])


async def test_without_compaction_a_turn_stops_at_80_percent_and_the_window_is_the_users_to_clear(tmp_path):
    config = "[agent]\ncontext_budget_tokens = 3_000\ncompaction = false\n"
    async with aided(tmp_path, prompt("one"), "two", config=config) as (session, model, second):
        await session.say(prompt("parrot"))
        assert "Context:" not in await session.status()
        heard = await session.ends("Go on", "max_tokens")
        assert "I stopped" in heard
        assert len(model.requests) == 1
        model.summary = "A parrot."
        assert "Summed up 2 older messages (manual)" in await session.say("/compact")
        assert second.requests == [], "without compress_provider the conversation's own model writes it"
        assert await session.say("Go on") == "two"
        assert "compress_context" not in json.dumps(model.requests)
        assert "old messages are summed up on request only; summaries: 1" in await session.status()
