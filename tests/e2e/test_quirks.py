"""Peculiarities of clients, each by a test that is named after it. docs/protocol.md lists them with all their tests.

One agent serves all of it: each test introduces itself as another client and opens a session of its own.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from acp_agent.cli.agent_process import RecordedFrame, SeenCall, text_at
from tests.fakes.answers import Call, answering
from tests.fakes.editor import FILES_ONLY, NOTHING, TERMINAL_ONLY, ScriptedEditor, editing, from_agent
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

ASK = "session/request_permission"
POEM = "roses are red\nviolets are red\n"
EDIT = {"path": "poem.txt", "old_string": "roses are red", "new_string": "roses are blue"}
PICTURE = "![x](https://evil.example/?q=1)"
CODE = "python3 -c 'print(1)'"
SCRIPT = {
    "edit": [uses(("edit", EDIT)), says("Edited.")],
    "twice": [
        uses(("edit", EDIT)),
        uses(("edit", {**EDIT, "old_string": "violets", "new_string": "lilies"})),
        says("Ok."),
    ],
    "picture": [
        uses(("write", {"path": "new.md", "content": f"{PICTURE}\n"})),
        says("Written."),
    ],
    "rewrite": [uses(("write", {"path": "new.txt", "content": "line\n" * 60})), says("Written.")],
    "tag": [uses(("bash", {"command": "git tag v1"})), says("Tagged.")],
    "two": [uses(("bash", {"command": "git tag v1; git tag v2"})), says("Tagged.")],
    "code": [uses(("bash", {"command": CODE})), says("Ran.")],
    "read": [uses(("read", {"path": "poem.txt"})), says("Read.")],
    "absent": [uses(("read", {"path": "absent.txt"})), says("None.")],
    "fail": [uses(("bash", {"command": "cat absent.txt"})), says("Failed.")],
    "colon": [uses(("bash", {"command": "echo 'fix: all'"})), says("Said.")],
}


@dataclass(frozen=True)
class Told:
    """What a client was told in one turn."""

    frames: list[RecordedFrame]
    calls: list[SeenCall]

    @property
    def call(self) -> SeenCall:
        """The only call of the turn."""
        (call,) = self.calls
        return call

    @property
    def asked(self) -> dict[str, Any]:
        """The only question of the turn."""
        (asked,) = (frame.params for frame in self.frames if from_agent(frame) and frame.method == ASK)
        return asked

    @property
    def question(self) -> dict[str, Any]:
        """The call as the question has it."""
        return self.asked["toolCall"]

    @property
    def texts(self) -> str:
        """The texts of the question."""
        return "\n".join(each["content"]["text"] for each in self.question["content"] if each["type"] == "content")

    @property
    def before(self) -> str:
        """The thoughts between the card and the question."""
        (card,) = (i for i, frame in enumerate(self.frames) if frame.update.get("sessionUpdate") == "tool_call")
        (ask,) = (i for i, frame in enumerate(self.frames) if from_agent(frame) and frame.method == ASK)
        thoughts = (f.update for f in self.frames[card:ask] if f.update.get("sessionUpdate") == "agent_thought_chunk")
        return "".join(update["content"]["text"] for update in thoughts)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def agent(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ScriptedEditor]:
    async with editing(tmp_path_factory.mktemp("quirks"), SCRIPT) as editor:
        yield editor


async def turn(agent: ScriptedEditor, name: str | None, prompt: str, capabilities: dict[str, Any] = FILES_ONLY) -> Told:
    """One turn with the client `name`; None is a client that sends no name."""
    (agent.workspace / "poem.txt").write_text(POEM)
    agent.capabilities = capabilities
    info = {} if name is None else {"clientInfo": {"name": name, "version": "1"}}
    await agent.ask("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities, **info})
    session = await agent.new_session(str(agent.workspace))
    start = len(agent.recording.frames)
    assert await agent.say(session, prompt) == "end_turn"
    frames = agent.recording.frames[start:]
    return Told([frame for frame in frames if frame.params.get("sessionId") == session], agent.calls_of(session))


# ------------------------------------------------------------------------------------------------- questions


async def test_marimo_shows_the_content_of_a_question_only_so_the_command_stands_first_in_it(agent):
    told = await turn(agent, None, "tag")
    assert told.texts.startswith("```\ngit tag v1\n```\n\n")
    assert told.question["title"] == "git tag v1"


async def test_zed_and_toad_show_the_title_of_a_question_so_the_command_is_not_repeated(agent):
    for name in ("zed", "toad"):
        assert "git tag v1\n" not in (await turn(agent, name, "tag")).texts, name


async def test_a_client_that_nobody_knows_gets_a_change_as_a_diff_and_as_text(agent):
    told = await turn(agent, "Brand New Editor", "edit")
    diff, _ = told.question["content"]
    assert (diff["type"], diff["oldText"], diff["path"]) == ("diff", POEM, told.question["locations"][0]["path"])
    assert f"{diff['path']}\n@@ -1,3 +1,3 @@\n-roses are red\n+roses are blue\n violets are red" in told.texts
    assert told.before == ""


@pytest.mark.parametrize("name", ["zed", "toad", "acp-agent-vscode", "agent-shell", "CodeCompanion.nvim", "Jupyter AI"])
async def test_clients_that_draw_the_diff_of_a_question_get_no_second_one_in_text(agent, name):
    told = await turn(agent, name, "edit")
    assert told.question["content"][0]["type"] == "diff"
    assert "-roses" not in told.texts + told.before


@pytest.mark.parametrize("name", ["vscode-acp-client", "vscode-acp-chat", "acpx"])
async def test_vs_code_extensions_and_acpx_show_the_title_of_a_question_only_so_it_says_what_changes(agent, name):
    told = await turn(agent, name, "edit")
    assert told.question["title"] == "edit poem.txt: -roses are red +roses are blue"
    assert "    -roses are red\n    +roses are blue\n" in told.before, "and in a thought before it stands the whole"
    assert told.call.first["title"] == "edit poem.txt"


async def test_no_change_in_a_title_or_a_thought_of_a_question_fetches_a_picture(agent):
    told = await turn(agent, "vscode-acp-chat", "picture")
    assert told.question["title"] == "write new.md: +![x]\\(https://evil.example/?q=1)"
    assert told.before.startswith("\n\n    "), "Markdown takes the text for code, also behind another thought"
    assert f"\n    +{PICTURE}\n" in told.before
    (agent.workspace / "new.md").unlink()


async def test_a_long_change_in_text_is_cut_and_says_how_much_is_left_out(agent):
    told = await turn(agent, "acpx", "rewrite")
    assert told.before.count("+line") == 40
    assert "… 20 more lines of this change are not shown here" in told.before
    assert told.question["title"].endswith(" more characters)")
    (agent.workspace / "new.txt").unlink()


async def test_several_reasons_of_a_question_are_one_list(agent):
    assert "- runs: git tag v1\n- runs: git tag v2\n\n“Always”" in (await turn(agent, None, "two")).texts


async def test_emacs_neovim_and_jupyter_show_no_text_of_a_question_so_its_warnings_are_told_before_it(agent):
    for name in ("agent-shell", "CodeCompanion.nvim", "Jupyter AI"):
        told = await turn(agent, name, "code")
        assert "WARNING: python3 runs code of its own" in told.before, name
        assert "sha256" not in told.before + told.texts
        assert (await turn(agent, name, "tag")).before == "", "where the title says all there is nothing to tell"


async def test_codecompanion_draws_every_option_and_keeps_one_a_kind_so_it_gets_one_a_kind(agent):
    kept = ["allow_once", "allow_session", "reject_once", "reject_always"]
    assert [each["optionId"] for each in (await turn(agent, "CodeCompanion.nvim", "edit")).asked["options"]] == kept
    assert len((await turn(agent, "agent-shell", "edit")).asked["options"]) == 5


# ------------------------------------------------------------------------------------------------- cards


async def test_vscode_acp_chat_and_acpx_print_fences_as_they_are_so_they_get_none(agent):
    for name, fence in (("vscode-acp-chat", False), ("acpx", False), ("zed", True), (None, True)):
        told = await turn(agent, name, "read")
        assert ("```" in str(told.call.final)) == fence, name


async def test_acpx_shows_raw_output_beside_the_content_so_a_failure_is_told_once(agent):
    told = await turn(agent, "acpx", "absent")
    assert told.call.status == "failed"
    assert told.call.final["content"] == []
    assert told.call.final["rawOutput"]["output"] == "absent.txt: no such file or directory"
    told = await turn(agent, "acpx", "fail", TERMINAL_ONLY)
    assert [each["type"] for each in told.call.final["content"]] == ["terminal"]
    assert str(told.call.final["rawOutput"]).count("No such file") == 1


async def test_other_clients_show_the_text_of_a_failure_in_the_content_of_its_card(agent):
    told = await turn(agent, None, "absent")
    assert told.call.text.strip("`\n") == told.call.final["rawOutput"]["output"]


async def test_zed_formats_what_it_saves_so_the_model_is_told_and_its_next_edit_is_made(agent):
    async def formatted(call: Call) -> None:
        Path(call.params["path"]).write_text(re.sub(" +are +", "  are  ", call.params["content"]))
        await call.reply({})

    agent.overrides["fs/write_text_file"] = formatted
    try:
        told = await turn(agent, "zed", "twice")
    finally:
        del agent.overrides["fs/write_text_file"]
    assert [call.status for call in told.calls] == ["completed", "completed"]
    first, _ = told.calls
    assert first.final["content"][0]["newText"] == "roses  are  blue\nviolets  are  red\n"
    assert "The editor changed it as it saved it:\n@@ -1,3 +1,3 @@\n-roses are blue\n" in first.text
    assert first.text.startswith("\n```\n"), "so that Markdown keeps its lines"
    assert (agent.workspace / "poem.txt").read_text() == "roses  are  blue\nlilies  are  red\n"


async def test_codecompanion_cuts_titles_at_a_colon_so_such_titles_stand_in_backticks(agent):
    assert (await turn(agent, "CodeCompanion.nvim", "colon")).call.first["title"] == "`echo 'fix: all'`"
    assert (await turn(agent, "CodeCompanion.nvim", "tag")).call.first["title"] == "git tag v1"
    assert (await turn(agent, "zed", "colon")).call.first["title"] == "echo 'fix: all'"


async def test_clients_without_terminals_get_the_output_of_a_command_as_text(agent):
    for name in ("agent-shell", "CodeCompanion.nvim", "WebStorm", None):
        told = await turn(agent, name, "colon", NOTHING)
        assert "fix: all" in told.call.text, name


async def test_clients_that_show_nothing_outside_of_prompts_are_told_what_is_due_instead(agent):
    for name, shows in (("zed", True), ("agent-shell", False), ("CodeCompanion.nvim", False), ("acpx", False)):
        told = await turn(agent, name, "/schedule every day at 9: read")
        said = "".join(text_at(frame.update, "content", "text") for frame in told.frames)
        assert ("so nothing fires by itself" in said) is not shows, name


# ------------------------------------------------------------------------------------------------- answers


async def test_toad_answers_notifications_with_errors_of_id_null_which_end_nothing(agent):
    error = {"code": -32601, "message": "Method not found"}
    await agent.agent.send({"jsonrpc": "2.0", "id": None, "error": error})
    assert (await turn(agent, "toad", "read")).call.status == "completed"


async def test_toad_runs_commands_on_a_pty_whose_line_ends_are_read_as_such(agent):
    async def on_a_pty(call: Call) -> None:
        await call.reply({"output": "one\r\ntwo\r\n", "truncated": False, "exitStatus": {"exitCode": 0}})

    agent.overrides["terminal/output"] = on_a_pty
    told = await turn(agent, "toad", "colon", TERMINAL_ONLY)
    del agent.overrides["terminal/output"]
    assert told.call.final["rawOutput"]["output"] == "one\ntwo"


async def test_a_vs_code_quick_pick_that_is_dismissed_cancels_the_call_and_not_the_session(agent):
    agent.overrides[ASK] = answering({"outcome": {"outcome": "cancelled"}})
    try:
        told = await turn(agent, "vscode-acp-client", "edit")
    finally:
        del agent.overrides[ASK]
    assert told.call.status == "failed"
    assert (agent.workspace / "poem.txt").read_text() == POEM


# ------------------------------------------------------------------------------------------------- sessions


async def test_jupyter_hands_over_an_http_server_on_new_and_on_load_and_the_session_opens_without_it(agent):
    server = {"type": "http", "name": "jupyter", "url": "http://127.0.0.1:9/mcp", "headers": []}
    place = {"cwd": str(agent.workspace), "mcpServers": [server]}
    session = (await agent.ask("session/new", place))["sessionId"]
    assert "configOptions" in await agent.ask("session/load", {"sessionId": session, **place})
    await agent.ask("session/close", {"sessionId": session})


async def test_marimo_names_files_by_bare_paths_and_embeds_texts(agent):
    (agent.workspace / "poem.txt").write_text(POEM)
    place = str(agent.workspace / "poem.txt")
    prompt = [
        {"type": "text", "text": "read this"},
        {"type": "resource_link", "uri": place, "name": "poem.txt"},
        {"type": "resource", "resource": {"uri": place, "text": POEM}},
    ]
    session, start = await agent.new_session(str(agent.workspace)), len(agent.recording.frames)
    assert await agent.ask("session/prompt", {"sessionId": session, "prompt": prompt}) == {"stopReason": "end_turn"}
    told = "".join(text_at(f.update, "content", "text") for f in agent.recording.frames[start:] if from_agent(f))
    assert "left out" not in told
