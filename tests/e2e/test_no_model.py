"""Without a model, or with one that refuses: a session that opens, says what to do, and still helps."""

from functools import partial

import pytest

from tests.e2e.model_servers import listing_model, refusing_model
from tests.fakes import editor as editors
from tests.fakes.editor import NOTHING
from tests.fakes.model_script import says

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)


async def test_a_prompt_without_a_model_says_how_to_set_one_up(tmp_path):
    async with editing(tmp_path, None) as editor:
        assert await editor.say(await editor.open(), "hello") == "end_turn"
    for hint in ("ACP_AGENT_MODEL", "ANTHROPIC_API_KEY", "acp-agent login"):
        assert hint in editor.text


async def test_the_steps_to_a_model_stand_one_a_line_and_not_in_one_paragraph(tmp_path):
    async with editing(tmp_path, None) as editor:
        await editor.say(await editor.open(), "hello")
    what, blank, *steps = editor.text.strip().split("\n")
    assert (what, blank) == ("No model is configured.", "")
    assert [step[:3] for step in steps] == ["1. ", "2. "]


LOGS_IN = {"auth": {"terminal": True}}
NAMED = {"ACP_AGENT_MODEL": "anthropic:some-model"}


async def test_an_editor_that_can_log_in_is_asked_to_where_the_models_key_is_missing(tmp_path):
    """The README's way: a model is named, and nothing else (acp.md 1.4)."""
    async with editing(tmp_path, None, capabilities=LOGS_IN, environment=NAMED) as editor:
        session = await editor.open()
        error = await editor.error_of("session/prompt", editor.prompt_params(session, "hello"))
    assert error.code == -32000
    assert "`acp-agent login --provider anthropic`" in error.message
    assert "ANTHROPIC_API_KEY" in error.message
    assert not editor.text


async def test_an_editor_that_cannot_log_in_is_told_how_the_user_does(tmp_path):
    async with editing(tmp_path, None, capabilities=NOTHING, environment=NAMED) as editor:
        assert await editor.say(await editor.open(), "hello") == "end_turn"
    assert "`acp-agent login --provider anthropic`" in editor.told


async def test_help_tools_and_run_need_no_model(tmp_path):
    async with editing(tmp_path, None, capabilities=NOTHING) as editor:
        session = await editor.open()
        assert await editor.say(session, "/help") == "end_turn"
        assert all(name in editor.text for name in ("/help", "/tools", "/run"))
        assert await editor.say(session, "/tools") == "end_turn"
        assert all(name in editor.text for name in ("bash", "read", "edit", "grep"))
        assert await editor.say(session, "/run echo by hand") == "end_turn"
    assert "by hand" in editor.call.text
    assert len(editor.requests("session/request_permission")) <= 1


async def test_run_without_a_command_says_what_it_wants(tmp_path):
    async with editing(tmp_path, None) as editor:
        assert await editor.say(await editor.open(), "/run") == "end_turn"
    assert "/run" in editor.text
    assert not editor.calls


async def test_run_passes_the_same_gates(tmp_path):
    async with editing(tmp_path, None) as editor:
        assert await editor.say(await editor.open(), "/run sudo reboot") == "end_turn"
    assert editor.call.status == "failed"
    assert not editor.requests("terminal/create")


async def test_a_model_server_that_refuses_the_key_is_named_and_the_session_lives(tmp_path):
    async with refusing_model(401) as model, editing(tmp_path, None, **model.options) as editor:
        session = await editor.open()
        assert await editor.say(session, "hello") == "end_turn"
        assert "refusing" in editor.told
        assert "key" in editor.told.lower()
        assert "obviously-fake" not in str([frame.message for frame in editor.recording.frames])
        assert await editor.say(session, "/help") == "end_turn"


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ("[llm]\nmodle = 1\n", "modle"),
        ("[agent]\nmax_tool_iterations = 'many'\n", "max_tool_iterations"),
        ("[agent\n", "config.toml"),
        ("[tools.shell]\ntimeout = -1\n", "timeout"),
    ],
)
async def test_a_broken_configuration_is_told_in_the_session(tmp_path, config, named):
    async with editing(tmp_path, None, config=config) as editor:
        session = await editor.open()
        assert await editor.say(session, "/help") == "end_turn"
        assert named in editor.told
        assert "config.toml" in editor.told


async def test_a_model_nobody_configured_is_named(tmp_path):
    async with editing(tmp_path, None, config='[llm]\nmodel = "nowhere:some-model"\n') as editor:
        assert await editor.say(await editor.open(), "hello") == "end_turn"
    assert "nowhere" in editor.told


async def test_a_project_may_not_choose_the_model(tmp_path):
    async with editing(tmp_path, [says("the user's model")]) as editor:
        project = editor.workspace / ".acp-agent"
        project.mkdir()
        (project / "config.toml").write_text('[llm]\nmodel = "openai:evil"\n')
        session = await editor.open()
        await editor.say(session, "hello")
    assert "the user's model" in editor.text


async def test_older_clients_set_the_model_by_a_method_of_its_own(tmp_path):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        session = await editor.open()
        ours = f"scripted:{editor.home.root}/script.json"
        assert await editor.ask("session/set_model", {"sessionId": session, "modelId": ours}) == {}
        error = await editor.error_of("session/set_model", {"sessionId": session, "modelId": "nobody:m"})
        assert (error.code, "model not in allowed list" in error.message) == (-32600, True)
        assert (await editor.error_of("session/set_model", {"sessionId": "x", "modelId": ours})).code == -32002


async def test_a_model_can_be_chosen_in_the_editor_as_soon_as_a_list_is_known(tmp_path):
    async with listing_model("first", "second") as model, editing(tmp_path, None, **model.options) as editor:
        session = await editor.open()
        option = await editor.seen(lambda frame: "list:second" in str(frame.update.get("configOptions")))
        shown = next(each for each in option.update["configOptions"] if each["id"] == "model")
        assert shown["currentValue"] == "none"
        assert await editor.say(session, "hello") == "end_turn"
        assert "No model is chosen. `/model` lists the models, and `/model NAME` chooses one." in editor.told
        assert await editor.say(session, "/model") == "end_turn"
        assert "`list:second`" in editor.text
        params = {"sessionId": session, "configId": "model", "value": "list:second"}
        answer = await editor.ask("session/set_config_option", params)
        assert {each["id"]: each["currentValue"] for each in answer["configOptions"]}["model"] == "list:second"
