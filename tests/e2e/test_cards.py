"""Tool cards as the user reads them: titles, kinds and the places that an editor can open."""

from functools import partial
from pathlib import Path

import pytest

from tests.fakes import editor as editors
from tests.fakes.editor import NOTHING
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)


async def test_the_card_of_a_plan_is_no_second_thought_beside_the_plan(tmp_path: Path):
    """Zed draws a call of the kind "think" with the sign of a thought."""
    step = {"content": "look", "status": "in_progress"}
    async with editing(tmp_path, [uses(("update_plan", {"entries": [step]})), says("ok")]) as editor:
        await editor.say(await editor.open(), "plan")
    (plan,) = editor.recording.updates("plan")
    assert plan["entries"] == [{**step, "priority": "medium"}]
    assert (editor.call.kind, editor.call.status) == ("other", "completed")
    assert not editor.recording.updates("agent_thought_chunk")


async def test_cards_say_what_is_done_with_what_and_where_to_look(tmp_path: Path):
    calls: list[tuple[str, dict[str, object]]] = [
        ("grep", {"pattern": "one", "path": "src"}),
        ("find_path", {"pattern": "*.txt"}),
        ("list_directory", {"path": "src"}),
        ("read", {"path": "src/a.py", "offset": 2, "limit": 2}),
        ("read", {"path": "src/a.py", "offset": -2}),
        ("outline", {"path": "src"}),
        ("write", {"path": "b.txt", "content": "b\n"}),
        ("copy_path", {"source": "b.txt", "destination": "c.txt"}),
        ("bash", {"command": "true"}),
    ]
    script = [uses(*calls), says("ok")]
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        (editor.workspace / "src").mkdir()
        (editor.workspace / "src/a.py").write_text("zero\none\ntwo\n")
        (editor.workspace / "a.txt").write_text("a\n")
        await editor.say(await editor.open(), "look")
        root = str(editor.workspace)
    assert [(call.first["title"], call.kind) for call in editor.calls] == [
        ('grep "one" in src', "search"),
        ("find *.txt", "search"),
        ("list src/", "search"),
        ("read src/a.py (lines 2-3)", "read"),
        ("read src/a.py (last 2 lines)", "read"),
        ("outline src", "read"),
        ("write b.txt", "edit"),
        ("copy b.txt -> c.txt", "edit"),
        ("true", "execute"),
    ]
    assert editor.calls[0].final["locations"] == [{"path": f"{root}/src/a.py", "line": 2}]
    assert editor.calls[1].final["locations"] == [{"path": f"{root}/a.txt"}]
    assert all(at["path"].startswith(root) for call in editor.calls for at in call.first.get("locations", ()))
    assert [len(call.first.get("locations", ())) for call in editor.calls] == [1, 1, 1, 1, 1, 1, 1, 2, 0]
