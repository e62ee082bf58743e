"""`acp-agent run` as a conversation: continued sessions, mentions, lines of JSON, exit codes, and a user who types."""

import json
import os
import re
import signal
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import anyio
import jsonschema
import pytest

from acp_agent.cli.turn_end import run_schema
from tests.e2e.model_servers import listening_model
from tests.e2e.running import LIMIT, at_terminal, server_of
from tests.fakes.drawn_terminal import DrawnTerminal
from tests.fakes.editor import AGENT, editing
from tests.fakes.held import Fifo, processes_ended
from tests.fakes.model_script import says, uses, write_script

pytestmark = pytest.mark.anyio

TOUCH = uses(("bash", {"command": "touch touched"}))


@cache
def schema_of_lines() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(run_schema())


def lines_of(stdout: str) -> list[dict]:
    """The lines of --json, each of which the schema describes."""
    lines = [json.loads(line) for line in stdout.splitlines()]
    for line in lines:
        schema_of_lines().validate(line)
    return lines


# ------------------------------------------------------------------------------------------- which session


def test_continue_takes_up_the_last_session_of_this_folder(folder):
    folder.model([says("fine")])
    assert folder.run("first").returncode == 0
    elsewhere = folder.work / "elsewhere"
    elsewhere.mkdir()
    folder.run("other", cwd=elsewhere)
    done = folder.run("--continue", "second")
    assert done.returncode == 0, done.stderr
    assert "continues session" in done.stdout
    prompts = {each["cwd"]: each["prompts"] for each in folder.sessions()}
    assert prompts == {str(folder.work): 2, str(elsewhere): 1}


def test_continue_without_a_session_of_this_folder_says_so(folder):
    folder.model([says("fine")])
    done = folder.run("--continue", "second")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "acp-agent: this folder has no session yet; start one without --continue\n"


def test_resume_takes_the_beginning_of_an_id_and_works_in_that_sessions_folder(folder):
    folder.model({"^write": [uses(("write", {"path": "new.txt", "content": "x"})), says("ok")], "": [says("fine")]})
    folder.run("first")
    [session] = folder.sessions()
    elsewhere = folder.work / "elsewhere"
    elsewhere.mkdir()
    done = folder.run("--yes", "--resume", session["id"][:8], "write", cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    assert (folder.work / "new.txt").exists()
    assert [each["prompts"] for each in folder.sessions()] == [2]


@pytest.mark.parametrize(("identity", "words"), [("abc", "at least its first 4"), ("ffffffff", "there is no session")])
def test_a_session_that_is_not_there_is_one_clear_line(folder, identity, words):
    folder.model([says("fine")])
    done = folder.run("--resume", identity, "go")
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_continue_and_resume_exclude_each_other(folder):
    done = folder.run("--continue", "--resume", "abcd", "go")
    assert done.returncode == 2
    assert "not allowed with" in done.stderr


async def test_yes_leaves_the_level_that_the_user_chose_in_the_session(folder):
    async with editing(folder.work.parent, [TOUCH, says("fine")]) as editor:
        session = await editor.open()
        chosen = {"sessionId": session, "configId": "auto_approve", "value": "auto-edit"}
        await editor.ask("session/set_config_option", chosen)
        await editor.say(session, "/help")
        await editor.ask("session/close", {"sessionId": session})
    assert folder.run("--yes", "--continue", "go").returncode == 0
    assert (folder.work / "touched").exists()
    kept = json.loads(folder.call("sessions", "export", session, "--json", "-"))["options"]
    assert kept["auto_approve"] == "auto-edit"
    assert "auto_approve" in kept["chosen"]


async def test_a_session_that_an_editor_has_open_is_not_continued(folder):
    async with editing(folder.work.parent, [says("fine")]) as editor:
        session = await editor.open()
        await editor.say(session, "first")
        done = await anyio.to_thread.run_sync(partial(folder.run, "--continue", "go", short_waits=True))
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"acp-agent: .*open.*another.*\n", done.stderr)


async def test_mode_and_model_of_the_command_line_hold_in_a_continued_session(folder):
    offered = '[acp]\navailable_models = ["scripted:hello"]\n'
    async with editing(folder.work.parent, [says("no")], config=offered) as editor:
        session = await editor.open()
        await editor.ask("session/set_mode", {"sessionId": session, "modeId": "ask"})
        await editor.ask(
            "session/set_config_option", {"sessionId": session, "configId": "model", "value": "scripted:hello"}
        )
        await editor.say(session, "/help")
        await editor.ask("session/close", {"sessionId": session})
    model = write_script(folder.home.root, [TOUCH, says("fine")])
    done = folder.run("--yes", "--mode", "code", "--model", model, "--continue", "go")
    assert (folder.work / "touched").exists(), done.stdout
    kept = json.loads(folder.call("sessions", "export", session, "--json", "-"))["options"]
    assert (kept["mode"], kept["model"]) == ("ask", "scripted:hello")


