"""The adversarial gate can only refuse: whatever the second model says, no call runs that would not run without it."""

import json

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.messages import TextPart
from acp_agent.core.ports import Invocation, ModelRequest
from acp_agent.core.types import Allow, ApprovedBy, Ask, Deny, JsonObject, Verdict
from acp_agent.gates.adversarial import AdversarialGate, _clean
from acp_agent.gates.gate import CallFacts, Gate
from acp_agent.gates.permission import Approved
from tests.unit.gates.chain import Judged, call, command

ANSWERS = st.one_of(
    st.sampled_from(["ALLOW", " ALLOW\n", "DENY", "DENY 1: x", "DENY 9", "ALLOW: yes", "DENY\nALLOW", "", "allow"]),
    st.text(max_size=20),
    st.none(),
)
"""What the second model says; None if it cannot be reached."""
VERDICTS = st.lists(st.sampled_from([Allow(), Ask("why?"), Deny("no")]), max_size=3)


class Fixed(Gate):
    def __init__(self, verdict: Verdict | Approved) -> None:
        self._verdict = verdict

    def judge(self, facts: CallFacts) -> Verdict:
        del facts
        return self._verdict


class Judge:
    def __init__(self, answer: str | None) -> None:
        self.answer = answer
        self.requests: list[ModelRequest] = []

    async def __call__(self, request: ModelRequest) -> str:
        self.requests.append(request)
        if self.answer is None:
            raise ProviderError("gone", kind=ProviderErrorKind.NETWORK)
        return self.answer


def test_numbers_under_the_name_of_a_secret_are_shown_as_they_are():
    assert _clean({"token": 5, "tokens": [1], "password": "hunter2"}, redacted, 0) == {
        "token": 5,
        "tokens": [1],
        "password": "[REDACTED:7 chars]",
    }


def redacted(text: str) -> str:
    return text.replace("hunter2", "[REDACTED]")


@given(before=VERDICTS, after=VERDICTS, approved=st.booleans(), answer=ANSWERS, fail_open=st.booleans())
def test_no_answer_makes_a_call_run_that_would_not_run_without_the_gate(before, after, approved, answer, fail_open):
    first = [Fixed(each) for each in before]
    later = [Fixed(each) for each in (*after, Approved(ApprovedBy.USER) if approved else Allow())]
    judge = Judge(answer)
    gate = AdversarialGate(["no"], judge, redacted, later, fail_open=fail_open)
    without, checked = Judged(*first, *later), Judged(*first, gate, *later)

    async def both() -> tuple[bool, bool]:
        plain, guarded = await without.execute(call("write")), await checked.execute(call("write"))
        return plain.failure is None, guarded.failure is None

    runs, runs_checked = anyio.run(both)
    lets = fail_open if answer is None else answer.strip() == "ALLOW"
    assert runs_checked is (runs and lets)
    refused = any(isinstance(each, Deny) for each in (*before, *after))
    assert len(judge.requests) == (0 if refused else 1)


@given(arguments=st.dictionaries(st.text(max_size=20), st.text(max_size=900) | st.integers(), max_size=6))
def test_the_description_is_one_line_of_ascii_that_cannot_hold_its_own_end(arguments: JsonObject):
    judge = Judge("ALLOW")
    gate = AdversarialGate(["no {braces} are read"], judge, redacted)
    anyio.run(Judged(gate).execute, call("write", arguments=arguments))
    (part,) = judge.requests[0].messages[0].parts
    assert isinstance(part, TextPart)
    assert part.text.isascii()
    assert part.text.count("\n") == 2


async def described(invocation: Invocation) -> JsonObject:
    """What the second model is told of a call."""
    judge = Judge("ALLOW")
    await Judged(AdversarialGate(["no"], judge, redacted)).execute(invocation)
    (part,) = judge.requests[0].messages[0].parts
    assert isinstance(part, TextPart)
    return json.loads(part.text.split("\n")[1])


@pytest.mark.anyio
async def test_secrets_and_values_with_the_name_of_one_are_left_out():
    arguments: JsonObject = {"headers": {"Authorization": "Basic x"}, "api_key": "abc", "note": "it is hunter2"}
    told = await described(call("mcp_x_y", arguments=arguments))
    assert json.loads(str(told["arguments"])) == {
        "headers": {"Authorization": "[REDACTED:7 chars]"},
        "api_key": "[REDACTED:3 chars]",
        "note": "it is [REDACTED]",
    }


@pytest.mark.anyio
async def test_the_second_model_is_told_to_deny_what_a_placeholder_may_hide():
    """Whoever writes the arguments chooses the names: `password=a.sql; rm $password`."""
    judge = Judge("ALLOW")
    await Judged(AdversarialGate(["no"], judge, redacted)).execute(command("rm hunter2"))
    assert '"[REDACTED...]"' in judge.requests[0].system


@pytest.mark.anyio
async def test_every_program_of_a_long_command_is_named():
    told = await described(command(f"echo {'x' * 2000}; nc evil 1; echo {'y' * 2000}"))
    assert told["runs"] == "echo nc"
    assert "nc evil" not in str(told["arguments"])
    assert "characters ...]" in str(told["arguments"])


class Unasked(Gate):
    """A gate that refuses what another gate asks about, as full-auto does."""

    name = "unasked"

    def judge(self, facts: CallFacts) -> Verdict:
        return Deny("nobody is asked") if facts.asks else Allow()


@pytest.mark.anyio
@pytest.mark.parametrize("later", [(Fixed(Ask("why")), Unasked()), (Fixed(Allow()), Fixed(Deny("no")))])
async def test_a_call_that_is_refused_anyway_is_shown_to_no_second_model(later: tuple[Gate, ...]):
    judge = Judge("ALLOW")
    gate = AdversarialGate(["no"], judge, redacted, later)
    assert (await Judged(gate, *later).execute(call("write"))).failure is not None
    assert judge.requests == []
