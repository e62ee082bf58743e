"""What is kept of a session besides what was told, and how it goes on with it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.agent.history import History
from acp_agent.config.tool_settings import ToolSettings
from acp_agent.core.events import UsageChanged
from acp_agent.core.messages import Message, Role, TextPart, Usage
from acp_agent.core.sessions import UsageTotals
from acp_agent.core.types import CallOrigin, ToolCall
from acp_agent.llm.models import ModelRef, Price
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.output.redaction.rules import KnownSecrets
from acp_agent.session.engine import SessionState
from acp_agent.session.models import UsageMeter
from acp_agent.session.toolset.gate_factory import GateMemory

REF = ModelRef("p", "m")


class Models:
    def __init__(self) -> None:
        self.usage = UsageMeter()
        self.in_use = ""


class Rig:
    def __init__(self, tally: UsageTotals | None = None) -> None:
        self.history, self.models = History(), Models()
        self.memory = GateMemory.new(ToolSettings(max_tool_calls_per_session=10))
        models: Any = self.models
        self.kept = SessionState(self.history, models, self.memory, Redactor(KnownSecrets()), (), dict)
        if tally is not None:
            self.kept.restore(tally)

    @property
    def tally(self) -> UsageTotals:
        tally = self.kept.state().usage
        assert tally is not None
        return tally

    def call(self, batch: str = "") -> bool:
        """Whether the quota lets one more call through; then it is counted."""
        call = ToolCall(f"c{self.memory.quota.use.calls}", "bash", {}, origin=CallOrigin.MODEL, batch=batch)
        admitted = self.memory.quota.admits(call)
        if admitted:
            self.memory.quota.take(call)
        return admitted


def test_a_session_that_begins_has_taken_nothing() -> None:
    state = Rig().kept.state()
    assert state.usage == UsageTotals()
    assert state.model is None
    assert state.history is not None
    assert state.history.messages == ()


def test_what_was_taken_is_added_to_what_was_taken_before() -> None:
    rig = Rig(UsageTotals(500, 1000, Usage(10, 20), 1.5, True, 4, 3))
    rig.models.usage.add(lambda _: Price(input=1_000_000, output=0), REF, Usage(2, 0))
    rig.models.in_use = "p:m"
    rig.history.append(Message(Role.USER, (TextPart("go"),)))
    tally = rig.tally
    assert (tally.used, tally.size) == (500, 1000), "until the model counts again"
    assert tally.usage == Usage(12, 20)
    assert tally.cost == pytest.approx(3.5)
    assert (tally.calls, tally.batches) == (4, 3)
    assert rig.kept.state().model == "p:m"


def test_what_the_user_typed_before_is_remembered() -> None:
    rig = Rig()
    rig.kept.restore(UsageTotals(), ("later read https://e.example/page, and src/made.py",))
    assert rig.memory.urls.knows("https://e.example/page")
    assert not rig.memory.urls.knows("https://e.example/other")
    assert rig.memory.mentioned.has("made.py")


def test_how_full_the_window_is_comes_with_what_all_of_it_cost() -> None:
    rig = Rig(UsageTotals(500, 1000, cost=1.5))
    assert rig.kept.measured(UsageChanged(600, 2000)) == UsageChanged(600, 2000, 1.5)
    assert (rig.tally.used, rig.tally.size) == (600, 2000)


def test_the_quota_goes_on_where_it_was() -> None:
    rig = Rig(UsageTotals(batches=9, calls=30))
    assert rig.call("b1")
    assert not rig.call("b2")
    assert (rig.tally.batches, rig.tally.calls) == (10, 31)


def test_a_price_that_is_not_known_is_never_taken_for_nothing() -> None:
    rig = Rig(UsageTotals(cost=None, complete=True))
    rig.models.usage.add(lambda _: None, REF, Usage(2, 2))
    assert (rig.tally.cost, rig.tally.complete) == (None, False)
    assert (Rig(rig.tally).tally.cost, Rig(rig.tally).tally.complete) == (None, False)


@given(
    st.builds(
        UsageTotals,
        used=st.integers(0, 2**53),
        size=st.integers(0, 2**53),
        usage=st.builds(Usage, st.integers(0, 9**9), st.integers(0, 9**9)),
        cost=st.none() | st.floats(0, 1e6),
        complete=st.booleans(),
        calls=st.integers(0, 9**9),
        batches=st.integers(0, 9**9),
    )
)
def test_what_was_taken_up_and_not_used_is_kept_as_it_was(tally: UsageTotals) -> None:
    assert Rig(tally).tally == tally


def test_as_long_as_nothing_happens_there_is_nothing_new_to_keep() -> None:
    rig = Rig()
    rig.history.append(Message(Role.USER, (TextPart("go"),)))
    one, two = rig.kept.state(), rig.kept.state()
    assert one == two
    assert one.history is not None
    assert two.history is not None
    assert one.history.messages is two.history.messages


def test_whether_a_turn_is_under_way_is_kept() -> None:
    rig = Rig()
    assert not rig.tally.under_way
    rig.history.begin_turn()
    assert rig.tally.under_way
    rig.history.append(Message(Role.USER, (TextPart("go"),)))
    rig.history.end_turn()
    assert not rig.tally.under_way
