"""Our few models of what comes in read and refuse what the official SDK's read and refuse."""

from typing import Any

from acp import schema
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from acp_agent.core.ports import Decision
from acp_agent.core.types import Json
from acp_agent.protocol import wire
from acp_agent.protocol.jsonrpc import RpcError
from acp_agent.shape import fields

_ODD = st.sampled_from(
    [None, True, 0, -1, 7, 2.5, 1e400, "", "text", "0", "7", "true", [], ["text"], {}, {"text": "x"}, 2**70, "\ud800"]
)
_MISSING = object()


def near(**members: Any) -> st.SearchStrategy[dict[str, Any]]:
    """An object with these members, some of them missing or odd, and one that nobody knows."""

    def chosen(value: Any) -> st.SearchStrategy[Any]:
        right = value if isinstance(value, st.SearchStrategy) else st.just(value)
        return st.one_of(right, right, right, _ODD, st.just(_MISSING))

    objects = st.fixed_dictionaries(
        {**{name: chosen(value) for name, value in members.items()}, "_meta": _ODD, "x": _ODD}
    )
    return objects.map(lambda each: {name: value for name, value in each.items() if value is not _MISSING})


_RESOURCE = st.one_of(
    near(text="words", uri="file:///a", mimeType="text/plain"),
    near(blob="AAAA", uri="file:///a", mimeType="image/png"),
    near(text="words", blob="AAAA", uri="file:///a"),
)
_BLOCK = st.one_of(
    near(type="text", text="hi", annotations=near(audience=["user"], priority=1)),
    near(type="image", data="AAAA", mimeType="image/png", uri="file:///a"),
    near(type="audio", data="AAAA", mimeType="audio/wav"),
    near(type="resource_link", name="a", uri="file:///a", size=3, title="A", mimeType="text/plain"),
    near(type="resource", resource=_RESOURCE),
    near(type="of_the_future"),
    _ODD,
)


def ours_or_theirs(read: Any, model: Any, value: Json) -> tuple[Any, Any]:
    """What each side makes of a value; None where it refuses."""
    try:
        mine = read(value)
    except RpcError:
        mine = None
    try:
        theirs = model.model_validate(value if value is not None else {})
    except ValidationError:
        theirs = None
    return mine, theirs


@given(near(sessionId="s", prompt=st.lists(_BLOCK, max_size=3)))
def test_prompts_are_read_as_the_sdk_reads_them(params: dict[str, Any]) -> None:
    """But for blocks of later protocols, which the SDK refuses together with the prompt."""
    mine, theirs = ours_or_theirs(wire.prompt_blocks, schema.PromptRequest, params)
    if mine is not None and any(isinstance(block, wire.Unknown) for block in mine):
        pairs = zip(mine, params["prompt"], strict=True)
        known = [raw for block, raw in pairs if not isinstance(block, wire.Unknown)]
        mine, theirs = ours_or_theirs(wire.prompt_blocks, schema.PromptRequest, {**params, "prompt": known})
    assert (mine is None) == (theirs is None)
    for block, other in zip(mine or (), theirs.prompt if theirs else (), strict=True):
        assert_says_the_same(block, other)


def assert_says_the_same(block: Any, other: Any) -> None:
    """Every member of ours has its value in theirs."""
    for name in fields(type(block)):
        value, theirs = getattr(block, name), getattr(other, name)
        if isinstance(value, wire.EmbeddedText | wire.EmbeddedBlob):
            assert type(value).__name__.removeprefix("Embedded") == type(theirs).__name__.removesuffix(
                "ResourceContents"
            )
            assert_says_the_same(value, theirs)
        else:
            assert value == theirs


@given(st.one_of(near(content="text"), _ODD))
def test_file_texts_are_read_as_the_sdk_reads_them(value: Json) -> None:
    mine, theirs = ours_or_theirs(wire.file_text, schema.ReadTextFileResponse, value)
    assert mine == (theirs and theirs.content)


@given(st.one_of(near(terminalId="t1"), _ODD))
def test_terminal_ids_are_read_as_the_sdk_reads_them(value: Json) -> None:
    mine, theirs = ours_or_theirs(wire.terminal_id, schema.CreateTerminalResponse, value)
    assert mine == (theirs and theirs.terminal_id)


_STATUS = near(exitCode=st.integers(-2, 300), signal="SIGTERM")


@given(st.one_of(_STATUS, _ODD))
def test_exit_statuses_are_read_as_the_sdk_reads_them(value: Json) -> None:
    mine, theirs = ours_or_theirs(wire.exit_status, schema.WaitForTerminalExitResponse, value)
    assert (mine and (mine.exit_code, mine.signal)) == (theirs and (theirs.exit_code, theirs.signal))


@given(st.one_of(near(output="out", truncated=st.booleans(), exitStatus=_STATUS), _ODD))
def test_terminal_outputs_are_read_as_the_sdk_reads_them(value: Json) -> None:
    mine, theirs = ours_or_theirs(wire.terminal_output, schema.TerminalOutputResponse, value)
    assert (mine is None) == (theirs is None)
    if mine is None:
        return
    assert (mine.output, mine.truncated) == (theirs.output, theirs.truncated)
    ended, other = mine.exit_status, theirs.exit_status
    assert (ended and (ended.exit_code, ended.signal)) == (other and (other.exit_code, other.signal))


_OUTCOME = near(outcome=st.sampled_from(["selected", "cancelled", "late"]), optionId=st.sampled_from([*Decision, "x"]))


@given(st.one_of(near(outcome=_OUTCOME), _ODD))
def test_answers_to_questions_are_read_as_the_sdk_reads_them(value: Json) -> None:
    mine, theirs = ours_or_theirs(wire.decision, schema.RequestPermissionResponse, value)
    assert (mine is None) == (theirs is None)
    if theirs is not None:
        cancelled = isinstance(theirs.outcome, schema.DeniedOutcome)
        assert (mine is Decision.CANCELLED) == cancelled
        assert cancelled or mine in (theirs.outcome.option_id, Decision.UNANSWERED)
