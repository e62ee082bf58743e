"""What a load tells, folded as clients do, is what they saw live, whatever a conversation holds."""

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from acp_agent.cli.agent_process import RecordedFrame
from tests.e2e.killed_view import Seen, drawn, loaded
from tests.fakes.answers import allowing, rejecting
from tests.fakes.editor import ScriptedEditor, editing, from_agent
from tests.fakes.model_script import says, uses
from tests.fakes.plain_editor import EVERYTHING

pytestmark = pytest.mark.anyio

NOTICES = {"session": {"notices": {}}}
PLAIN = {**NOTICES}
SERVES_ALL = {**EVERYTHING, **NOTICES}
DRAWS_TERMINALS = {**NOTICES, "_meta": {"terminal_output": True}}

PIXEL = base64.b64encode(
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00"
    b"\x00\rIDATx\xdac\xf8\xcf\xc0\xf0\x1f\x00\x05\x05\x02\x00\xf2\xca\x9e\xa6\x00\x00\x00\x00IEND\xaeB`\x82"
).decode()


def plan(status: str) -> tuple[str, dict[str, Any]]:
    return "update_plan", {"entries": [{"content": "look", "status": status}]}


SCRIPT = {
    "mend": [
        {"thought": ["First ", "a plan."], "text": ["I begin", " *now*.\n"], **uses(plan("pending"))},
        uses(("read", {"path": "code.py"}), ("read", {"path": "nowhere.py"}), text="Let me see."),
        uses(("edit", {"path": "code.py", "old_string": "one", "new_string": "two"})),
        uses(("write", {"path": "new/made.py", "content": "x = 1\n"}), ("bash", {"command": "echo never > never.txt"})),
        {"thought": "Now it runs.", **uses(("bash", {"command": "for n in 1 2 3; do echo line $n; done; exit 3"}))},
        uses(("bash", {"command": "seq 1 5000"}), ("grep", {"pattern": "two"})),
        uses(("move_path", {"source": "code.py", "destination": "moved.py"}), plan("completed")),
        {"thought": ["Done", "?"], "text": ["It is ", "mended: `two`.", "\n\n```\nx\n```\n"]},
    ],
    "picture": [says("A ", "pixel.")],
    "cancelled": [{"text": ["half an "], "hang": True}],
}  # fmt: skip


async def careful(params: dict[str, Any]) -> str | None:
    """The user wants no never.txt."""
    return await (rejecting if "never.txt" in json.dumps(params["toolCall"]) else allowing)(params)


async def story(editor: ScriptedEditor) -> str:
    """A conversation with everything in it; the session."""
    work = editor.workspace
    (work / "code.py").write_text("value = 'one'\n")
    (work / "linked.txt").write_text("what is linked\n")
    session = await editor.open()
    prompts: list[list[dict[str, Any]]] = [
        [{"type": "text", "text": "Please mend the code"}],
        [
            {"type": "text", "text": "See this picture "},
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            {"type": "resource_link", "uri": f"file://{work}/linked.txt", "name": "linked.txt"},
            {"type": "resource", "resource": {"uri": f"file://{work}/a", "text": "open\n", "mimeType": "text/plain"}},
            {"type": "text", "text": "and say what it shows"},
        ],
        [{"type": "text", "text": "/status"}],
        [{"type": "text", "text": "/run echo by hand"}],
    ]  # fmt: skip
    for prompt in prompts:
        assert (await editor.ask("session/prompt", {"sessionId": session, "prompt": prompt}))[
            "stopReason"
        ] == "end_turn"
    async with editor.prompting(session, "to be cancelled") as turn:
        await editor.seen(lambda frame: "half an" in json.dumps(frame.update))
        await editor.cancel(session)
    assert turn.stop_reason == "cancelled"
    return session


def lived(frames: list[RecordedFrame], told: Seen, *, terminals: bool) -> Seen:
    """What the client has drawn, its own prompts under the names they have got in `told`."""
    names = iter([name for role, name in told.entries if role == "user"])
    view = drawn((), terminals=terminals)
    for frame in frames:
        if not from_agent(frame) and frame.method == "session/prompt":
            view.sent(frame.params["prompt"], next(names))
        elif frame.update:
            view.draw(frame.update)
    assert next(names, None) is None
    return view


KINDS = {
    "commands in the editor's terminals": (SERVES_ALL, True, [PLAIN, DRAWS_TERMINALS]),
    "commands of the agent": (PLAIN, False, [DRAWS_TERMINALS, SERVES_ALL]),
    "commands of the agent, drawn as terminals": (DRAWS_TERMINALS, True, [SERVES_ALL, PLAIN]),
}
Decide = Callable[[dict[str, Any]], Awaitable[str | None]]


@pytest.mark.parametrize("kind", KINDS)
async def test_whoever_loads_a_session_wherever_sees_what_was_seen_live(tmp_path, kind):
    capabilities, terminals, others = KINDS[kind]
    async with editing(tmp_path, SCRIPT, capabilities=capabilities, decide=careful) as editor:
        session = await story(editor)
        frames = [*editor.recording.frames]
        again = await loaded(editor, session, terminals=terminals)
        start = len(editor.recording.frames)
        await editor.ask("session/close", {"sessionId": session})
        frames += editor.recording.frames[start:]
        told = await loaded(editor, session, terminals=terminals)
        live = lived(frames, told, terminals=terminals)
        assert told.seen() == live.seen()
        assert again.seen() == told.seen()
    assert {card["status"] for card in told.cards.values()} == {"completed", "failed"}
    assert len(told.cards) == 12
    assert sum(card["status"] == "failed" for card in told.cards.values()) == 3
    assert any(item["type"] == "diff" for card in told.cards.values() for item in card["content"])
    blocks = [block["type"] for key, message in told.messages.items() if key[0] == "user" for block in message]
    assert blocks == ["text", "text", "image", "resource_link", "resource", "text", "text", "text", "text"]
    assert terminals == any(item["type"] == "terminal" for card in live.cards.values() for item in card["content"])
    assert told.title == "Please mend the code"
    assert told.plan == [{"content": "look", "priority": "medium", "status": "completed"}]
    assert told.usage is not None
    assert [role for role, _ in told.entries].count("user") == 5

    async with editing(tmp_path, SCRIPT, capabilities=capabilities) as editor:
        for each in (capabilities, *others):
            editor.capabilities = each
            await editor.initialize()
            assert (await loaded(editor, session, terminals=terminals)).seen() == live.seen()
