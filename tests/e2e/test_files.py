"""Files: through the editor where it offers them, flag by flag, from the disk where it does not."""

from functools import partial

import anyio
import pytest

from acp_agent.text import unescaped
from tests.e2e.thoughts import Mind, go, thinking
from tests.fakes import editor as editors
from tests.fakes.answers import Call, answering, never, refusing
from tests.fakes.editor import EVERYTHING, FILES_ONLY, NOTHING, READ_ONLY, TERMINAL_ONLY
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)

EDIT = {"path": "a.txt", "old_string": "beta", "new_string": "gamma"}


async def edited(editor, text: str = "alpha\nbeta\n") -> None:
    (editor.workspace / "a.txt").write_bytes(text.encode())
    assert await editor.say(await editor.open(), "edit it") == "end_turn"


@pytest.mark.parametrize("capabilities", [EVERYTHING, FILES_ONLY], ids=["everything", "files"])
async def test_an_edit_goes_through_the_editor_and_shows_its_diff(tmp_path, capabilities):
    async with editing(tmp_path, [uses(("edit", EDIT)), says("ok")], capabilities=capabilities) as editor:
        await edited(editor)
    path = str(editor.workspace / "a.txt")
    assert {params["path"] for params in editor.requests("fs/read_text_file")} == {path}
    assert editor.requests("fs/write_text_file")[0]["content"] == "alpha\ngamma\n"
    assert (editor.call.kind, editor.call.status) == ("edit", "completed")
    diff = {"type": "diff", "path": path, "oldText": "alpha\nbeta\n", "newText": "alpha\ngamma\n"}
    assert diff in editor.call.first["content"], "shown before it happens"
    assert diff in editor.call.final["content"]
    (question,) = editor.requests("session/request_permission")
    assert question["toolCall"]["content"][0] == diff
    assert question["toolCall"]["locations"][0]["path"] == path
    assert editor.call.final["locations"] == [{"path": path, "line": 2}]


async def test_with_reading_only_the_editor_is_read_and_the_disk_is_written(tmp_path):
    async with editing(tmp_path, [uses(("edit", EDIT)), says("ok")], capabilities=READ_ONLY) as editor:
        await edited(editor)
    assert editor.requests("fs/read_text_file")
    assert not editor.requests("fs/write_text_file")
    assert (editor.workspace / "a.txt").read_text() == "alpha\ngamma\n"


@pytest.mark.parametrize("capabilities", [NOTHING, TERMINAL_ONLY], ids=["nothing", "terminal"])
async def test_without_files_everything_happens_on_the_disk(tmp_path, capabilities):
    async with editing(tmp_path, [uses(("edit", EDIT)), says("ok")], capabilities=capabilities) as editor:
        await edited(editor)
    assert not [method for method in editor.requested_methods if method.startswith("fs/")]
    assert (editor.workspace / "a.txt").read_text() == "alpha\ngamma\n"
    assert editor.call.status == "completed"


async def test_what_the_editor_has_not_saved_yet_is_what_the_model_reads(tmp_path):
    async with editing(tmp_path, [uses(("read", {"path": "a.txt"})), says("ok")]) as editor:
        (editor.workspace / "a.txt").write_text("on the disk\n")
        editor.overrides["fs/read_text_file"] = answering({"content": "in the buffer\n"})
        await editor.say(await editor.open(), "read")
    assert "in the buffer" in editor.call.text


async def test_a_new_file_has_a_diff_without_old_text(tmp_path):
    new = {"path": "new/b.txt", "content": "fresh\n"}
    async with editing(tmp_path, [uses(("write", new)), says("ok")]) as editor:
        await editor.say(await editor.open(), "write")
    assert (editor.workspace / "new" / "b.txt").read_text() == "fresh\n"
    assert editor.call.status == "completed"
    (diff, *_) = editor.call.final["content"]
    assert (diff["type"], diff.get("oldText"), diff["newText"]) == ("diff", None, "fresh\n")


CANNOT = [("fs/read_text_file", -32601), ("fs/read_text_file", -32002), ("fs/write_text_file", -32601)]
WILL_NOT = [("fs/read_text_file", -32603), ("fs/write_text_file", -32603), ("fs/write_text_file", -32000)]


async def test_a_client_that_says_it_cannot_is_fallen_back_from(tmp_path):
    async with editing(tmp_path, [uses(("edit", EDIT)), says("ok")]) as editor:
        for method, code in CANNOT:
            editor.overrides = {method: refusing(code, "not today")}
            await edited(editor)
            assert editor.calls[-1].status == "completed", (method, code)
            assert (editor.workspace / "a.txt").read_text() == "alpha\ngamma\n", (method, code)


