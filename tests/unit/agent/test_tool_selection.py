"""The selection of tools: with the field for thinking, filtered, behind dependencies, and all of it undone."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.agent.aids.arguments import FIELD, Tafc
from acp_agent.agent.aids.dependencies import Dependencies, Needs
from acp_agent.agent.aids.selection import INDISPENSABLE, AidedToolSelection, SchemaFilter, WordRanking
from acp_agent.agent.hooks import ToolSelection
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.messages import Message, Role, TextPart, ToolUsePart
from acp_agent.core.types import JsonObject, ToolResult, ToolSpec
from tests.unit.agent.tool_specs import ALL, EDIT, ISSUE, PULL, QUERY, SCRAPE, TERSE, WEATHER, names, of_server

pytestmark = pytest.mark.anyio

ALWAYS_ON = ("read", "bash")


class Written:
    """A debug log that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def debug(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))


def made(
    *, threshold: float | None = None, top_k: int | None = None, needs: dict[str, Needs] | None = None, log=None
) -> tuple[AidedToolSelection, list[str]]:
    """An offer of the parts that are given something, and its warnings."""
    told: list[str] = []
    schema_filter = top_k and SchemaFilter(WordRanking(), top_k=top_k, min_description_words=3, always_on=ALWAYS_ON)
    dependencies = needs and Dependencies(
        needs,
        boost_per_dep=0.15,
        max_total_boost=0.2,
        always_on=schema_filter.always_on if schema_filter else INDISPENSABLE,
        joining=lambda: False,
        warn=told.append,
    )
    tafc = None if threshold is None else Tafc(threshold)
    offer = AidedToolSelection(
        log or Written(), tafc=tafc, schema_filter=schema_filter or None, dependencies=dependencies or None
    )
    return offer, told


def user(text: str) -> Message:
    return Message(Role.USER, (TextPart(text),))


def calls(*uses: tuple[str, JsonObject]) -> Message:
    parts = tuple(ToolUsePart(f"c{i}", name, arguments) for i, (name, arguments) in enumerate(uses))
    return Message(Role.ASSISTANT, parts)


def done(offer: ToolSelection, *tools: str, failure: ToolFailure | None = None) -> None:
    offer.finished([(ToolUsePart("x", tool, {}), ToolResult("", failure=failure)) for tool in tools])


async def test_with_nothing_switched_on_all_goes_through():
    for offer in (ToolSelection(), made()[0]):
        message = calls(("read", {FIELD: "x"}))
        await offer.begin(user("go"), ALL)
        assert [*offer.offered(ALL)] == [*ALL]
        assert offer.received(message).message == message
        assert not offer.received(message).answered
        done(offer, "read")
        offer.clear()
        assert not offer.status()


async def test_the_filter_chooses_and_dependencies_gate_what_it_chose():
    offer, told = made(
        top_k=2, needs={QUERY.name: Needs(requires=(SCRAPE.name,)), PULL.name: Needs(requires=("read",))}
    )
    await offer.begin(user("query the database for open issues"), ALL)

    assert names(offer.offered(ALL)) == ["read", "bash", SCRAPE.name, ISSUE.name, TERSE.name]
    done(offer, SCRAPE.name)
    assert names(offer.offered(ALL)) == ["read", "bash", ISSUE.name, QUERY.name, TERSE.name]
    assert not told


async def test_a_call_of_a_tool_that_waits_is_answered_and_of_a_filtered_one_runs():
    offer, _ = made(top_k=1, needs={"edit": Needs(requires=("grep", "read"))})
    await offer.begin(user("query the database"), ALL)
    assert PULL.name not in names(offer.offered(ALL))

    received = offer.received(calls((PULL.name, {}), ("edit", {}), ("read", {}), ("no_such_tool", {})))

    assert [*received.answered] == ["c1"]
    failure = received.answered["c1"].failure
    assert failure is not None
    assert failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert failure.suggestion == "Call read first.", "nobody offers grep"
    assert PULL.name in names(offer.offered(ALL)), "the model works with it, so it sees it"


@pytest.mark.parametrize("name", ["edit", "EDIT", "str_replace", "Edit_File"])
async def test_no_other_name_of_a_tool_is_a_way_around_its_gate(name):
    offer, _ = made(needs={"edit": Needs(requires=("read",))})
    await offer.begin(user("go"), ALL)
    offer.offered(ALL)
    assert offer.received(calls((name, {}))).answered
    done(offer, "cat")
    assert not offer.received(calls((name, {}))).answered


async def test_only_a_success_sets_free_and_a_new_conversation_forgets_it():
    offer, _ = made(needs={"edit": Needs(requires=("read",))})
    await offer.begin(user("go"), ALL)
    done(offer, "read", failure=ToolFailure(ToolErrorCategory.TIMEOUT, "too slow"))
    assert EDIT not in offer.offered(ALL)
    done(offer, "read")
    assert EDIT in offer.offered(ALL)
    offer.clear()
    assert EDIT not in offer.offered(ALL)


async def test_naming_a_tool_opens_its_gate_for_the_turn_even_without_a_filter():
    offer, _ = made(needs={"edit": Needs(requires=("read",))})
    await offer.begin(user("just edit it"), ALL)
    assert EDIT in offer.offered(ALL)
    await offer.begin(user("and again"), ALL)
    assert EDIT not in offer.offered(ALL)


