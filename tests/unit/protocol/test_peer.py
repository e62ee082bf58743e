"""JSON-RPC both ways: every request answered once, nothing blocks, nothing late counts."""

import json
from functools import partial
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol.jsonrpc import ClientTimeout, ConnectionLost, RpcError
from acp_agent.protocol.peer import INBOUND_BACKLOG, MOST_LATE, MOST_RUNNING, Incoming
from tests.fakes.passing_time import all_tasks_blocked, pass_time
from tests.unit.protocol.wires import connected

pytestmark = pytest.mark.anyio


async def echo(params: JsonObject, _incoming: Incoming) -> JsonObject:
    return {"echo": params}


async def test_a_request_is_answered_under_its_own_id_as_received() -> None:
    async with connected({"echo": echo}) as (_peer, other):
        for request_id in (0, 7, "0", "b3f1-uuid"):
            other.send(id=request_id, method="echo", params={"a": 1})
            answer = await other.receive()
            assert answer == {"jsonrpc": "2.0", "id": request_id, "result": {"echo": {"a": 1}}}
            assert type(answer["id"]) is type(request_id)


async def test_an_unknown_method_and_an_unknown_notification() -> None:
    async with connected({"echo": echo}) as (_peer, other):
        other.send(method="nobody/listens")
        other.send(id=1, method="no/such")
        answer = await other.receive()
        assert answer["error"]["code"] == -32601
        assert answer["id"] == 1


async def test_malformed_lines_are_answered_and_the_next_request_served() -> None:
    async with connected({"echo": echo}) as (_peer, other):
        for raw, code in ((b"garbage\n", -32700), (b"[]\n", -32600), (b"null\n", -32600), (b"42\n", -32600)):
            other.send_raw(raw)
            answer = await other.receive()
            assert (answer["id"], answer["error"]["code"]) == (None, code)
        other.send(id=1, method="echo")
        assert (await other.receive())["result"] == {"echo": {}}


async def test_a_handler_that_crashes_is_answered_without_its_words() -> None:
    async def crash(_params: JsonObject, _incoming: Incoming) -> JsonObject:
        raise RuntimeError("sk-not-a-real-key")

    async with connected({"crash": crash, "echo": echo}) as (_peer, other):
        other.send(id=1, method="crash")
        assert (await other.receive())["error"] == {"code": -32603, "message": "Internal error"}
        other.send(id=2, method="echo")
        assert (await other.receive())["id"] == 2


async def test_an_answer_that_is_no_json_ends_nothing_but_its_request() -> None:
    deep: Json = []
    for _ in range(100_000):
        deep = [deep]
    answers: dict[str, Json] = {"infinite": float("inf"), "deep": deep, "odd": cast("Json", object())}

    async def odd(params: JsonObject, incoming: Incoming) -> JsonObject:
        incoming.after_response(lambda: after.append(incoming.method))
        return {"x": answers[incoming.method]}

    after: list[str] = []
    async with connected({**dict.fromkeys(answers, odd), "echo": echo}) as (_peer, other):
        for number, method in enumerate(answers):
            other.send(id=number, method=method)
            answer = await other.receive()
            assert (answer["id"], answer["error"]["code"]) == (number, -32603)
        other.send(id=9, method="echo")
        assert (await other.receive())["result"] == {"echo": {}}
    assert after == [*answers]


async def test_a_slow_handler_holds_nobody_up() -> None:
    release = anyio.Event()

    async def slow(_params: JsonObject, _incoming: Incoming) -> JsonObject:
        await release.wait()
        return {}

    async with connected({"slow": slow, "echo": echo}) as (_peer, other):
        other.send(id=1, method="slow")
        other.send(id=2, method="echo")
        assert (await other.receive())["id"] == 2
        release.set()
        assert (await other.receive())["id"] == 1