async def test_a_refusal_of_the_client_is_final_and_told_in_its_words(tmp_path):
    config = '[acp]\nauto_approve = "full-auto"\n'
    async with editing(tmp_path, [uses(("edit", EDIT)), says("ok")], config=config) as editor:
        for method, code in WILL_NOT:
            editor.overrides = {method: refusing(code, "Permission denied")}
            await edited(editor)
            assert editor.calls[-1].status == "failed", (method, code)
            assert "Permission denied" in editor.calls[-1].text, (method, code)
            assert (editor.workspace / "a.txt").read_text() == "alpha\nbeta\n", (method, code)


async def test_a_new_file_that_the_client_only_says_it_wrote_is_told(tmp_path):
    new = {"path": "b.txt", "content": "fresh\n"}
    async with editing(tmp_path, [uses(("write", new)), says("ok")], short_waits=True) as editor:
        editor.overrides["fs/write_text_file"] = answering({})
        assert await editor.say(await editor.open(), "write") == "end_turn"
    assert editor.call.status == "failed"
    assert "answered that it wrote b.txt, but there is no such file" in editor.call.text


async def test_an_empty_answer_for_a_file_with_text_is_told(tmp_path):
    async with editing(tmp_path, [uses(("read", {"path": "a.txt"})), says("ok")]) as editor:
        (editor.workspace / "a.txt").write_text("on the disk\n")
        editor.overrides["fs/read_text_file"] = answering({"content": ""})
        assert await editor.say(await editor.open(), "read") == "end_turn"
    assert editor.call.status == "failed"
    assert "empty text for a.txt" in editor.call.text


async def test_a_write_that_is_answered_null_is_a_success(tmp_path):
    async def answers_null(call: Call) -> None:
        await call.editor.serve("fs/write_text_file", call.params)
        await call.reply(None)

    async with editing(tmp_path, [uses(("edit", EDIT)), says("ok")]) as editor:
        editor.overrides["fs/write_text_file"] = answers_null
        await edited(editor)
    assert editor.call.status == "completed"
    assert len(editor.requests("fs/write_text_file")) == 1


async def test_a_nonsense_answer_to_a_read_ends_the_call(tmp_path):
    async with editing(tmp_path, [uses(("read", {"path": "a.txt"})), says("ok")]) as editor:
        (editor.workspace / "a.txt").write_text("on the disk\n")
        for nonsense in (None, {}, {"content": 3}, "text", []):
            editor.overrides["fs/read_text_file"] = answering(nonsense)
            assert await editor.say(await editor.open(), "read") == "end_turn"
            assert editor.calls[-1].status == "failed", nonsense
            assert "does not fit the protocol" in editor.calls[-1].text, nonsense


async def test_an_editor_that_never_answers_a_read_costs_one_wait(tmp_path):
    script = [uses(("read", {"path": "a.txt"})), says("ok")]
    async with editing(tmp_path, script, config="[acp]\nrequest_timeout_secs = 0.2\n") as editor:
        (editor.workspace / "a.txt").write_text("on the disk\n")
        editor.overrides["fs/read_text_file"] = never
        assert await editor.say(await editor.open(), "read") == "end_turn"
    assert "on the disk" in editor.call.text


@pytest.mark.parametrize("capabilities", [EVERYTHING, NOTHING], ids=["editor", "disk"])
async def test_a_binary_file_is_an_error_the_model_can_read(tmp_path, capabilities):
    async with editing(tmp_path, [uses(("read", {"path": "b.bin"})), says("ok")], capabilities=capabilities) as editor:
        (editor.workspace / "b.bin").write_bytes(b"\x00\x01\xff\xfe" * 50)
        assert await editor.say(await editor.open(), "read") == "end_turn"
    assert editor.call.status == "failed"
    assert "b.bin" in editor.call.text


async def test_a_path_outside_the_session_is_refused_and_the_editor_is_not_asked(tmp_path):
    (tmp_path / "outside.txt").write_text("secret\n")
    paths = ("../outside.txt", "/etc/passwd", "link/outside.txt")
    async with editing(tmp_path, [uses(*(("read", {"path": path}) for path in paths)), says("ok")]) as editor:
        (editor.workspace / "link").symlink_to(tmp_path)
        assert await editor.say(await editor.open(), "read") == "end_turn"
    assert [call.status for call in editor.calls] == ["failed"] * len(paths)
    assert not editor.requests("fs/read_text_file")
    assert not [call.text for call in editor.calls if "secret" in call.text or "root:" in call.text]


