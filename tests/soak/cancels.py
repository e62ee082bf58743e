"""Turns that are cancelled at a moment of a story, all sessions of a case in one agent."""

from collections.abc import Sequence
from dataclasses import replace

import anyio

from acp_agent.cli.agent_process import RecordedFrame
from tests.e2e.killed_story import story_model
from tests.e2e.killed_view import drawn, lost
from tests.e2e.killing import assert_audit_whole, assert_files, prepare, shown
from tests.fakes.editor import ScriptedEditor, editing
from tests.soak.case import WITHIN, Case, until
from tests.soak.endings import ended, open_session, options_of
from tests.soak.moments import MOMENTS, Moment, doing, holding

SESSIONS = 10
"""Cancelled turns of a case."""
_KINDS = [kind for kind in MOMENTS if kind not in ("load", "close", "system call", "audit write")]


async def cancel(case: Case) -> None:
    """Some sessions one after the other; in each a turn is cancelled."""
    first = Moment.chosen(case.random, _KINDS)
    case.times = SESSIONS
    async with story_model() as model, editing(case.folder, None, **options_of(model, first)) as editor:
        for number in range(SESSIONS):
            moment = replace(Moment.chosen(case.random, _KINDS), client=first.client, sandboxed=first.sandboxed)
            if moment.kind == "editor write" and first.client != "serves all":
                moment = replace(moment, kind="streaming")
            await _cancelled(case, editor, moment, number)
        case.check_log(editor)
        await ended(case, editor, "EOF")
    case.check_answers(editor.recording.frames, alive=True)
    with case.judged("torn lines"):
        assert_audit_whole(editor.home.data)


async def _cancelled(case: Case, editor: ScriptedEditor, moment: Moment, number: int) -> None:
    workspace = case.folder / f"session-{number}"
    workspace.mkdir()
    prepare(workspace)
    editor.decide = holding(moment)
    session = await open_session(editor, moment, str(workspace))
    start, stops = len(editor.recording.frames), list[str]()

    async def tell() -> None:
        for part in ("first", "second"):
            stops.append(await editor.prompt(session, f"tell the {part} part"))
            if stops[-1] != "end_turn":
                return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tell)
        await moment.reached(editor, start, lambda: None)
        case.during.append(doing(editor.recording.frames[start:]))
        for _ in range(2):  # one that comes between the two turns cancels none
            ended_turns = len(stops)
            await editor.cancel(session)
            if await until(lambda: "cancelled" in stops or len(stops) == 2, WITHIN):
                break
            if len(stops) == ended_turns:
                case.fault("other", f"{moment}: a cancelled turn was not answered in {WITHIN} s")
                break
        tasks.cancel_scope.cancel()
    if stops[-1:] != ["cancelled"]:
        case.fault("other", f"{moment}: stopped with {stops}")
    await _look_again(case, editor, session, editor.recording.frames[start:])
    with case.judged("half files"):
        assert_files(workspace)


async def _look_again(case: Case, editor: ScriptedEditor, session: str, frames: Sequence[RecordedFrame]) -> None:
    """The session works, and a load shows what was shown."""
    cwd = str(case.folder)
    if await editor.say(session, "/help") != "end_turn":
        case.fault("other", "after a cancel /help did not end its turn")
    before = shown(session, [frame for frame in frames if frame.params.get("sessionId") == session])
    await editor.ask("session/close", {"sessionId": session})
    start = len(editor.recording.frames)
    await editor.ask("session/load", {"sessionId": session, "cwd": cwd, "mcpServers": []})
    told = drawn(f.update for f in editor.recording.frames[start:] if f.update and f.params["sessionId"] == session)
    with case.judged("lost rows"):
        missing = lost(before.live, told, before.prompts)
        assert not missing, "\n".join(missing)
    await editor.ask("session/close", {"sessionId": session})