# ------------------------------------------------------------------------------------------- prompts


@pytest.mark.parametrize("mention", ["@a.txt", "(@a.txt).", '@"a.txt"', "@./a.txt:1", "@{here}/a.txt,"])
def test_a_mentioned_file_is_read_for_the_model(folder, mention):
    (folder.work / "a.txt").write_text("the word is xyzzy\n")
    folder.model({"xyzzy": [says("it knows")], "": [says("it does not")]})
    done = folder.run("see " + mention.replace("{here}", str(folder.work)) + " now")
    assert "it knows" in done.stdout
    assert done.returncode == 0


def test_a_mentioned_folder_is_a_link_to_a_folder(folder):
    (folder.work / "src").mkdir()
    folder.model({'resource_link [^>]*/src" name="src" type="folder"': [says("it knows")], "": [says("no")]})
    assert "it knows" in folder.run("look at @src/").stdout


def test_a_mention_that_names_nothing_is_said_and_sent_as_text(folder):
    folder.model({"@missing.py": [says("as text")], "": [says("no")]})
    done = folder.run("see @missing.py, and write to me@example.com; @diagnostics")
    assert "as text" in done.stdout
    first, _ = done.stderr.splitlines()
    assert first == "acp-agent: @missing.py, names no file or folder here; it is sent as text"


def test_the_prompt_is_read_from_a_pipe_in_which_nothing_is_mentioned(folder):
    (folder.work / "a.txt").write_text("the word is xyzzy\n")
    folder.model({"xyzzy": [says("it was taken in")], "see @a.txt": [says("plain")]})
    with folder.started(stdin=subprocess.PIPE) as process:
        stdout, stderr = process.communicate(b"see @a.txt\n", timeout=LIMIT)
    assert b"plain" in stdout, stderr
    assert process.returncode == 0


def test_without_a_prompt_anywhere_the_usage_is_wrong(folder):
    done = folder.run("--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected a PROMPT" in done.stderr


# ------------------------------------------------------------------------------------------- outcomes


def test_json_writes_updates_as_they_come_and_the_outcome_last(folder):
    folder.model([uses(("read", {"path": "a.txt"}), text="Let me see."), says("It says ", "one.")])
    done = folder.run("--json", "what is in a.txt?")
    first, *updates, last = lines_of(done.stdout)
    assert done.stderr == ""
    assert (first["type"], first["cwd"], first["resumed"]) == ("session", str(folder.work), False)
    kinds = [line["update"]["sessionUpdate"] for line in updates]
    assert kinds.index("tool_call") < kinds.index("tool_call_update")
    assert {**last, "durationMs": 0, "usage": None} == {
        "type": "result", "outcome": "done", "exitCode": 0, "stopReason": "end_turn", "error": None,
        "text": "It says one.", "sessionId": first["sessionId"], "durationMs": 0, "usage": None, "cost": None,
    }  # fmt: skip
    assert set(last["usage"]) == {"inputTokens", "outputTokens", "cachedReadTokens", "cachedWriteTokens"}


def test_a_warning_is_no_word_of_the_agent(folder):
    folder.model([says("fine")])
    config = folder.home.config
    config.write_text(config.read_text() + "nonsense = 1\n")
    *updates, last = lines_of(folder.run("--json", "hello").stdout)
    assert "nonsense" in json.dumps(updates)
    assert last["text"] == "fine"
    assert re.search(r"\n  ! configuration: [^>]*nonsense", folder.run("hello").stdout)


def test_json_says_that_a_question_was_refused_and_exits_with_3(folder):
    folder.model([TOUCH, says("so be it")])
    done = folder.run("--json", "do it")
    *lines, last = lines_of(done.stdout)
    assert [line["toolCall"]["title"] for line in lines if line["type"] == "question"] == ["touch touched"]
    assert (last["outcome"], last["exitCode"], done.returncode) == ("refused", 3, 3)
    assert not (folder.work / "touched").exists()


def test_a_failure_is_the_last_line_of_json_too(folder):
    done = folder.run("--json", "--continue", "hello")
    [last] = lines_of(done.stdout)
    assert (last["outcome"], last["sessionId"], done.returncode) == ("error", "", 1)
    assert "this folder has no session" in last["error"]
    done = folder.run("--json", "hello")  # no model
    last = lines_of(done.stdout)[-1]
    assert (last["outcome"], last["exitCode"], done.returncode) == ("error", 1, 1)
    assert "ACP_AGENT_MODEL" in last["error"]


def test_a_turn_that_is_cut_short_exits_with_3(folder):
    folder.model([{"text": ["so far"], "stop": "max_tokens"}])
    assert folder.run("go").returncode == 3
    folder.model([{"text": ["I will not"], "stop": "refusal"}])
    assert folder.run("go").returncode == 3


def test_an_error_of_the_model_exits_with_1(folder):
    folder.model([{"error": {"kind": "auth", "message": "the key is wrong"}}])
    done = folder.run("--json", "go")
    assert done.returncode == 1
    assert "the key is wrong" in lines_of(done.stdout)[-1]["error"]


def test_the_last_line_has_tokens_and_time_of_this_turn(folder):
    folder.model([{"text": ["one"], "usage": {"input": 1200, "output": 34}}])
    folder.run("first")
    done = folder.run("--continue", "second")
    assert re.fullmatch(r"1,200 tokens in, 34 out, \d+\.\d s, session [0-9a-f]{8}\n", done.stderr)
    price = '[[llm.models]]\nid = "scripted:"\nprice = { input = 100.0, output = 1000.0 }\n'
    folder.home.config.write_text(folder.home.config.read_text() + price)
    assert "1,200 tokens in, 34 out, $0.154, " in folder.run("third").stderr


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_reader_that_goes_away_ends_the_run_without_a_word(folder, flags):
    folder.model([says("fine")])
    reading, writing = os.pipe()
    os.close(reading)
    with folder.started(*flags, "hello", stdout=writing) as process:
        os.close(writing)
        _, stderr = process.communicate(timeout=LIMIT)
    assert (process.returncode, stderr) == (141, b"")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
async def test_a_single_prompt_asks_for_no_title(folder, held):
    folder.model([uses(("bash", {"command": "sh hold.sh"})), says("never")])
    with folder.started("--yes", "wait", cold=True) as process:
        pids = [int(word) for word in (await held.line()).split()]
        words = Path(f"/proc/{server_of(process)}/cmdline").read_text().split("\0")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT)
        await processes_ended(pids)
    assert words[words.index("--titles") + 1] == "prompt"


