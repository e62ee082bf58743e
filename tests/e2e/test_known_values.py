"""Values nobody could tell by their form: what MCP servers are given, and a key in a variable of any name."""

import pytest

from tests.e2e.model_servers import listening_model
from tests.e2e.test_canaries import SHOWS_TERMINALS, Search, some_letters
from tests.fakes.editor import NOTHING, editing, from_agent

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("capabilities", [NOTHING, SHOWS_TERMINALS], ids=["text", "a terminal of ours"])
async def test_what_an_mcp_server_is_given_and_a_key_of_any_name_are_known(tmp_path, capabilities):
    token, variable, key = (f"obviously-fake-{kind}-{some_letters(24, kind)}" for kind in ("token", "variable", "key"))
    header = f"Custom {token}"
    (tmp_path / "said.txt").write_text(
        f"{header}\n<{token}>\n{variable}\n{key}\nplaces of no secret: us-east-1 postgres\n"
    )
    async with listening_model(("bash", {"command": f"cat '{tmp_path}/said.txt'"})) as model:
        config = model.options["config"].replace("MODEL_KEY", "MY_LLM")
        environment = {"MY_LLM": key, "POSTGRES_PASSWORD": "postgres"}
        started = editing(tmp_path, None, capabilities=capabilities, config=config, environment=environment)
        async with started as editor:
            await editor.initialize()
            headers = [{"name": "X-Auth", "value": header}, {"name": "X-Region", "value": "us-east-1"}]
            env = [{"name": "SOME_PAT", "value": variable}, {"name": "DB_PASSWORD", "value": "postgres"}]
            servers = [
                {"type": "http", "name": "a", "url": "http://127.0.0.1:9/", "headers": headers},
                {"name": "b", "command": "/bin/false", "args": [], "env": env},
                {"name": "odd", "headers": {"not": "a list"}, "env": [1, {"name": 2, "value": "x"}]},
            ]
            session = (await editor.ask("session/new", {"cwd": str(editor.workspace), "mcpServers": servers}))[
                "sessionId"
            ]
            assert await editor.say(session, "go") == "end_turn"
        search = Search(header)
        search.requests(model)
        for value in (token, variable, key):
            assert value not in search.told
            assert not [frame for frame in editor.recording.frames if from_agent(frame) and value in str(frame.message)]
        assert "places of no secret: us-east-1 postgres" in search.told
