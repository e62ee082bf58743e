"""What a prompt holds beside words, as it reaches the model, and the history a model gets after a cancel."""

import base64
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.model_servers import listening_model
from tests.fakes import editor as editors
from tests.fakes.editor import NOTHING
from tests.fakes.held import Held, processes_ended

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)
PIXEL = base64.b64encode(bytes.fromhex("89504e470d0a1a0a0000000d49484452")).decode()


async def sent(model, editor, *blocks: dict) -> str:
    """What the model was sent of a prompt of these blocks in a session of its own, as JSON text."""
    before = len(model.requests)
    session = await (editor.new_session(str(editor.workspace)) if editor.initialized else editor.open())
    params = {"sessionId": session, "prompt": list(blocks)}
    assert (await editor.ask("session/prompt", params))["stopReason"] == "end_turn"
    (request,) = model.requests[before:]
    (message,) = [message for message in request["messages"] if message["role"] == "user"]
    return json.dumps(message["content"])


def text(words: str) -> dict:
    return {"type": "text", "text": words}


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder that is not below /dev, where `tmp_path` may be: links to there are not read."""
    with TemporaryDirectory(prefix="acp-test-") as folder:
        yield Path(folder).resolve()


@pytest.mark.parametrize("as_uri", [lambda path: f"file://{path}", str], ids=["file uri", "bare path"])
async def test_a_link_to_a_file_of_the_project_is_read_for_the_model(on_disk, as_uri):
    async with listening_model() as model, editing(on_disk, None, **model.options) as editor:
        (editor.workspace / "my notes.txt").write_text("written in the notes</resource>\n")
        uri = as_uri(editor.workspace / "my notes.txt").replace(" ", "%20" if as_uri is not str else " ")
        link = {"type": "resource_link", "uri": uri, "name": "notes"}
        content = await sent(model, editor, text("look"), link)
    assert "written in the notes" in content
    assert content.count("</resource>") == 1, "the body cannot close the element"


async def test_a_link_out_of_the_project_is_left_out_and_the_user_told(tmp_path):
    outside = tmp_path / "outside.txt"
    outside.write_text("root:x:secret=1\n")
    async with listening_model() as model, editing(tmp_path, None, **model.options) as editor:
        for uri in ("file:///etc/passwd", "file:///proc/self/environ", "../outside.txt", f"file://{outside}"):
            content = await sent(model, editor, text("look"), {"type": "resource_link", "uri": uri, "name": "x"})
            assert "root:x" not in content, uri
            assert "PATH=" not in content, uri
            assert "look" in content, uri


async def test_a_web_link_is_named_and_not_fetched(tmp_path):
    async with listening_model() as model, editing(tmp_path, None, **model.options) as editor:
        uri = f"http://127.0.0.1:{model.port}/secret"
        content = await sent(model, editor, text("look"), {"type": "resource_link", "uri": uri, "name": "x"})
    assert uri in content
    assert len(model.requests) == 1


async def test_an_embedded_text_is_passed_on_with_its_name(tmp_path):
    async with listening_model() as model, editing(tmp_path, None, **model.options) as editor:
        resource = {"uri": "zed:///agent/buffer", "mimeType": "text/x-rust", "text": "fn main() {}"}
        content = await sent(model, editor, text("look"), {"type": "resource", "resource": resource})
    assert "fn main() {}" in content
    assert "zed:///agent/buffer" in content


async def test_an_image_reaches_the_model_as_an_image(tmp_path):
    async with listening_model() as model, editing(tmp_path, None, **model.options) as editor:
        content = await sent(model, editor, text("look"), {"type": "image", "data": PIXEL, "mimeType": "image/png"})
    assert f"data:image/png;base64,{PIXEL}" in content


async def test_what_cannot_be_used_is_left_out_and_the_user_told(tmp_path):
    useless = [
        ({"type": "audio", "data": PIXEL, "mimeType": "audio/wav"}, "audio"),
        ({"type": "image", "data": PIXEL, "mimeType": "image/tiff"}, "image/tiff"),
        ({"type": "image", "data": "not base64!", "mimeType": "image/png"}, "image"),
        ({"type": "resource", "resource": {"uri": "a.bin", "blob": PIXEL}}, "a.bin"),
    ]
    async with listening_model() as model, editing(tmp_path, None, **model.options) as editor:
        for block, named in useless:
            told = len(editor.told)
            content = await sent(model, editor, text("look"), block)
            assert named in editor.told[told:], block
            assert PIXEL not in content, block
            assert "look" in content, block


async def test_after_a_cancel_the_model_gets_a_result_for_every_call_it_made(tmp_path):
    call = ("bash", {"command": Held.COMMAND})
    async with (
        listening_model(call) as model,
        editing(tmp_path, None, capabilities=NOTHING, **model.options) as editor,
    ):
        held = Held(editor)
        session = await editor.open()
        async with editor.prompting(session, "hold") as turn:
            pids = await held.pids()
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        await processes_ended(pids)
        assert await editor.say(session, "and now?") == "end_turn"
    messages = model.requests[-1]["messages"]
    called = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert called == answered
    assert len(called) == 1
    assert [message["role"] for message in messages][-1] == "user"


async def test_what_the_user_sees_of_a_call_is_what_the_model_gets(tmp_path):
    async with (
        listening_model(("bash", {"command": "echo one; exit 3"})) as model,
        editing(tmp_path, None, capabilities=NOTHING, **model.options) as editor,
    ):
        assert await editor.say(await editor.open(), "go") == "end_turn"
    (result,) = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert "one" in result
    assert "3" in result
    assert "one" in editor.call.text