async def test_an_agent_without_titles_of_the_model_makes_no_request_for_them(tmp_path):
    titles = {"ACP_AGENT_MEMORY__SESSIONS__TITLES": "model"}
    async with listening_model() as model:
        options = {**model.options, "environment": {**model.options["environment"], **titles}}
        async with editing(tmp_path, None, cold=True, agent=[*AGENT, "acp", "--titles", "prompt"], **options) as editor:
            session = await editor.open()
            await editor.say(session, "name the parts")
            await editor.say(session, "and now the rest")
        assert len(model.requests) == 2


# ------------------------------------------------------------------------------------------- a user who types


async def test_prompts_are_answered_one_after_another_until_ctrl_d(folder):
    folder.model({"first": [says("answer one")], "second": [says("answer two")]})
    with at_terminal(folder) as (terminal, process):
        await terminal.until("> ")
        terminal.type("the first\n")
        await terminal.until("answer one")
        await terminal.until("> ")
        terminal.type("the second\n")
        await terminal.until("answer two")
        await terminal.until("> ")
        terminal.type("\x1b[A\n")  # up: the last line again
        await terminal.until("answer two")
        await terminal.until("> ")
        terminal.type("\x04")
        assert process.wait(LIMIT) == 0
    assert [each["prompts"] for each in folder.sessions()] == [3]


async def test_ctrl_c_cancels_the_turn_and_the_conversation_goes_on(folder, held):
    folder.model({"wait": [uses(("bash", {"command": "sh hold.sh"})), says("never")], "": [says("still here")]})
    with at_terminal(folder, "--yes") as (terminal, process):
        await terminal.until("> ")
        terminal.type("wait\n")
        pids = [int(word) for word in (await held.line()).split()]
        terminal.type("\x03")
        await processes_ended(pids)
        await terminal.until("tokens")  # the last line of the turn; "> " alone may be of what readline draws again
        await terminal.until("> ")
        terminal.type("and now?\n")
        await terminal.until("still here")
        await terminal.until("> ")
        terminal.type("\x03")
        await terminal.until("Ctrl-C again")
        await terminal.until("> ")
        terminal.type("\x03")
        assert process.wait(LIMIT) == 130