async def test_a_second_root_may_be_read_too(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("over there\n")
    async with editing(tmp_path, [uses(("read", {"path": str(tmp_path / "other" / "a.txt")})), says("ok")]) as editor:
        await editor.initialize()
        params = {"cwd": str(editor.workspace), "mcpServers": [], "additionalDirectories": [str(tmp_path / "other")]}
        session = (await editor.ask("session/new", params))["sessionId"]
        await editor.say(session, "read")
    assert "over there" in editor.call.text


@pytest.mark.parametrize(("capabilities", "marks"), [(NOTHING, 1), (NOTHING, 2), (EVERYTHING, 2)])
async def test_line_endings_and_every_byte_order_mark_survive_an_edit(tmp_path, capabilities, marks):
    mark = b"\xef\xbb\xbf" * marks
    async with editing(tmp_path, [uses(("edit", EDIT)), says("ok")], capabilities=capabilities) as editor:
        (editor.workspace / "a.txt").write_bytes(mark + b"alpha\r\nbeta\r\n")
        await editor.say(await editor.open(), "edit")
    assert (editor.workspace / "a.txt").read_bytes() == mark + b"alpha\r\ngamma\r\n"


async def test_a_file_changed_while_the_user_looked_at_the_diff_is_not_written(tmp_path):
    async def meddle(params):
        await anyio.Path(params["toolCall"]["locations"][0]["path"]).write_text("alpha\nbeta\nmeanwhile\n")
        return "allow_once"

    async with editing(tmp_path, [uses(("edit", EDIT)), says("ok")], decide=meddle) as editor:
        await edited(editor)
    assert editor.call.status == "failed"
    assert (editor.workspace / "a.txt").read_text() == "alpha\nbeta\nmeanwhile\n"


async def test_an_edit_that_matches_twice_is_refused_and_says_how_often(tmp_path):
    async with editing(tmp_path, [uses(("edit", EDIT)), says("ok")]) as editor:
        await edited(editor, "beta\nbeta\n")
    assert editor.call.status == "failed"
    assert "2" in editor.call.text
    assert not editor.requests("session/request_permission")


async def test_what_an_edit_missed_by_is_told_in_code_points_and_what_only_differs_in_blanks_is_applied(tmp_path):
    tried = {
        "x = 'caf\u00e9'": "the file has U+0065 U+0301, you sent U+00E9",
        "def total(basket):\n    return  sum(basket)": "the text at line 4 differs only in blanks",
        "y = 1": "old_string and new_string are the same",
        "    one()\n    two()": "(applied with the file's indentation)",
        "def total(basket):\r\n    return sum(basket)": "(applied with the file's line ends)",
    }
    new = {"y = 1": "y = 1", "    one()\n    two()": "    three()"}
    edits = [("edit", {"path": "a.py", "old_string": old, "new_string": new.get(old, "z = 1")}) for old in tried]
    mind = Mind()
    text = "x = 'cafe\u0301'\n\tone()\n\ttwo()\ndef total(basket):\n    return sum(basket)\n"
    config = "[acp]\nauto_approve = 'full-auto'\n"
    async with thinking(tmp_path, mind.call(*edits), config=config) as (editor, _):
        (editor.workspace / "a.py").write_bytes(text.encode())
        await go(editor)
    assert [words for words, said in zip(tried.values(), mind.said, strict=True) if words not in said] == [], mind.said
    assert [call.status for call in editor.calls] == ["failed"] * 3 + ["completed"] * 2
    assert (editor.workspace / "a.py").read_bytes() == "x = 'cafe\u0301'\n\tthree()\nz = 1\n".encode()


async def test_a_long_file_is_read_in_pages_that_say_where_to_go_on(tmp_path):
    pages = [uses(("read", {"path": "a.txt"})), uses(("read", {"path": "a.txt", "offset": 2001})), says("ok")]
    async with editing(tmp_path, pages, capabilities=NOTHING) as editor:
        (editor.workspace / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 2004)))
        await editor.say(await editor.open(), "read it")
    first, rest = (call.final["rawOutput"]["output"] for call in editor.calls)
    assert first.endswith("2000\tline 2000\n[3 more lines: go on with offset=2001]")
    assert rest.split() == ["2001", "line", "2001", "2002", "line", "2002", "2003", "line", "2003"]