async def test_a_call_that_waits_is_told_so_even_if_it_was_only_a_thought():
    offer, _ = made(threshold=0.0, needs={"edit": Needs(requires=("read",))})
    await offer.begin(user("go"), ALL)
    offer.offered(ALL)

    received = offer.received(
        calls(("edit", {FIELD: "hm"}), ("read", {FIELD: "hm"}), ("read", {FIELD: "hm", "path": "a"}))
    )

    assert [use.arguments for use in received.message.tool_uses] == [{}, {}, {"path": "a"}]
    assert {id_: result.failure.category.value for id_, result in received.answered.items() if result.failure} == {
        "c0": "policy_blocked",
        "c1": "invalid_parameters",
    }


async def test_preferred_tools_that_succeeded_change_the_ranking_of_the_next_turn():
    prompt = user("what about the repository?")
    offer, _ = made(top_k=1, needs={PULL.name: Needs(prefers=("read",))})
    await offer.begin(prompt, ALL)
    assert ISSUE.name in names(offer.offered(ALL))
    done(offer, "read")
    assert ISSUE.name in names(offer.offered(ALL)), "within a turn nothing that is shown goes away"
    await offer.begin(prompt, ALL)
    assert PULL.name in names(offer.offered(ALL))
    assert ISSUE.name not in names(offer.offered(ALL))


async def test_the_log_says_of_every_tool_why_it_is_in_or_out_and_only_when_that_changes():
    log = Written()
    offer, _ = made(top_k=1, needs={QUERY.name: Needs(requires=(SCRAPE.name,))}, log=log)
    await offer.begin(user("query the database"), ALL)
    offer.offered(ALL)
    offer.offered(ALL)

    ((event, fields),) = log.lines
    assert event == "tools offered"
    assert fields == {
        "included": {
            "read": "always on",
            "bash": "always on",
            SCRAPE.name: "prerequisite of another",
            TERSE.name: "short description",
        },
        "excluded": {name: fields["excluded"][name] for name in ("edit", ISSUE.name, PULL.name, WEATHER.name)},
        "dependency_exclusions": {QUERY.name: f"waits for {SCRAPE.name}"},
    }
    assert all(str(why).startswith("rank ") for why in fields["excluded"].values())


async def test_status_has_a_line_for_each_part_that_is_on():
    offer, _ = made(threshold=0.6, top_k=1, needs={"edit": Needs(requires=("read",))})
    await offer.begin(user("query the database"), ALL)
    offer.offered(ALL)
    assert [line.partition(":")[0] for line in offer.status()] == [
        "Thinking before calls (TAFC)",
        "Tool filter",
        "Dependencies",
    ]
    assert [line.partition(":")[0] for line in made(top_k=1)[0].status()] == ["Tool filter"]


# ----------------------------------------------------------------------------------------------- properties

LATE = of_server("late", "list_builds", "List the builds of a branch.", "branch")
TOOL = st.sampled_from([spec.name for spec in (*ALL, LATE)])
NEEDS = st.dictionaries(
    TOOL,
    st.builds(
        lambda requires, prefers: Needs(tuple(requires), tuple(prefers)),
        st.lists(TOOL | st.just("unknown"), max_size=3),
        st.lists(TOOL, max_size=3),
    ),
    max_size=6,
)
PROMPTS = st.lists(st.sampled_from(["web", "database", "issue", "edit", "weather", "build", "it"]), max_size=4).map(
    " ".join
)
STEP = st.tuples(st.sets(TOOL, max_size=3), st.booleans())


def as_bytes(specs: Sequence[ToolSpec]) -> bytes:
    return json.dumps([(spec.name, spec.description, spec.parameters) for spec in specs]).encode()


@given(
    st.sampled_from([None, 0.0, 0.6]),
    st.none() | st.integers(1, 4),
    NEEDS,
    st.lists(st.tuples(PROMPTS, st.lists(STEP, max_size=3)), max_size=3),
)
@example(None, 1, {}, [("", [(set(), True)]), ("web", [(set(), False), (set(), True)])])
async def test_whatever_happens_what_is_shown_has_a_reason_and_the_same_bytes(threshold, top_k, needs, turns):
    log = Written()
    offer, _ = made(threshold=threshold, top_k=top_k, needs=needs, log=log)
    catalogue = [*ALL]
    seen: dict[str, bytes] = {}
    for prompt, steps in turns:
        await offer.begin(user(prompt), catalogue)
        for called, late in steps:
            catalogue = [*ALL, LATE] if late else [*ALL]
            shown = offer.offered(catalogue)
            assert as_bytes(shown) == as_bytes(offer.offered([*catalogue])), "equal calls give equal bytes"
            for spec in shown:
                assert seen.setdefault(spec.name, as_bytes([spec])) == as_bytes([spec])
            order = names(catalogue)
            assert names(shown) == sorted(names(shown), key=order.index), "the order of the catalogue"
            if log.lines:
                fields = log.lines[-1][1]
                assert {*fields["included"], *fields["excluded"], *fields["dependency_exclusions"]} >= {*order}
                assert not {*fields["included"]} & {*fields["excluded"], *fields["dependency_exclusions"]}
            received = offer.received(calls(*((name, {"path": "a"}) for name in sorted(called))))
            refused = {use.name for use in received.message.tool_uses if use.id in received.answered}
            assert refused.isdisjoint(names(shown)), "what is shown may be called"
            done(offer, *(called - refused))
