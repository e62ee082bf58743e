"""A model that fails, end to end: its bytes on one side, the editor's pipes on the other, one session through it all.

What each fault comes to in the loop is in `tests/contract/test_model_faults.py`; here the whole agent has it.
"""

import json

import pytest

from tests.contract.model_faults import FAKE_KEY
from tests.contract.wire_formats import FORMATS, FaultyHttp, WireFormat, tool
from tests.fakes.editor import ScriptedEditor, editing
from tests.fakes.scripted_http import Reply
from tests.wire import rules

pytestmark = pytest.mark.anyio


class Faulty:
    """An open session with a model whose answers the test plays."""

    def __init__(self, wire: WireFormat, server: FaultyHttp, editor: ScriptedEditor, session: str) -> None:
        self.wire = wire
        self.server = server
        self.editor = editor
        self._session = session
        self._read = 0

    async def prompt(self, *answers: Reply) -> str:
        """One turn, which has to end as usual; what the user read of it. Every request is one the API takes."""
        self.server.requests.clear()
        self.server.replies = answers
        assert await self.editor.say(self._session, "go") == "end_turn"
        assert len(self.server.requests) == len(answers)
        for request in self.server.requests:
            self.wire.check(request.body)
        told, self._read = self.editor.told[self._read :], len(self.editor.told)
        return told

    def says(self, text: str) -> Reply:
        return Reply.stream(self.wire.stream(text=[text]))

    def calls(self, *calls: dict[str, str]) -> Reply:
        return Reply.stream(self.wire.stream(calls=calls))


async def test_a_session_outlives_every_fault_of_its_model_and_does_nothing_twice(tmp_path):
    wire = FORMATS["anthropic"]  # most others here speak Chat Completions
    async with FaultyHttp([]) as server:
        config = (
            f'[llm]\nmodel = "acme:any"\n[[llm.providers]]\nname = "acme"\ntype = "{wire.type}"\n'
            f'base_url = "{server.url}{wire.base}"\napi_key_env = "MODEL_KEY"\n'
        )
        config += "".join(f"{key} = {json.dumps(value)}\n" for key, value in wire.settled.items())
        options = {"config": config, "environment": {"MODEL_KEY": FAKE_KEY}}
        async with editing(tmp_path, None, lawful=False, **options) as editor:  # the schema of 700 frames takes seconds
            faulty = Faulty(wire, server, editor, await editor.open())
            await _is_limited(faulty)
            await _is_cut(faulty)
            await _writes_bad_json(faulty)
            await _calls_sixty_times(faulty)
            assert "All is well." in await faulty.prompt(faulty.says("All is well."))
        assert rules.broken(editor.recording) == []
        frames = json.dumps([frame.message for frame in editor.recording.frames])
    assert FAKE_KEY not in frames + editor.log
    assert "Traceback" not in frames + editor.log


async def _is_limited(faulty: Faulty) -> None:
    """429 with Retry-After, before a call and after it: the user hears of both, and the file grows once."""
    log = faulty.editor.workspace / "log.txt"
    body = json.dumps({"error": {"type": "rate_limit_error", "message": f"{FAKE_KEY} is too fast"}}).encode()
    limited = Reply.plain(429, body, retry_after="0.01")
    append = faulty.calls(tool("bash", command="echo once >> log.txt"))
    told = await faulty.prompt(limited, limited, append, limited, faulty.says("Appended."))
    assert told.count("asks to wait 0.01 s; trying again") == 3
    assert "Appended." in told
    assert log.read_text() == "once\n"
    assert [call.status for call in faulty.editor.calls] == ["completed"]


async def _is_cut(faulty: Faulty) -> None:
    """A stream that ends in the middle: what was read stays, for the user and for the model."""
    told = await faulty.prompt(Reply.stream(faulty.wire.begun()))
    assert "Half" in told
    assert "acme ended its answer before it was whole" in told
    assert 'say "continue"' in told
    assert "Whole." in await faulty.prompt(faulty.says("Whole."))
    assert b'"Half"' in faulty.server.requests[0].body


async def _writes_bad_json(faulty: Faulty) -> None:
    """Arguments that are no JSON: the call fails, the model is told why, nothing is asked and nothing happens."""
    asked = len(faulty.editor.requests("session/request_permission"))
    broken = {"id": "call_bad", "name": "bash", "arguments": '{"command": "touch broken'}
    assert "Sorry." in await faulty.prompt(faulty.calls(broken), faulty.says("Sorry."))
    assert faulty.editor.calls[-1].status == "failed"
    assert b"[error] " in faulty.server.requests[1].body
    assert len(faulty.editor.requests("session/request_permission")) == asked
    assert not (faulty.editor.workspace / "broken").exists()


async def _calls_sixty_times(faulty: Faulty) -> None:
    """Sixty calls in one message: sixty calls in the editor, and as many results in their order."""
    before = len(faulty.editor.calls)
    (faulty.editor.workspace / "a.txt").write_text("alpha\n")
    calls = [tool("read", f"sixty_{number}", path="a.txt", limit=number + 1) for number in range(60)]
    assert "Read." in await faulty.prompt(faulty.calls(*calls), faulty.says("Read."))
    seen = faulty.editor.calls[before:]
    assert len(seen) == len({call.id for call in seen}) == 60
    assert {call.status for call in seen} == {"completed"}
    assert faulty.server.requests[1].body.count(b'"sixty_') == 120  # each with its result; `check` saw to the order
