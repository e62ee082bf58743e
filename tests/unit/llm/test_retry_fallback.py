"""Which model answers when the first does not: when it is switched, when it is not, and what the next one is sent."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    ToolUsePart,
)
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.llm.catalog import DeferredProvider
from acp_agent.llm.models import ModelRef
from acp_agent.llm.retry import FallbackProvider, RetryingProvider, RetryPolicy, ToollessProvider
from tests.rows import each_row

pytestmark = pytest.mark.anyio

Kind = ProviderErrorKind
DONE = ModelDone(Message(Role.ASSISTANT, ()), ModelStop.END)
ASK = ModelRequest("", (Message(Role.USER, (TextPart("hi"),)),))
RESULT = Message(Role.USER, (ToolResultPart("1", "ok"),))
MIDDLE = ModelRequest("", (*ASK.messages, Message(Role.ASSISTANT, (ToolUsePart("1", "read", {}),)), RESULT))
ELSEWHERE = {
    Kind.AUTH,
    Kind.NOT_FOUND,
    Kind.RATE_LIMITED,
    Kind.OVERLOADED,
    Kind.SERVER,
    Kind.NETWORK,
    Kind.TIMEOUT,
    Kind.NOT_CONFIGURED,
}


def error(kind: ProviderErrorKind = Kind.NETWORK, text: str = "cannot be reached") -> ProviderError:
    return ProviderError(text, kind=kind)


@dataclass
class PlayedProvider:
    """Plays one script of events and errors a call, the last one again and again; keeps what it was sent."""

    name: str
    model: str
    scripts: Sequence[Sequence[ModelEvent | ProviderError]]
    context_window: int = 1000
    asked: list[ModelRequest] = field(default_factory=list)
    closed: int = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        script = self.scripts[min(len(self.asked), len(self.scripts) - 1)]
        self.asked.append(request)
        try:
            for item in script:
                if isinstance(item, ProviderError):
                    raise item
                yield item
        finally:
            self.closed += 1


@dataclass
class Rig:
    """A chain of played models, a clock that only the test moves, and what the user was told."""

    models: Sequence[PlayedProvider]
    told: list[str] = field(default_factory=list)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.provider = FallbackProvider(self.models, self.tell, stay=300, clock=lambda: self.now)

    async def tell(self, text: str) -> None:
        self.told.append(text)

    async def run(self, request: ModelRequest = ASK) -> list[ModelEvent]:
        return [event async for event in self.provider.stream(request)]

    @property
    def asked(self) -> list[int]:
        return [len(model.asked) for model in self.models]


def good(name: str = "b", model: str = "m-2", window: int = 500) -> PlayedProvider:
    return PlayedProvider(name, model, [[ModelText(f"from {name}"), DONE]], window)


def bad(*errors: ProviderError, name: str = "a", model: str = "m-1") -> PlayedProvider:
    return PlayedProvider(name, model, [[each] for each in errors or (error(),)])


async def test_the_first_that_answers_is_the_only_one_asked() -> None:
    rig = Rig([good("a"), good("b")])
    assert await rig.run() == [ModelText("from a"), DONE]
    assert (rig.asked, rig.told) == ([1, 0], [])


async def test_a_model_that_does_not_answer_is_replaced_and_the_user_is_told() -> None:
    rig = Rig([bad(), good()])
    assert (rig.provider.name, rig.provider.model, rig.provider.context_window) == ("a", "m-1", 1000)
    assert await rig.run() == [ModelText("from b"), DONE]
    assert rig.told == ["a:m-1 did not answer (cannot be reached); asking b:m-2"]
    assert (rig.provider.name, rig.provider.model, rig.provider.context_window) == ("b", "m-2", 500)


@each_row("kind", Kind)
async def test_only_what_is_no_fault_of_the_request_is_asked_elsewhere(kind: ProviderErrorKind) -> None:
    first = bad(error(kind))
    rig = Rig([first, good()])
    if kind in ELSEWHERE:
        await rig.run()
        assert rig.asked == [1, 1]
    else:
        with pytest.raises(ProviderError) as caught:
            await rig.run()
        assert caught.value is first.scripts[0][0]
        assert (rig.asked, rig.told, rig.provider.name) == ([1, 0], [], "a")


async def test_an_answer_that_has_begun_is_not_begun_again_elsewhere() -> None:
    rig = Rig([PlayedProvider("a", "m-1", [[ModelText("Hel"), error()]]), good()])
    with pytest.raises(ProviderError, match="cannot be reached"):
        await rig.run()
    assert rig.asked == [1, 0]


async def test_when_none_answers_every_reason_is_told_and_the_first_is_asked_first_again() -> None:
    rig = Rig([bad(error(Kind.AUTH, "wrong key")), bad(error(Kind.SERVER, "broken"), name="b")])
    for _ in range(2):
        with pytest.raises(ProviderError, match=r"^wrong key; nor did the fallback models answer: broken$") as caught:
            await rig.run()
        assert caught.value.kind is Kind.AUTH
    assert rig.asked == [2, 2]
    assert rig.provider.name == "a"


async def test_a_chain_of_one_fails_with_its_own_error() -> None:
    rig = Rig([bad()])
    with pytest.raises(ProviderError, match=r"^cannot be reached$"):
        await rig.run()


async def test_who_stands_in_stays_for_the_turn_and_some_time_and_then_the_first_is_tried() -> None:
    rig = Rig([PlayedProvider("a", "m-1", [[error()], [DONE]]), good()])
    await rig.run()
    rig.now += 299
    await rig.run()
    assert rig.asked == [1, 2], "too soon for the first one"
    rig.now += 2
    await rig.run(MIDDLE)
    assert rig.asked == [1, 3], "not within a turn"
    assert await rig.run() == [DONE]
    assert rig.asked == [2, 3]
    assert rig.provider.name == "a"


async def test_a_stand_in_that_fails_gives_way_to_the_others_in_order() -> None:
    rig = Rig([PlayedProvider("a", "1", [[error()], [DONE]]), PlayedProvider("b", "2", [[DONE], [error()]]), good("c")])
    await rig.run()
    await rig.run(MIDDLE)
    assert rig.asked == [2, 2, 0]
    assert [text.rpartition("; ")[2] for text in rig.told] == ["asking b:2", "asking a:1"]


async def test_every_stream_is_closed_before_the_next_model_is_asked() -> None:
    rig = Rig([bad(), good()])
    async with aclosing(rig.provider.stream(ASK)) as events:
        assert await anext(events) == ModelText("from b")
        assert (rig.models[0].closed, rig.models[1].closed) == (1, 0)
    assert rig.models[1].closed == 1


async def test_each_model_has_its_own_retries() -> None:
    played = [bad(error(Kind.OVERLOADED, "busy")), bad(error(Kind.OVERLOADED, "busy too"), name="b"), good("c")]
    told: list[str] = []

    async def tell(text: str) -> None:
        told.append(text)

    async def sleep(_: float) -> None:
        pass

    def retrying(model: Provider) -> Provider:
        return RetryingProvider(model, on_retry=tell, policy=RetryPolicy(attempts=2, jitter=0), sleep=sleep)

    chain = FallbackProvider([*map(retrying, played)], tell)
    assert [event async for event in chain.stream(ASK)] == [ModelText("from c"), DONE]
    assert [len(model.asked) for model in played] == [2, 2, 1]
    assert told == [
        "busy; trying again in 0.3 s (2 of 2)",
        "a:m-1 did not answer (busy (tried 2 times)); asking b:m-1",
        "busy too; trying again in 0.3 s (2 of 2)",
        "b:m-1 did not answer (busy too (tried 2 times)); asking c:m-2",
    ]


def test_a_chain_needs_a_model() -> None:
    with pytest.raises(ValueError, match="no model"):
        Rig([])


kinds = st.none() | st.sampled_from(Kind)


@given(chain=st.lists(kinds, min_size=1, max_size=5))
async def test_the_answer_is_that_of_the_first_model_that_gives_one_unless_a_fault_ends_the_search(
    chain: list[ProviderErrorKind | None],
) -> None:
    models = [good(f"p{at}") if kind is None else bad(error(kind), name=f"p{at}") for at, kind in enumerate(chain)]
    rig = Rig(models)
    end = next((at for at, kind in enumerate(chain) if kind not in ELSEWHERE), len(chain))
    if end < len(chain) and chain[end] is None:
        assert (await rig.run())[0] == ModelText(f"from p{end}")
    else:
        with pytest.raises(ProviderError):
            await rig.run()
    assert rig.asked == [1 if at <= end else 0 for at in range(len(chain))]
    assert len(rig.told) == min(end, len(chain) - 1)


# -------------------------------------------------------------------------------------- built when asked


async def test_a_model_is_built_once_and_only_when_it_is_asked() -> None:
    built: list[ModelRef] = []

    def build(ref: ModelRef) -> Provider:
        built.append(ref)
        return good("b")

    model = DeferredProvider(ModelRef("b", "m-2"), 77, build)
    assert (model.name, model.model, model.context_window, built) == ("b", "m-2", 77, [])
    for _ in range(2):
        assert [event async for event in model.stream(ASK)] == [ModelText("from b"), DONE]
    assert built == [ModelRef("b", "m-2")]
    assert model.context_window == 500


async def test_a_model_that_cannot_be_built_is_one_that_does_not_answer() -> None:
    def build(_: ModelRef) -> Provider:
        raise ConfigError("provider 'a'", "A_KEY", "", "an API key in this environment variable")

    first = DeferredProvider(ModelRef("a", "m-1"), 77, build)
    told: list[str] = []

    async def tell(text: str) -> None:
        told.append(text)

    chain = FallbackProvider([first, good()], tell)
    assert [event async for event in chain.stream(ASK)] == [ModelText("from b"), DONE]
    assert told == [
        "a:m-1 did not answer (provider 'a': A_KEY: expected an API key in this environment variable); asking b:m-2"
    ]


# ------------------------------------------------------------------------------------------ without tools


async def test_a_model_without_tools_is_told_of_calls_in_words() -> None:
    played = good("a")
    model = ToollessProvider(played)
    assert (model.name, model.model, model.context_window) == ("a", "m-2", 500)
    use = ToolUsePart("1", "read", {"path": "é"})
    said = Message(Role.ASSISTANT, (TextPart("so"), use))
    await anext(aiter(model.stream(ModelRequest("s", (*ASK.messages, said, RESULT)))))
    (request,) = played.asked
    assert request.tools == ()
    assert [message.text for message in request.messages] == [
        "hi",
        'so[called read with {"path": "é"}]\n',
        "[it gave]\nok\n",
    ]
