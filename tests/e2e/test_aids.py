"""What helps a model with its tools, each switched on: what it is shown, what is skipped, mended, tried again, told."""

import json
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.e2e import aided as aided_agents
from tests.e2e.aided import KEY, last, offered, parameters, rows, system, told

pytestmark = pytest.mark.anyio

aided = partial(aided_agents.aided, serves=__name__)

THOUGHT = "I wonder which of the two this is"
THINK = "_tafc_think"


def program_folder() -> str:
    """Where this environment's ruff is, before all else."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


async def test_tafc_gives_the_model_a_place_to_think_and_keeps_nothing_of_what_it_wrote_there(tmp_path):
    steps = [
        ("memory_save", {THINK: THOUGHT, "content": "Tests run by make."}),
        ("read", {"_TAFC_think_2": THOUGHT, "path": "a.txt"}),
        ("read", {THINK: THOUGHT}),
    ]
    config = '[tools.tafc]\nenabled = true\ncomplexity_threshold = 0\n[logging]\nlevel = "debug"\n'
    async with aided(tmp_path, *steps, config=config, serves="") as (session, model, _):
        session.write("a.txt", "alpha\n")
        await session.say("go")
        shown = parameters(model.requests[0], "read")
        assert [*shown["properties"]][:2] == [THINK, "path"]
        assert shown["required"] == ["path"]
        assert [call.status for call in session.calls] == ["completed", "completed"], "a thought alone shows no card"
        assert "alpha" in session.calls[1].text
        assert "no arguments, so it was not run" in last(model.requests[-1])
        count = len(offered(model.requests[0]))
        assert f"Thinking before calls (TAFC): {count} of {count} tools ask for it" in await session.status()
        assert THOUGHT not in told(model.requests[-1])
    assert "Tests run by make." in session.traces
    assert THOUGHT not in session.traces
    assert [record["call"] for record in session.records] == [{"content": "Tests run by make."}, {"path": "a.txt"}]
    assert rows(tmp_path, "SELECT content FROM memories") == [("Tests run by make.",)]


async def test_the_tool_filter_shows_what_is_always_on_named_fitting_or_in_use_and_no_more(tmp_path):
    config = "[agent.tool_filter]\nenabled = true\ntop_k = 2\nalways_on = ['read']\n"
    async with aided(tmp_path, ("list_directory", {"path": "."}), "done", "hm", config=config) as (session, model, _):
        session.write("a.txt", "alpha\n")
        await session.say("Use web_scrape, then delete the folder and move the file")
        first, second = model.requests
        assert len(offered(first)) == 4
        assert {"read", "web_scrape", "delete_path", "move_path"} == set(offered(first))
        assert session.calls[0].status == "completed", "what is not shown exists all the same"
        assert set(offered(second)) == {*offered(first), "list_directory"}
        await session.say("Remember this note for later sessions")
        assert "web_scrape" not in offered(model.requests[-1])
        assert {"read", "memory_save"} <= set(offered(model.requests[-1]))
        status = await session.status()
        assert "1 always and 2 that fit best, compared by words, since no embedding model is set" in status
        assert "the model is shown 3 of " in status


async def test_a_tool_that_depends_on_another_is_hidden_until_that_has_succeeded(tmp_path):
    change = ("edit", {"path": "a.txt", "old_string": "alpha", "new_string": "beta"})
    config = "[tools.dependencies]\nenabled = true\n[tools.dependencies.rules.edit]\nrequires = ['read']\n"
    async with aided(tmp_path, change, ("read", {"path": "a.txt"}), change, config=config) as (session, model, _):
        file = session.write("a.txt", "alpha\n")
        await session.say("go")
        before, refused, after, _ = model.requests
        assert "edit" not in offered(before)
        assert "edit" not in offered(refused)
        assert set(offered(after)) == {*offered(before), "edit"}
        assert "edit waits for read to succeed" in last(refused)
        assert "[advice] Call read first." in last(refused)
        assert [call.status for call in session.calls] == ["failed", "completed", "completed"]
        assert session.questions == 1, "what waits asks nothing"
        assert [(record["tool"], record.get("error_category")) for record in session.records] == [
            ("edit", "policy_blocked"),
            ("read", None),
            ("edit", None),
        ]
        assert session.records[0]["result"]["type"] == "blocked"
        assert file.read_text() == "beta\n"
        assert "Dependencies: 1 tool depends on others, 2 tools have succeeded, none waits" in await session.status()


async def test_what_a_tool_prefers_lifts_its_rank_in_the_filter_once_it_has_succeeded(tmp_path):
    config = (
        "[agent.tool_filter]\nenabled = true\ntop_k = 1\nalways_on = ['read']\n"
        "[tools.dependencies]\nenabled = true\nboost_per_dep = 1\nmax_total_boost = 1\n"
        "[tools.dependencies.rules.copy_path]\nprefers = ['read']\n"
    )
    async with aided(tmp_path, ("read", {"path": "a.txt"}), "done", "done", config=config) as (session, model, _):
        session.write("a.txt", "alpha\n")
        for _ in range(2):
            await session.say("Search the notes of earlier sessions")
        assert "copy_path" not in offered(model.requests[0])
        assert "copy_path" in offered(model.requests[-1])


async def test_phases_search_the_notes_check_what_was_edited_and_keep_summaries_without_a_question(tmp_path):
    steps = [
        ("memory_save", {"content": "The parrot lives in bird.py."}),
        "noted",
        ("write", {"path": "bird.py", "content": "import os\n"}),
        "written",
    ]
    config = "[tools.phases]\nenabled = true\n"
    options = {"environment": KEY | {"PATH": program_folder()}, "chores": "They talked of a bird."}
    async with aided(tmp_path, *steps, config=config, serves="", **options) as (session, model, chores):
        session.write("pyproject.toml", "[tool.ruff]\n")
        model.summary = chores.summary
        await session.say("Remember where the parrot lives: " + "it lives in bird.py, " * 100)
        await session.say("Where is the parrot?")
        assert "[the agent itself has called memory_search; it says:]" in told(model.requests[2])
        assert "The parrot lives in bird.py." in last(model.requests[2])
        assert "Where is the parrot?" in last(model.requests[2]), "behind the prompt, in its message"
        checked = told(model.requests[3])
        assert "[the agent itself has called diagnostics; it says:]" in checked
        assert "bird.py:1:8: warning: `os` imported but unused [F401]" in checked
        asked = session.questions
        assert "Summed up" in await session.say("/compact")
        assert session.questions == asked
        assert "Phases: planner 2, verifier 1, autonomous 1 calls" in await session.status()
    assert [(record["tool"], record.get("phase")) for record in session.records] == [
        ("memory_search", "planner"),
        ("memory_save", None),
        ("memory_search", "planner"),
        ("write", None),
        ("diagnostics", "verifier"),
        ("memory_save", "autonomous"),
    ]
    assert [call.status for call in session.calls] == ["completed"] * 6, "each is a card"
    (first,), (second,) = rows(tmp_path, "SELECT content FROM memories ORDER BY key")
    assert first == "The parrot lives in bird.py."
    assert second.endswith("They talked of a bird.")


async def test_the_utility_gate_skips_what_was_read_before_or_costs_too_much_and_says_why(tmp_path):
    read, other = ("read", {"path": "a.txt"}), ("read", {"path": "b.txt"})
    change = ("bash", {"command": "echo beta >> a.txt"})
    config = "[tools.utility]\nenabled = true\nthreshold = 0.6\nexempt_tools = ['list_directory']\n"
    config += '[[llm.models]]\nid = "main:any"\ncontext_window = 12_000\n'
    steps = [read, read, change, read, "once", read, "twice", other, ("list_directory", {"path": "."}), "three"]
    async with aided(tmp_path, *steps, config=config, serves="") as (session, model, _):
        session.write("a.txt", "alpha\n")
        session.write("b.txt", "bravo\n")
        await session.say("go")
        assert [call.status for call in session.calls] == ["completed", "failed", "completed", "completed"]
        assert "the same call was made in this turn and nothing has changed since" in last(model.requests[2])
        assert "alpha" not in last(model.requests[2])
        assert "beta" in last(model.requests[4]), "what changes something makes every answer new"
        await session.say("go again")
        assert session.calls[4].status == "completed", "a new turn asks anew"
        await session.say("word " * 5_000)
        skipped, exempt = session.calls[5:]
        assert (skipped.status, exempt.status) == ("failed", "completed")
        assert "this call is not worth its cost now" in told(model.requests[-2])
        assert "bravo" not in told(model.requests[-1])
        skipped = "2 calls worth less than 0.6 skipped; never skipped: list_directory"
        assert f"Utility gate: {skipped}" in await session.status()
    assert [record["gate"] for record in session.records if "gate" in record and record["tool"] == "read"] == [
        "utility",
        "utility",
    ]


async def test_paths_nobody_mentioned_are_told_to_the_user_the_model_and_the_audit_and_the_call_runs(tmp_path):
    made_up, named = ("read", {"path": "ghost.py"}), ("read", {"path": "phantom.py"})
    steps = [made_up, ("write", {"path": "spectre/new.txt", "content": "boo\n"}), "hm", named, "well"]
    config = "[agent]\nhallucination_detection = true\n"
    async with aided(tmp_path, *steps, config=config, serves="") as (session, model, _):
        heard = await session.say("go")
        assert "read: perhaps made up by the model: ghost.py is not there, and nobody has mentioned it" in heard
        assert "write: perhaps made up by the model: spectre is not there" in heard
        first, second = model.requests[1:3]
        assert "[hallucination_suspect] ghost.py is not there" in last(first)
        assert "[hallucination_suspect] spectre" in last(second)
        assert [call.status for call in session.calls] == ["failed", "completed"]
        assert (session.editor.workspace / "spectre" / "new.txt").read_text() == "boo\n"
        assert "made up" not in await session.say("What is in phantom.py?")
        assert "hallucination_suspect" not in last(model.requests[-1]), "what the user names is not made up"
        assert "Hallucination detection: 2 calls suspected" in await session.status()
    assert [record.get("hallucination_suspected") for record in session.records] == [True, True, None]


async def test_arguments_that_do_not_fit_are_mended_once_by_the_named_model(tmp_path):
    config = '[tools.retry]\nparameter_reformat_provider = "chores:any"\n'
    steps = [("bash", {"cmdline": "echo once >> log.txt"}), "done", ("read", {"nothing": 1}), "hm"]
    mended = '```json\n{"command": "echo once >> log.txt"}\n```'
    async with aided(tmp_path, *steps, chores=mended, config=config, serves="") as (session, model, mender):
        await session.say("go")
        assert (session.editor.workspace / "log.txt").read_text() == "once\n"
        assert session.calls[0].status == "completed"
        assert session.questions == 1, "the mended call passes the gates"
        (asked,) = mender.requests
        sent = json.loads(last(asked))
        assert (sent["tool"], json.loads(sent["arguments"])) == ("bash", {"cmdline": "echo once >> log.txt"})
        assert "repair the arguments" in system(asked)
        assert offered(asked) == []
        assert "[arguments repaired: yours did not fit" in last(model.requests[-1])
        mender.summary = '{"path": 1}'
        await session.say("go on")
        assert session.calls[1].status == "failed", "what does not fit either is the model's to mend"
        assert last(model.requests[-1]).startswith("[error] ")
        assert len(mender.requests) == 2
        assert "Argument repair: by chores:any, 2 of 2 calls repaired" in await session.status()
    record = session.record_of("bash")
    assert (record["arguments_mended"], record["call"]) == (True, {"command": "echo once >> log.txt"})
    assert "arguments_mended" not in session.record_of("read")


async def test_a_call_that_failed_for_want_of_a_network_is_tried_again_only_where_it_changes_nothing(tmp_path):
    program, log = tmp_path / "offline.py", tmp_path / "log"
    program.write_text(OFFLINE)
    server = f"[[mcp.servers]]\nname = 'off'\ncommand = '{sys.executable}'\nargs = ['{program}', '{log}']\n"
    config = f"[tools.retry]\nmax_attempts = 2\nbase_ms = 1\n{server}read_only_tools = ['look']\n"
    async with aided(tmp_path, ("mcp_off_look", {}), ("mcp_off_change", {}), config=config) as (session, model, _):
        await session.until_offered("mcp_off_look", "mcp_off_change")
        await session.say("go")
        looked, changed = map(last, model.requests[1:])
        assert "(tried 3 times)" in looked
        assert "tried" not in changed
        assert log.read_text().split() == ["look", "look", "look", "change"]
        assert [call.status for call in session.calls] == ["failed", "failed"]
        assert session.record_of("mcp_off_look")["attempts"] == 3
        assert "attempts" not in session.record_of("mcp_off_change")


async def test_a_call_that_is_wrong_twice_brings_a_word_and_without_any_aid_nothing_else_happens(tmp_path):
    wrong, made_up = ("read", {"pth": "a.txt"}), ("read", {"path": "ghost.py"})
    async with aided(tmp_path, wrong, wrong, ("read", {"path": "a.txt"}), made_up) as (session, model, second):
        session.write("a.txt", "alpha\n")
        heard = await session.say("go")
        assert "[self_reflection]" not in told(model.requests[1])
        assert "[self_reflection]\nread: 2 calls in this turn had arguments that do not fit" in last(model.requests[2])
        assert last(model.requests[3]).count("[self_reflection]") == 0
        status = await session.status()
        assert "Reputation: main:any 0.40 (2 of 3 calls did not fit their tool)" in status
        assert "made up" not in heard
        assert second.requests == []
        assert THINK not in json.dumps(model.requests)
        assert {"edit", "web_scrape", "memory_save"} <= set(offered(model.requests[0]))
        for word in ("TAFC", "Filter", "Dependencies", "Phases", "Utility", "Hallucination", "Argument repair"):
            assert word not in status


OFFLINE = """
import json
import sys

TOOLS = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in ("look", "change")]


def answer(method, params):
    if method == "initialize":
        about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "offline", "version": "1"}}
        return {"result": {"protocolVersion": params["protocolVersion"], **about}}
    if method == "tools/call":
        with open(sys.argv[1], "a") as log:
            print(params["name"], file=log)
        return {"error": {"code": -32000, "message": "no route to host"}}
    return {"result": {"tools": TOOLS} if method == "tools/list" else {}}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        said = answer(message["method"], message.get("params"))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
"""
"""An MCP server that reaches nothing: each call fails, and its tool's name goes to the file it is given."""