@pytest.mark.parametrize("capabilities", [EVERYTHING, NOTHING], ids=["editor", "disk"])
async def test_a_latin_1_file_is_read_and_edited_in_its_encoding_and_the_model_is_told(tmp_path, capabilities):
    edit = {"path": "a.txt", "old_string": "café", "new_string": "thé"}
    script = [uses(("read", {"path": "a.txt"})), uses(("edit", edit)), says("ok")]
    async with editing(tmp_path, script, capabilities=capabilities) as editor:
        editor.overrides["fs/read_text_file"] = answering({"content": "caf\ufffd au lait\n"})
        (editor.workspace / "a.txt").write_bytes(b"caf\xe9 au lait\n")
        await editor.say(await editor.open(), "edit it")
    assert "[the file is Windows-1252: edit and write keep that]" in editor.calls[0].text
    assert (editor.workspace / "a.txt").read_bytes() == b"th\xe9 au lait\n"


STALE = {
    "read": [uses(("read", {"path": "a.txt"})), says("ok")],
    "edit": [uses(("edit", EDIT)), uses(("edit", EDIT)), says("ok")],
}


async def test_an_edit_of_a_changed_file_is_refused_beside_other_calls_too(tmp_path):
    script = STALE | {"edit": [uses(("edit", EDIT), ("list_directory", {"path": "."})), says("ok")]}
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        session = await editor.open()
        (editor.workspace / "a.txt").write_text("alpha\nbeta\n")
        await editor.say(session, "read it")
        (editor.workspace / "a.txt").write_text("alpha\nbeta\ndelta\n")
        await editor.say(session, "edit it")
    assert [call.status for call in editor.calls] == ["completed", "failed", "completed"]
    assert (editor.workspace / "a.txt").read_text() == "alpha\nbeta\ndelta\n"


@pytest.mark.parametrize("capabilities", [EVERYTHING, NOTHING], ids=["editor", "disk"])
async def test_an_edit_of_a_file_that_others_changed_is_refused_once_and_shows_the_change(tmp_path, capabilities):
    async with editing(tmp_path, STALE, capabilities=capabilities) as editor:
        session = await editor.open()
        (editor.workspace / "a.txt").write_text("alpha\nbeta\n")
        await editor.say(session, "read it")
        (editor.workspace / "a.txt").write_text("alpha\nbeta\ndelta\n")
        await editor.say(session, "edit it")
    assert [call.status for call in editor.calls] == ["completed", "failed", "completed"]
    assert "was changed since you last read or wrote it" in editor.calls[1].text
    assert "+delta" in editor.calls[1].text
    assert len(editor.requests("session/request_permission")) == 1, "a call that is refused anyway is not asked about"
    assert (editor.workspace / "a.txt").read_text() == "alpha\ngamma\ndelta\n"


async def test_what_the_model_is_shown_of_a_file_is_what_it_holds_and_can_be_edited(tmp_path):
    lines = [
        "key\u200b = 1  ",
        "",
        "",
        "\tمی\u200cخواهم \u202eend",
        "\\u200b and \u200b",
        'PASSWORD_HASHER = "argon2"',
        "👩\u200d💻 \x0c",
    ]
    edit = {"path": "a.txt", "old_string": "key\\u200b = 1  \n\n\n", "new_string": "key\\u200b = 2\n"}
    calls = [
        ("read", {"path": "a.txt"}),
        ("grep", {"pattern": ".*", "path": "a.txt"}),
        ("bash", {"command": "cat a.txt"}),
        ("bash", {"command": "git diff --no-index /dev/null a.txt"}),
    ]
    config = '[acp]\nauto_approve = "full-auto"\n'
    script = [uses(call) for call in (*calls, ("edit", edit))] + [says("ok")]
    async with editing(tmp_path, script, config=config, capabilities=NOTHING) as editor:
        (editor.workspace / "a.txt").write_text("\n".join([*lines, ""]))
        await editor.say(await editor.open(), "look and edit")
    read, found, printed, diff = (call.final["rawOutput"]["output"].removesuffix("\n") for call in editor.calls[:4])
    assert [line.partition("\t")[2] for line in unescaped(read).split("\n")] == lines
    assert "[line 1 holds U+200B]" in read
    assert [line.partition(":")[2] for line in unescaped(found).split("\n")[1:-1]] == lines
    assert unescaped(printed) == "\n".join(lines)
    assert [line[1:] for line in unescaped(diff).split("\n")[6:][: len(lines)]] == lines, diff
    assert (editor.workspace / "a.txt").read_text() == "\n".join(["key\u200b = 2", *lines[3:], ""])
    assert "stand for the characters they name" in editor.calls[4].text