async def test_a_second_ctrl_c_ends_the_process_at_once(folder, held):
    folder.model([uses(("bash", {"command": "trap '' TERM INT; sh hold.sh"})), says("never")])
    with at_terminal(folder, "--yes", "wait") as (terminal, process):
        pids = [int(word) for word in (await held.line()).split()]
        terminal.type("\x03")
        terminal.type("\x03")
        assert process.wait(LIMIT) == 130
    await processes_ended(pids)


async def test_keys_typed_ahead_answer_no_question_of_a_conversation(folder):
    folder.model([TOUCH, says("the end")])
    with at_terminal(folder, short_waits=False) as (terminal, process):
        await terminal.until("> ")
        terminal.type("do it\ny\ny\n")
        await terminal.until("[y] ")
        terminal.type("n\n")
        await terminal.until("the end")
        await terminal.until("> ")
        terminal.type("/exit\n")
        assert process.wait(LIMIT) == 0
    assert not (folder.work / "touched").exists()


async def test_the_output_of_a_command_is_shown_while_it_runs(folder):
    gate = Fifo(folder.work / "gate")
    folder.model([uses(("bash", {"command": "echo the begin''ning; head -n 1 gate; false"})), says("the end")])
    with at_terminal(folder, "--yes", "go") as (terminal, process):
        await terminal.until("│ the beginning")
        gate.write_line("the middle")
        shown = await terminal.until("the end")
        assert process.wait(LIMIT) == 0
    gate.close()
    assert "│ the middle" in shown
    assert "exit 1, " in shown


async def test_the_last_line_of_a_terminal_says_what_runs_in_its_width_until_the_end(folder):
    gate = Fifo(folder.work / "gate")
    command = "echo the begin''ning; head -n 1 gate; echo " + "a_long_word_" * 3
    folder.model([uses(("bash", {"command": command})), says("the end")])
    with at_terminal(folder, "--yes", "go", term="xterm") as (terminal, process):
        terminal.resize(40)
        shown = await terminal.until("│ the beginning")
        for _ in range(3):
            shown += await terminal.until("bash  echo the begin''")  # drawn anew although nothing came
        terminal.resize(30)
        gate.write_line("the middle")
        assert process.wait(LIMIT) == 0
        shown += terminal.rest()
    gate.close()
    drawn = DrawnTerminal(40)
    drawn.feed(shown)
    lines = [line for line in drawn.lines if "│" in line or "bash" in line]
    assert [line.partition("in the sandbox")[0] for line in lines] == [
        "  ● bash  echo the begin''ning; head -n…",
        "    │ the beginning",
        "    │ the middle",
        "    │ a_long_word_a_long_word…",
        lines[-1],
    ]
    assert re.fullmatch(r"  ✔ bash  \S.*…  \S.* m?s", lines[-1])
    assert len(lines[-1]) == 30


async def test_ctrl_c_at_a_question_cancels_the_turn_alone(folder):
    folder.model([TOUCH, says("the end")])
    with at_terminal(folder) as (terminal, process):
        await terminal.until("> ")
        terminal.type("do it\n")
        await terminal.until("[y] ")
        terminal.type("\x03")
        await terminal.until("> ")
        terminal.type("\x04")
        assert process.wait(LIMIT) == 0
    assert not (folder.work / "touched").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
async def test_an_agent_that_died_while_the_user_typed_is_one_clear_line(folder):
    folder.model([says("fine")])
    with at_terminal(folder) as (terminal, process):
        await terminal.until("> ")
        os.kill(server_of(process), signal.SIGKILL)
        terminal.type("hello\n")
        await terminal.until("acp-agent: ")
        assert process.wait(LIMIT) == 1
        assert "Traceback" not in terminal.rest()


async def test_sessions_resume_continues_a_session_at_the_terminal(folder):
    folder.model([says("fine")])
    folder.run("first")
    [session] = folder.sessions()
    with at_terminal(folder, session["id"][:8], command="sessions resume") as (terminal, process):
        await terminal.until("continues session")
        await terminal.until("> ")
        terminal.type("second\n")
        await terminal.until("fine")
        await terminal.until("> ")
        terminal.type("\x04")
        assert process.wait(LIMIT) == 0
    assert [each["prompts"] for each in folder.sessions()] == [2]


def test_the_committed_schema_is_what_the_lines_say():
    committed = Path(__file__).parents[2] / "schemas/run.schema.json"
    made = json.dumps(run_schema(), indent=2, ensure_ascii=False) + "\n"
    assert committed.read_text() == made, "run `acp-agent schema run > schemas/run.schema.json`"
    jsonschema.Draft202012Validator.check_schema(run_schema())
