"""The selection of tools in the loop: what the model is sent, what runs, what is stored, what the user sees."""

import json
from collections.abc import Mapping, Sequence

import pytest

from acp_agent.agent.aids.arguments import FIELD, Tafc
from acp_agent.agent.aids.dependencies import Dependencies, Needs
from acp_agent.agent.aids.selection import AidedToolSelection, SchemaFilter, WordRanking
from acp_agent.agent.hooks import Hooks
from acp_agent.core.messages import ModelStop, StopReason, ToolUsePart
from acp_agent.core.ports import ModelRequest
from acp_agent.log import Log
from tests.fakes.scripted_provider import Script, Step, call, say, use
from tests.unit.agent.conversation import Conversation
from tests.unit.agent.conversation_rules import assert_acceptable
from tests.unit.agent.tool_specs import ALL, PULL, QUERY, names

pytestmark = pytest.mark.anyio

THOUGHT = "the staging cluster, surely"


def conversation(
    script: Sequence[Script],
    *,
    threshold: float | None = None,
    top_k: int = 0,
    needs: Mapping[str, Needs] | None = None,
) -> Conversation:
    """A session with all tools of `tool_specs`, each of which says its name."""
    offer = AidedToolSelection(
        Log("test"),
        tafc=None if threshold is None else Tafc(threshold),
        schema_filter=SchemaFilter(WordRanking(), top_k=top_k, min_description_words=3, always_on=("read", "bash"))
        if top_k
        else None,
        dependencies=Dependencies(
            needs,
            boost_per_dep=0.15,
            max_total_boost=0.2,
            always_on=(),
            joining=lambda: False,
            warn=pytest.fail,
        )
        if needs
        else None,
    )
    made = Conversation(script, {spec.name: _answer for spec in ALL}, hooks=Hooks(selection=offer))
    made.toolset._specs = [*ALL]
    return made


def _answer(made_call) -> str:
    return f"{made_call.name} {json.dumps(made_call.arguments)}"


def thinking(name: str, **arguments) -> ToolUsePart:
    return call(name, **{FIELD: THOUGHT}, **arguments)


def everything(session: Conversation) -> str:
    """All that anybody could read of the session: the model's next request, the tools' calls, the user's events."""
    return repr(
        (session.provider.requests[-1].messages, session.history.messages(), session.toolset.calls, session.events)
    )


async def test_a_thought_reaches_neither_tool_nor_history_nor_user():
    session = conversation([use(thinking("edit", path="a.py"), text="So."), say("Done.")], threshold=0.0)

    assert await session.prompt() is StopReason.END_TURN

    dressed = session.provider.requests[0].tools
    assert all(next(iter(spec.parameters["properties"])) == FIELD for spec in dressed if spec.parameters["properties"])
    assert [made_call.arguments for made_call in session.toolset.calls] == [{"path": "a.py"}]
    assert [result.text for result in session.results] == ['edit {"path": "a.py"}']
    assert THOUGHT not in everything(session)
    assert FIELD not in repr(session.history.messages())


async def test_a_call_that_is_only_a_thought_is_answered_and_the_model_goes_on():
    session = conversation(
        [use(thinking("edit"), call("read", path="a")), use(thinking("edit", path="a")), say("Done.")], threshold=0.0
    )

    assert await session.prompt() is StopReason.END_TURN

    assert [made_call.name for made_call in session.toolset.calls] == ["read", "edit"]
    first, second, third = session.results
    assert first.is_error
    assert "it was not run" in first.text
    assert (second.text, third.text) == ('read {"path": "a"}', 'edit {"path": "a"}')
    assert_acceptable(session.history.messages())


async def test_a_model_that_only_ever_thinks_is_stopped():
    session = conversation([use(thinking("edit"))] * 6, threshold=0.0)
    assert await session.prompt() is StopReason.END_TURN
    assert not session.toolset.calls
    assert len(session.provider.requests) == 6


async def test_broken_arguments_keep_the_thought_from_history_and_tools():
    broken = ToolUsePart("t1", "edit", None, f'{{"path": "a", "{FIELD}": "{THOUGHT}"')
    session = conversation([use(broken), say("Sorry.")], threshold=0.0)
    await session.prompt()
    assert session.results[0].is_error
    assert THOUGHT not in everything(session)


async def test_an_answer_cut_off_within_a_thought_keeps_nothing_of_it():
    cut = Step(calls=(ToolUsePart("t1", "edit", None, f'{{"{FIELD}": "{THOUGHT}'),), stop=ModelStop.MAX_TOKENS)
    session = conversation([cut, say("Again.")], threshold=0.0)
    assert await session.prompt() is StopReason.END_TURN
    assert THOUGHT not in everything(session)
    assert_acceptable(session.history.messages())


async def test_each_turn_has_the_tools_that_fit_its_prompt_and_keeps_them():
    session = conversation([use(call(QUERY.name, sql="x")), say("Done."), say("Done.")], top_k=1)

    await session.prompt("query the database")
    await session.prompt("merge the pull request")

    first, second, third = (names(request.tools) for request in session.provider.requests)
    assert first == second
    assert QUERY.name in first
    assert PULL.name not in first
    assert PULL.name in third
    assert QUERY.name not in third


async def test_a_tool_the_model_remembers_from_before_runs_and_is_shown_again():
    session = conversation([say("Done."), use(call(QUERY.name, sql="x")), say("Done.")], top_k=1)

    await session.prompt("query the database")
    await session.prompt("merge the pull request")

    assert [made_call.name for made_call in session.toolset.calls] == [QUERY.name]
    assert [QUERY.name in names(request.tools) for request in session.provider.requests] == [True, False, True]


async def test_a_tool_that_waits_appears_when_what_it_requires_has_succeeded():
    session = conversation(
        [use(call("edit", path="a"), call("read", path="a")), use(call("edit", path="a")), say("Done."), say("Done.")],
        needs={"edit": Needs(requires=("read",))},
    )

    await session.prompt()
    await session.prompt()

    assert [made_call.name for made_call in session.toolset.calls] == ["read", "edit"]
    refused, *others = session.results
    assert "\n[advice] Call read first." in refused.text
    assert not any(result.is_error for result in others)
    assert ["edit" in names(request.tools) for request in session.provider.requests] == [False, True, True, True]
    assert_acceptable(session.history.messages())


async def test_requests_of_a_turn_carry_the_same_bytes_of_tools():
    script = [use(call("read", path=str(i))) for i in range(4)]
    session = conversation([*script, say("Done.")], threshold=0.0, top_k=2)

    await session.prompt("query the database")

    first, *others = (_tool_bytes(request) for request in session.provider.requests)
    assert set(others) == {first}


def _tool_bytes(request: ModelRequest) -> str:
    return json.dumps([(spec.name, spec.description, spec.parameters) for spec in request.tools])