@pytest.mark.parametrize(
    ("one_by_one", "order"),
    [
        pytest.param(("walk",), ["a begins", "a goes on", "b begins", "b goes on"], id="of a method with much work"),
        pytest.param((), ["a begins", "b begins", "a goes on", "b goes on"], id="of another method"),
    ],
)
async def test_requests_that_are_read_together_begin(one_by_one: tuple[str, ...], order: list[str]) -> None:
    steps: list[str] = []

    async def walk(params: JsonObject, _incoming: Incoming) -> JsonObject:
        for step in ("begins", "goes on"):
            steps.append(f"{params['name']} {step}")
            await anyio.lowlevel.checkpoint()
        return {}

    async with connected({"walk": walk}, one_by_one=one_by_one) as (_peer, other):
        lines = ({"jsonrpc": "2.0", "id": name, "method": "walk", "params": {"name": name}} for name in ("a", "b"))
        other.send_raw(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        await other.receive()
        await other.receive()
    assert steps == order


async def test_what_is_hung_on_an_answer_comes_after_it() -> None:
    async with connected() as (peer, other):

        async def announce(_params: JsonObject, incoming: Incoming) -> JsonObject:
            incoming.after_response(lambda: peer.post_notification("after", {}))
            return {}

        await other_serves(peer, announce)
        other.send(id=1, method="announce")
        assert (await other.receive())["id"] == 1
        assert (await other.receive())["method"] == "after"


async def other_serves(peer: Any, handler: Any) -> None:
    peer._requests = {**peer._requests, "announce": handler}


async def test_a_request_the_client_cancels_is_answered_as_cancelled() -> None:
    async def forever(_params: JsonObject, _incoming: Incoming) -> JsonObject:
        await anyio.sleep_forever()
        return {}

    async with connected({"forever": forever}) as (_peer, other):
        other.send(id="x", method="forever")
        other.send(method="$/cancel_request", params={"requestId": "x"})
        answer = await other.receive()
        assert (answer["id"], answer["error"]["code"]) == ("x", -32800)


async def test_a_question_gets_its_answer_and_only_the_first_one() -> None:
    async with connected() as (peer, other):
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await peer.request("question", {"q": 1}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            request = await other.receive()
            other.send(id=999, result="somebody else's")
            other.send(id=str(request["id"]), result="not a number")
            other.send(id=request["id"], result={"a": 1})
            other.send(id=request["id"], result={"a": 2})
        assert answers == [{"a": 1}]


async def test_an_answer_may_write_the_number_of_its_question_with_a_fraction_of_zero() -> None:
    async with connected() as (peer, other), anyio.create_task_group() as tasks:
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await peer.request("question", {}, timeout=5))

        tasks.start_soon(ask)
        request = await other.receive()
        other.send(id=request["id"] + 0.5, result="somebody else's")
        other.send(id=float(request["id"]), result="yes")
    assert answers == ["yes"]


async def test_answers_to_the_ids_that_would_come_next_answer_no_later_question() -> None:
    async with connected({}) as (peer, other), anyio.create_task_group() as group:
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await peer.request("ask", {}))

        group.start_soon(ask)
        first = (await other.receive())["id"]
        other.send(id=first, result={})
        while not answers:
            await anyio.lowlevel.checkpoint()
        group.start_soon(ask)
        second = (await other.receive())["id"]
        for ahead in range(1, 200):
            other.send(id=first + ahead, result={"guessed": True})
        other.send(id=second, result={"asked": True})
    assert answers == [{}, {"asked": True}]


async def test_a_question_about_a_session_waits_until_what_was_told_in_it_was_shown() -> None:
    shown, asked = anyio.Event(), list[str]()

    async def wait(session_id: str) -> None:
        asked.append(session_id)
        await shown.wait()

    async with connected(before_request=wait) as (peer, other), anyio.create_task_group() as tasks:
        tasks.start_soon(peer.request, "about/it", {"sessionId": "s"})
        await all_tasks_blocked()
        peer.post_notification("told", {})
        shown.set()
        assert (await other.receive())["method"] == "told"
        question = await other.receive()
        assert (question["method"], asked) == ("about/it", ["s"])
        other.send(id=question["id"], result={})


async def test_a_request_has_one_time_limit_for_earlier_updates_and_its_answer() -> None:
    shown, late = anyio.Event(), list[Json]()

    async def wait(_session: str) -> None:
        await shown.wait()

    async with connected({"echo": echo}, before_request=wait) as (peer, other), anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(ClientTimeout, match="within 60 s"):
                await peer.request("about/it", {"sessionId": "s"}, timeout=60, on_late=late.append)

        tasks.start_soon(ask)
        await all_tasks_blocked()
        pass_time(59)
        shown.set()
        question = await other.receive()
        pass_time(2)
        await all_tasks_blocked()
        other.send(id=question["id"], result="too late")
    assert late == ["too late"]


async def test_a_request_behind_updates_waits_for_them_as_long_as_it_may() -> None:
    shown = anyio.Event()

    async def wait(_session: str) -> None:
        await shown.wait()

    async with connected(before_request=wait) as (peer, other), anyio.create_task_group() as tasks:
        await peer.tell_behind("given/back", {"sessionId": "s"}, 0)
        assert (await other.receive())["method"] == "given/back"
        tasks.start_soon(peer.tell_behind, "given/back", {"sessionId": "s"}, 60)
        await all_tasks_blocked()
        peer.post_notification("told", {})
        shown.set()
        assert [(await other.receive())["method"] for _ in range(2)] == ["told", "given/back"]


async def test_an_error_answer_is_raised_with_code_and_message() -> None:
    async with connected() as (peer, other):

        async def refuse() -> None:
            request = await other.receive()
            other.send(id=request["id"], error={"code": -32002, "message": "gone"})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refuse)
            with pytest.raises(RpcError, match="gone") as caught:
                await peer.request("question", {})
        assert caught.value.code == -32002


