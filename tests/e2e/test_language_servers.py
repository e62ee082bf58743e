"""An editor that shares what its language servers know."""

import json

import pytest

from tests.e2e.model_servers import listening_model
from tests.fakes.answers import answering
from tests.fakes.editor import FILES_ONLY, editing
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

HOVER = "_acp_agent/lsp/hover"
SHARING = {**FILES_ONLY, "_meta": {"lsp": {"methods": [HOVER], "notifications": ["lsp/publishDiagnostics"]}}}


async def test_the_model_asks_a_language_server_and_the_user_shows_it_what_one_complains_of(tmp_path):
    calls = [("lsp_hover", {"path": "main.py", "line": 2, "column": 5})]
    async with (
        listening_model(*calls) as model,
        editing(tmp_path, None, capabilities=SHARING, **model.options) as editor,
    ):
        editor.overrides[HOVER] = answering({"contents": {"kind": "markdown", "value": "def main() -> None"}})
        (editor.workspace / "main.py").write_text("import os\ndef main(): ...\n")
        uri = f"file://{editor.workspace}/main.py"
        offered = (await editor.initialize())["agentCapabilities"]["_meta"]["acp_agent"]["lsp"]
        assert "lsp/hover" in offered["methods"]
        session = await editor.new_session(str(editor.workspace))

        await editor.say(session, "What is main?")
        (asked,) = editor.requests(HOVER)
        assert asked == {"sessionId": session, "uri": uri, "line": 1, "character": 4}
        assert editor.call.status == "completed"
        tools = [tool["function"]["name"] for tool in model.requests[0]["tools"]]
        assert [name for name in tools if name.startswith("lsp_")] == ["lsp_hover"]
        answered = model.requests[1]["messages"][-1]["content"]
        assert answered.startswith("<external-data id=")
        assert ('source="lsp_hover"' in answered, "def main() -> None" in answered) == (True, True)

        start = {"line": 0, "character": 7}
        unused = {"range": {"start": start, "end": {"line": 0, "character": 9}}, "severity": 2, "message": "os: unused"}
        await editor.agent.notify("lsp/publishDiagnostics", {"sessionId": session, "uri": uri, "diagnostics": [unused]})
        await editor.say(session, "Mend @diagnostics please")
        prompt = json.dumps(model.requests[-1]["messages"][-1]["content"])
        assert ("[LSP Diagnostics]" in prompt, "main.py:1" in prompt, "os: unused" in prompt) == (True, True, True)


async def test_the_outline_of_a_language_without_a_grammar_comes_from_the_editors_language_server(tmp_path):
    method = "_acp_agent/lsp/documentSymbols"
    sharing = {**FILES_ONLY, "_meta": {"lsp": {"methods": [method], "notifications": []}}}
    span = {"start": {"line": 2, "character": 0}, "end": {"line": 4, "character": 1}}
    script = [uses(("outline", {"path": "main.kt"})), says("ok")]
    async with editing(tmp_path, script, capabilities=sharing) as editor:
        symbol = {"name": "Basket", "kind": 5, "range": span, "selectionRange": span}
        editor.overrides[method] = answering([symbol])
        (editor.workspace / "main.kt").write_text("\n\nclass Basket {\n  val total = 0\n}\n")
        await editor.say(await editor.open(), "go")
        (asked,) = editor.requests(method)
    assert asked["uri"] == f"file://{editor.workspace}/main.kt"
    assert "    3  class Basket" in editor.call.text
