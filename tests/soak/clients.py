"""Editors that hang and lie: each method of theirs, answered in every wrong way, in the middle of a story."""

import itertools
import time
from dataclasses import replace

import anyio

from acp_agent.cli.agent_process import RecordedFrame
from tests.e2e.killed_story import story_model
from tests.e2e.killing import assert_audit_whole, prepare
from tests.fakes.answers import Call, Override, answering, never, refusing, twice
from tests.fakes.editor import ScriptedEditor, editing, from_agent
from tests.soak.case import WITHIN, Case, until
from tests.soak.endings import DISCONNECTS, ended, open_session, options_of
from tests.soak.moments import Moment

METHODS = (
    "session/request_permission", "fs/read_text_file", "fs/write_text_file",
    "terminal/create", "terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release",
)  # fmt: skip
_HUNG = 300
"""Requests to an agent whose answers nobody reads for a while."""
_HUGE = "x" * 8_000_000


async def _other_id(call: Call) -> None:
    await call.editor.agent.send({"jsonrpc": "2.0", "id": 987_654_321, "result": {}})
    await call.serve()


async def _result_and_error(call: Call) -> None:
    await call.send({"result": {}, "error": {"code": 1, "message": "both"}})


async def _late(call: Call) -> None:
    await anyio.sleep(0.4)
    await call.serve()


async def _flood(call: Call) -> None:
    session = call.params["sessionId"]
    for number in range(2000):
        await call.editor.agent.notify(f"no/such/{number}", {"sessionId": session})
    await call.serve()


async def _half_a_line(call: Call) -> None:
    await call.editor.send_line(b'{"jsonrpc":"2.0","id":')
    await call.serve()


LIES: dict[str, Override] = {
    "never": never,
    "twice": twice,
    "refused": refusing(-32603, "the editor broke"),
    "null": answering(None),
    "a wrong shape": answering(
        {"outcome": 7, "content": [1], "terminalId": {}, "output": None, "exitStatus": "no", "exitCode": "0"}
    ),
    "huge": answering(
        {
            "outcome": {"outcome": "selected", "optionId": _HUGE},
            "content": _HUGE,
            "terminalId": _HUGE[:1000],
            "output": _HUGE,
            "truncated": False,
            "exitCode": 2**40,
        }
    ),
    "another id": _other_id,
    "a result and an error": _result_and_error,
    "late": _late,
    "a flood before": _flood,
    "half a line before": _half_a_line,
    "a terminal of nobody": answering({"terminalId": "nobody", "content": "", "exitStatus": {"exitCode": -1}}),
}
ALL = tuple(itertools.product(METHODS, LIES))


async def lie(case: Case) -> None:
    """One wrong answer, a turn that ends or is cancelled, and an agent that goes on."""
    method, how = ALL[case.seed % len(ALL)]
    case.during.append(how)
    moment = replace(Moment.chosen(case.random, ["anywhere"]), client="serves all", servers=False)
    async with (
        story_model() as model,
        editing(case.folder, None, **options_of(model, moment), lawful=False) as editor,
    ):
        editor.overrides[method] = LIES[how]
        prepare(editor.workspace)
        session = await open_session(editor, moment)
        await _tell(case, editor, session, f"{method} answered {how}")
        editor.overrides.clear()
        if await editor.say(session, "/help") != "end_turn":
            case.fault("other", f"{method} answered {how}: the session does not work any more")
        if case.random.random() < 0.5:
            await _without_reading(case, editor, session)
        case.check_log(editor)
        case.check_answers(editor.recording.frames, alive=True)
        await ended(case, editor, DISCONNECTS[case.seed % 3])
    with case.judged("torn lines"):
        assert_audit_whole(editor.home.data)


async def _tell(case: Case, editor: ScriptedEditor, session: str, what: str) -> None:
    stops: list[str] = []

    async def say(part: str) -> None:
        stops.append(await editor.prompt(session, f"tell the {part} part"))

    for part in ("first", "second"):
        stops.clear()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(say, part)
            await until(lambda: bool(stops), 3 + case.random.random())
            if not stops:
                await editor.cancel(session)
                if not await until(lambda: bool(stops), WITHIN):
                    case.fault("other", f"{what}: a cancelled turn was not answered in {WITHIN} s")
                    tasks.cancel_scope.cancel()
                elif stops not in (["cancelled"], ["end_turn"]):  # it may have ended just before
                    case.fault("other", f"{what}: a cancelled turn was answered {stops}")


async def _without_reading(case: Case, editor: ScriptedEditor, session: str) -> None:
    """A client that hangs: it does not read for a second, while the agent has much to say."""
    for number in range(_HUNG):
        request = {"jsonrpc": "2.0", "id": f"hung-{number}", "method": "session/list", "params": {}}
        await editor.agent.send(request)
    time.sleep(case.random.random())  # noqa: ASYNC251 - nothing of this editor goes on
    await until(lambda: sum(str(f.message.get("id")).startswith("hung-") for f in _answers(editor)) >= _HUNG, 10)
    if await editor.say(session, "/help") != "end_turn":
        case.fault("other", "after a pause the session does not work any more")


def _answers(editor: ScriptedEditor) -> list[RecordedFrame]:
    return [frame for frame in editor.recording.frames if from_agent(frame) and not frame.method]