async def test_an_answer_after_the_timeout_goes_to_whoever_cleans_up() -> None:
    async with connected({"echo": echo}) as (peer, other):
        late: list[Any] = []
        with pytest.raises(ClientTimeout):
            await peer.request("terminal/create", {}, timeout=0.01, on_late=late.append)
        request = await other.receive()
        other.send(id=request["id"], result={"terminalId": "t"})
        other.send(id=1, method="echo")
        await other.receive()
        assert late == [{"terminalId": "t"}]


async def test_of_requests_that_are_never_answered_only_the_last_are_remembered() -> None:
    late: list[Any] = []
    async with connected({"echo": echo}) as (peer, other):
        async with anyio.create_task_group() as tasks:
            for _ in range(MOST_LATE + 1):
                tasks.start_soon(partial(peer.request, "terminal/create", {}, on_late=late.append))
            requests = [await other.receive() for _ in range(MOST_LATE + 1)]
            tasks.cancel_scope.cancel()
        for at, request in enumerate(requests):
            other.send(id=request["id"], result=at)
        other.send(id=1, method="echo")
        await other.receive()
    assert late == list(range(1, MOST_LATE + 1))


async def test_the_end_of_the_stream_fails_open_questions() -> None:
    async with connected() as (peer, other):

        async def hang_up() -> None:
            await other.receive()
            other.end()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang_up)
            with pytest.raises(ConnectionLost):
                await peer.request("question", {})


async def test_a_request_right_before_the_end_is_still_answered() -> None:
    async with connected({"echo": echo}) as (_peer, other):
        other.send(id=1, method="echo")
        other.end()
        assert (await other.receive())["id"] == 1


async def asked_and_cancelled(order: list[str], on_late: Any = None) -> list[Any]:
    """What a question gives whose answer and cancellation come in one write, in this order."""
    answers: list[Any] = []
    asking = anyio.CancelScope()

    async def cancel(_params: JsonObject) -> None:
        asking.cancel()

    async with connected({"echo": echo}, {"session/cancel": cancel}) as (peer, other):

        async def ask() -> None:
            with asking:
                answers.append(await peer.request("question", {}, on_late=on_late))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            request = await other.receive()
            lines = {
                "answer": {"jsonrpc": "2.0", "id": request["id"], "result": "allowed"},
                "cancel": {"jsonrpc": "2.0", "method": "session/cancel"},
            }
            other.send_raw(b"".join(json.dumps(lines[each]).encode() + b"\n" for each in order))
    return answers


async def test_an_answer_right_behind_a_cancel_is_no_answer() -> None:
    for _ in range(50):
        assert await asked_and_cancelled(["cancel", "answer"]) == []


async def test_an_answer_right_before_a_cancel_counts() -> None:
    assert await asked_and_cancelled(["answer", "cancel"]) == ["allowed"]


async def test_what_an_answer_behind_a_cancel_gave_goes_to_whoever_cleans_up() -> None:
    late: list[Any] = []
    assert await asked_and_cancelled(["cancel", "answer"], late.append) == []
    assert late == ["allowed"]


async def test_a_notification_whose_handler_crashes_ends_nothing_else() -> None:
    async def crash(_params: JsonObject) -> None:
        raise RuntimeError("a bug")

    async with connected({"echo": echo}, {"crash": crash}) as (_peer, other):
        other.send(method="crash")
        other.send(id=1, method="echo")
        assert (await other.receive())["id"] == 1


async def test_only_so_many_requests_run_at_once_and_all_are_answered() -> None:
    begun, full, release = 0, anyio.Event(), anyio.Event()

    async def held(_params: JsonObject, _incoming: Incoming) -> JsonObject:
        nonlocal begun
        begun += 1
        if begun == MOST_RUNNING:
            full.set()
        await release.wait()
        return {}

    count = MOST_RUNNING + 200
    lines = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"held"}\n' % number for number in range(count))
    async with connected({"held": held}) as (_peer, other), anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, other.send_raw, lines)
        await full.wait()
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert begun == MOST_RUNNING
        release.set()
        assert {(await other.receive())["id"] for _ in range(count)} == set(range(count))


async def test_the_end_of_the_stream_is_noticed_while_nobody_reads_the_answers() -> None:
    async def long(_params: JsonObject, _incoming: Incoming) -> JsonObject:
        return {"text": "x" * 2 * INBOUND_BACKLOG}

    async def clock() -> None:
        for _ in range(200):
            await anyio.lowlevel.checkpoint()
            pass_time(0.5)

    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(60):
            async with connected({"long": long, "echo": echo}) as (_peer, other):
                other.send(id=1, method="long")
                await other.begins()
                other.send(id=2, method="echo")  # is served, but nothing behind it is read
                other.send(id=3, method="echo")
                other.end()
                tasks.start_soon(clock)
        tasks.cancel_scope.cancel()
