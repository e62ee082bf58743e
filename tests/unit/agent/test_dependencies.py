"""Tools that wait for others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.agent.aids.dependencies import Dependencies, Needs, SelectionChanges
from acp_agent.core.errors import ToolErrorCategory

KNOWN = ("read", "grep", "edit", "write", "bash", "mcp_ci_check", "mcp_ci_deploy")


class Told(list[str]):
    """Warnings, in order."""


def depending(needs: dict[str, Needs], *, always_on=(), joining=lambda: False, per_dep=0.15, most=0.2):
    told = Told()
    made = Dependencies(
        needs, boost_per_dep=per_dep, max_total_boost=most, always_on=always_on, joining=joining, warn=told.append
    )
    return made, told


def after(*names: str) -> Needs:
    return Needs(requires=names)


# --------------------------------------------------------------------------------------------------- gates


def test_a_tool_is_hidden_until_all_it_requires_has_succeeded():
    deps, told = depending({"edit": after("read", "grep")})
    assert deps.changes(KNOWN, KNOWN) == SelectionChanges({"edit": ("read", "grep")})
    deps.completed("read")
    assert deps.changes(KNOWN, KNOWN) == SelectionChanges({"edit": ("grep",)})
    deps.completed("grep")
    assert deps.changes(KNOWN, KNOWN) == SelectionChanges({})
    deps.begin(frozenset())
    assert deps.changes(KNOWN, KNOWN) == SelectionChanges({}), "it lasts for the session"
    deps.clear()
    assert deps.changes(KNOWN, KNOWN) == SelectionChanges({"edit": ("read", "grep")})
    assert not told


def test_aliases_mean_their_tools_and_two_names_of_one_tool_are_one():
    deps, _ = depending({"edit_file": after("cat"), "str_replace": after("Read", "rg")})
    assert deps.changes(KNOWN, KNOWN).hidden == {"edit": ("read", "grep")}


def test_a_refusal_names_what_is_missing_and_what_to_do():
    deps, _ = depending({})
    result = deps.refusal("edit", ("read", "grep"))
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert result.text == (
        "[error] edit waits for read and grep to succeed in this session; it was not run.\n"
        "[advice] Call read and grep first."
    )


def test_a_tool_the_user_names_waits_for_nothing_in_that_turn():
    deps, _ = depending({"edit": after("read")})
    deps.begin(frozenset({"edit"}))
    assert not deps.changes(KNOWN, KNOWN).hidden
    deps.begin(frozenset())
    assert deps.changes(KNOWN, KNOWN).hidden


def test_a_tool_that_is_always_on_waits_for_nothing_and_the_user_is_told():
    deps, told = depending({"edit": after("read"), "write": after("read"), "bash": Needs()}, always_on=("edit", "bash"))
    assert deps.changes(KNOWN, KNOWN).hidden == {"write": ("read",)}
    assert told == ["tools.dependencies: edit is always on (agent.tool_filter.always_on): what it requires is ignored"]


def test_what_a_hidden_tool_waits_for_takes_its_place_where_the_filter_had_left_it_out():
    deps, _ = depending({"edit": after("write"), "write": after("read"), "bash": after("read", "grep")})
    changes = deps.changes(("edit", "bash", "grep"), KNOWN)
    assert changes == SelectionChanges({"edit": ("write",), "bash": ("read", "grep")}, frozenset({"read"}))


# --------------------------------------------------------------------------------- names, cycles, deadlocks


def test_a_name_nobody_offers_is_told_once_and_ignored():
    deps, told = depending({"edit": after("raed"), "absent": after("gone")})
    assert not deps.changes(KNOWN, KNOWN).hidden
    assert not deps.changes(KNOWN, KNOWN).hidden
    assert told == ["tools.dependencies: edit requires raed, not offered in this session: ignored"]


def test_while_tools_may_still_join_an_unknown_one_is_waited_for():
    starting = [True]
    deps, told = depending({"bash": after("mcp_late_check")}, joining=lambda: starting[0])
    assert deps.changes(KNOWN, KNOWN) == SelectionChanges({"bash": ("mcp_late_check",)})
    assert not told

    joined = (*KNOWN, "mcp_late_check")
    starting[0] = False
    assert deps.changes(joined, joined) == SelectionChanges({"bash": ("mcp_late_check",)})
    assert not told
    assert not deps.changes(KNOWN, KNOWN).hidden, "it never came, or is gone again"
    assert len(told) == 1


def test_tools_that_require_each_other_require_nothing_and_are_told_together():
    deps, told = depending(
        {
            "read": after("grep"),
            "grep": after("edit", "bash"),
            "edit": after("read"),
            "write": after("write"),
            "mcp_ci_deploy": after("read"),
        }
    )
    assert deps.changes(KNOWN, KNOWN).hidden == {"mcp_ci_deploy": ("read",)}
    assert told == [
        "tools.dependencies: the requirements of read, grep, edit form a cycle: ignored",
        "tools.dependencies: the requirements of write form a cycle: ignored",
    ]


def test_when_every_tool_that_is_not_always_on_waits_none_does_until_the_turn_ends():
    deps, told = depending({"edit": after("read"), "write": after("read")}, always_on=("read",))
    included = ("read", "edit", "write")
    assert deps.changes(included, included) == SelectionChanges({})
    assert deps.missing("edit", included) == ()
    assert len(told) == 1
    deps.begin(frozenset())
    assert deps.changes((*included, "bash"), (*included, "bash")).hidden == {"edit": ("read",), "write": ("read",)}
    assert len(told) == 1


# -------------------------------------------------------------------------------------------------- boosts


def test_preferred_tools_that_have_succeeded_boost_up_to_a_limit():
    deps, _ = depending({"edit": Needs(prefers=("read", "rg", "bash")), "write": Needs(prefers=("read",))})
    assert deps.boosts() == {}
    deps.completed("read")
    assert deps.boosts() == {"edit": 0.15, "write": 0.15}
    deps.completed("grep")
    deps.completed("bash")
    assert deps.boosts() == {"edit": 0.2, "write": 0.15}
    deps.clear()
    assert deps.boosts() == {}


def test_status_says_who_waits_for_what():
    deps, _ = depending({"edit": after("read"), "write": after("read", "grep")})
    deps.completed("read")
    assert deps.status(KNOWN) == "Dependencies: 2 tools depend on others, 1 tool has succeeded, write waits for grep"
    deps.completed("grep")
    assert deps.status(KNOWN) == "Dependencies: 2 tools depend on others, 2 tools have succeeded, none waits"


# ----------------------------------------------------------------------------------------------- properties

TOOLS = st.sampled_from([f"t{i}" for i in range(7)])
NEEDS = st.dictionaries(TOOLS, st.lists(TOOLS, max_size=4).map(lambda names: after(*names)), max_size=7)
SETS = st.sets(TOOLS)


@given(NEEDS, st.sets(TOOLS, min_size=1), SETS, SETS, SETS)
def test_whatever_the_rules_every_tool_the_filter_left_in_can_be_set_free(needs, known, left_in, always_on, mentioned):
    """By calling only what is shown, round by round."""
    included = sorted(known & (left_in | always_on))
    deps, _ = depending(needs, always_on=always_on)
    deps.begin(frozenset(mentioned & known))
    done: set[str] = set()
    for _ in range(len(known) + 1):
        changes = deps.changes(included, known)
        shown = (set(included) - changes.hidden.keys()) | changes.added
        assert changes.added <= known - set(included)
        assert all(set(missing) <= known for missing in changes.hidden.values())
        assert all(missing for missing in changes.hidden.values()), "every hidden tool has a reason"
        assert changes.hidden.keys().isdisjoint(always_on | mentioned)
        assert all(not deps.missing(tool, known) for tool in shown)
        done |= shown
        for tool in shown:
            deps.completed(tool)
    assert done >= set(included)


@given(NEEDS)
def test_no_tool_requires_itself_in_the_end(needs):
    deps, _ = depending(needs)
    everything = {f"t{i}" for i in range(7)}
    hidden = deps.changes(("free", *sorted(everything)), {"free", *everything}).hidden
    order = [tool for tool in everything if tool not in hidden]
    while len(order) < len(everything):
        ready = [tool for tool in hidden if tool not in order and set(hidden[tool]) <= set(order)]
        assert ready
        order += ready


@pytest.mark.parametrize("length", [1, 2, 300])
def test_cycles_of_any_length_are_found(length):
    ring = {f"t{i}": after(f"t{(i + 1) % length}") for i in range(length)}
    deps, told = depending(ring)
    assert not deps.changes([*ring], [*ring]).hidden
    assert len(told) == 1
