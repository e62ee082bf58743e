"""Questions to the user: what is asked, and that only a clear yes lets a call run."""

import os
from functools import partial

import pytest

from tests.fakes import editor as editors
from tests.fakes.answers import Holding, allowing, answering, choosing, dismissing, never, refusing, rejecting, twice
from tests.fakes.editor import NOTHING
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)

ASK = "session/request_permission"
TOUCH = [uses(("bash", {"command": "touch touched"})), says("ok")]


async def test_the_question_has_five_options_and_names_the_call(tmp_path):
    async with editing(tmp_path, TOUCH) as editor:
        session = await editor.open()
        await editor.say(session, "go")
    (question,) = editor.requests("session/request_permission")
    assert question["sessionId"] == session
    assert [(option["optionId"], option["kind"]) for option in question["options"]] == [
        ("allow_once", "allow_once"),
        ("allow_always", "allow_always"),
        ("allow_session", "allow_always"),
        ("reject_once", "reject_once"),
        ("reject_always", "reject_always"),
    ]
    assert [option["name"] for option in question["options"]] == [
        "Allow once",
        "Always allow `touch …` in this project",
        "Allow `touch …` for this session",
        "Reject once",
        "Always reject `touch …` in this project",
    ]
    asked = question["toolCall"]
    assert asked["toolCallId"] == editor.call.id
    assert "touch touched" in asked["title"]
    assert (asked["kind"], asked["rawInput"]) == ("execute", {"command": "touch touched"})


async def test_the_question_comes_after_the_call_was_shown_and_before_it_ran(tmp_path):
    async with editing(tmp_path, TOUCH) as editor:
        asked = editor.overrides["session/request_permission"] = Holding()
        async with editor.prompting(await editor.open()):
            question = await asked.next()
            assert editor.call.status == "in_progress"
            assert not (editor.workspace / "touched").exists()
            await question.serve()
    assert (editor.workspace / "touched").exists()


async def test_allowing_once_is_asked_again(tmp_path):
    async with editing(tmp_path, TOUCH, decide=allowing) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        await editor.say(session, "again")
    assert [call.status for call in editor.calls] == ["completed", "completed"]
    assert len(editor.requests("session/request_permission")) == 2


async def test_allowing_always_is_not_asked_again_not_even_after_a_restart(tmp_path):
    for _start in range(2):
        async with editing(tmp_path, TOUCH, decide=choosing("allow_always")) as editor:
            session = await editor.open()
            await editor.say(session, "go")
            await editor.say(session, "again")
        assert [call.status for call in editor.calls] == ["completed", "completed"]
        assert len(editor.requests("session/request_permission")) == (1 if _start == 0 else 0)


async def test_allowing_one_program_always_does_not_allow_another_behind_it(tmp_path):
    script = {"go": TOUCH, "again": [uses(("bash", {"command": "touch touched; rm touched"})), says("ok")]}
    async with editing(tmp_path, script, decide=choosing("allow_always")) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        await editor.say(session, "again")
    assert len(editor.requests("session/request_permission")) == 2


@pytest.mark.parametrize("kind", ["reject_once", "reject_always"])
async def test_a_rejected_call_shows_as_failed_and_the_model_goes_on(tmp_path, kind):
    async with editing(tmp_path, TOUCH, decide=choosing(kind)) as editor:
        assert await editor.say(await editor.open(), "go") == "end_turn"
    assert editor.call.status == "failed"
    assert editor.text == "ok"
    assert not (editor.workspace / "touched").exists()
    assert not editor.requests("terminal/create")


async def test_rejecting_always_is_not_asked_again(tmp_path):
    async with editing(tmp_path, TOUCH, decide=choosing("reject_always")) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        await editor.say(session, "again")
    assert len(editor.requests("session/request_permission")) == 1
    assert [call.status for call in editor.calls] == ["failed", "failed"]


async def test_a_dismissed_question_is_no_permission(tmp_path):
    async with editing(tmp_path, TOUCH, decide=dismissing) as editor:
        assert await editor.say(await editor.open(), "go") in {"end_turn", "cancelled"}
    assert editor.call.status == "failed"
    assert not (editor.workspace / "touched").exists()


NO_ANSWERS = [
    {"outcome": {"outcome": "selected", "optionId": "yes_do_everything"}},
    {"outcome": {"outcome": "selected", "optionId": "allow_once "}},
    {"outcome": {"outcome": "selected", "optionId": ["allow_once"]}},
    {"outcome": {"outcome": "selected"}},
    {"outcome": {"outcome": "allowed", "optionId": "allow_once"}},
    {"outcome": "allow_once"},
    {"optionId": "allow_once"},
    {},
    None,
    True,
    "allow_once",
    ["allow_once"],
]


async def test_an_answer_that_is_no_option_is_no_permission(tmp_path):
    async with editing(tmp_path, TOUCH) as editor:
        session = await editor.open()
        for answer in NO_ANSWERS:
            editor.overrides["session/request_permission"] = answering(answer)
            assert await editor.say(session, "go") in {"end_turn", "cancelled"}, answer
            assert editor.calls[-1].status == "failed", answer
            assert not (editor.workspace / "touched").exists(), answer
        assert len(editor.calls) == len(NO_ANSWERS)
        assert await editor.say(session, "/help") == "end_turn"


async def test_a_client_that_cannot_ask_grants_nothing(tmp_path):
    async with editing(tmp_path, TOUCH) as editor:
        editor.overrides["session/request_permission"] = refusing(-32601, "no such method")
        assert await editor.say(await editor.open(), "go") == "end_turn"
    assert editor.call.status == "failed"
    assert not (editor.workspace / "touched").exists()


async def test_a_second_answer_to_a_question_changes_nothing(tmp_path):
    async with editing(tmp_path, TOUCH) as editor:
        editor.overrides["session/request_permission"] = twice
        assert await editor.say(await editor.open(), "go") == "end_turn"
    assert editor.call.status == "completed"


async def test_an_allowance_after_a_rejection_comes_too_late(tmp_path):
    async with editing(tmp_path, {"go": TOUCH, "more": [says("second")]}) as editor:
        asked = editor.overrides["session/request_permission"] = Holding()
        session = await editor.open()
        async with editor.prompting(session):
            question = await asked.next()
            await question.reply({"outcome": {"outcome": "selected", "optionId": "reject_once"}})
        await question.reply({"outcome": {"outcome": "selected", "optionId": "allow_once"}})
        assert await editor.say(session, "more") == "end_turn"
    assert editor.call.status == "failed"
    assert not (editor.workspace / "touched").exists()


async def test_answers_to_questions_nobody_asked_are_dropped(tmp_path):
    async with editing(tmp_path, TOUCH, decide=rejecting) as editor:
        session = await editor.open()
        for request_id in (0, 1, 2, 99, "0", "x", None):
            allowed = {"outcome": {"outcome": "selected", "optionId": "allow_always"}}
            await editor.agent.send({"jsonrpc": "2.0", "id": request_id, "result": allowed})
        assert await editor.say(session, "go") == "end_turn"
    assert editor.call.status == "failed"
    assert len(editor.requests("session/request_permission")) == 1


@pytest.mark.parametrize("ids_as", [str, float], ids=["text", "float"])
async def test_an_answer_with_an_id_of_another_type_grants_nothing(tmp_path, ids_as):
    async with editing(tmp_path, TOUCH) as editor:
        asked = editor.overrides["session/request_permission"] = Holding()
        session = await editor.open()
        async with editor.prompting(session) as turn:
            question = await asked.next()
            forged = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
            own_id = question.frame.message["id"]
            await editor.agent.send({"jsonrpc": "2.0", "id": ids_as(own_id) + ids_as(1), "result": forged})
            await editor.cancel(session)
            await question.reply({"outcome": {"outcome": "cancelled"}})
    assert turn.stop_reason == "cancelled"
    assert not (editor.workspace / "touched").exists()


async def test_the_level_of_auto_approval_decides_what_is_asked(tmp_path):
    levels = {"suggest": ["edit", "execute"], "auto-edit": ["execute"], "full-auto": []}
    script = [uses(("write", {"path": "a.txt", "content": "a\n"}), ("bash", {"command": "touch touched"})), says("ok")]
    async with editing(tmp_path, script) as editor:
        await editor.initialize()
        for level, asked in levels.items():
            (editor.workspace / "a.txt").unlink(missing_ok=True)
            session, before = await editor.new_session(str(editor.workspace)), len(editor.requests(ASK))
            params = {"sessionId": session, "configId": "auto_approve", "value": level}
            answer = await editor.ask("session/set_config_option", params)
            assert {o["id"]: o["currentValue"] for o in answer["configOptions"]}["mode"] == level
            assert await editor.say(session, "go") == "end_turn"
            assert [question["toolCall"]["kind"] for question in editor.requests(ASK)[before:]] == asked, level
            assert [call.status for call in editor.calls_of(session)] == ["completed", "completed"], level


async def test_full_auto_lifts_no_blocked_command(tmp_path):
    script = [uses(("bash", {"command": "sudo touch touched"})), says("ok")]
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        session = await editor.open()
        params = {"sessionId": session, "configId": "auto_approve", "value": "full-auto"}
        await editor.ask("session/set_config_option", params)
        await editor.say(session, "go")
    assert editor.call.status == "failed"
    assert not (editor.workspace / "touched").exists()


async def test_an_unanswered_question_keeps_the_turn_waiting_and_other_sessions_working(tmp_path):
    async with editing(tmp_path, TOUCH) as editor:
        editor.overrides["session/request_permission"] = never
        waiting = await editor.open()
        async with editor.prompting(waiting) as turn:
            await editor.requested("session/request_permission")
            other = await editor.new_session(str(editor.workspace))
            assert await editor.say(other, "/help") == "end_turn"
            assert turn.stop_reason == ""
            await editor.cancel(waiting)
        assert turn.stop_reason == "cancelled"


async def test_the_options_say_what_always_covers_and_permissions_lists_and_revokes_it(tmp_path):
    steps = [
        uses(("bash", {"command": "git tag v1"})),
        says("one"),
        uses(("bash", {"command": "git tag v2"})),
        says("two"),
    ]
    steps += [uses(("bash", {"command": "git tag v3"})), says("three")]
    async with editing(tmp_path, steps, capabilities=NOTHING, decide=choosing("reject_always")) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        (question,) = editor.requests("session/request_permission")
        names = {option["optionId"]: option["name"] for option in question["options"]}
        assert names["allow_always"] == "Always allow `git tag …` in this project"
        assert names["reject_always"] == "Always reject `git tag …` in this project"
        assert "“Always” covers git tag …, but nothing that destroys in this project." in str(
            question["toolCall"]["content"]
        )

        await editor.say(session, "again")
        assert len(editor.requests("session/request_permission")) == 1
        refusal = str(editor.recording.updates()[-4:])
        assert "they answered" in refusal
        assert "git tag …" in refusal

        await editor.say(session, "/permissions")
        assert f"1. always reject git tag …, in {editor.workspace}" in editor.told
        await editor.say(session, "/permissions revoke 1")
        assert "Revoked: always reject git tag …" in editor.told
        await editor.say(session, "once more")
        assert len(editor.requests("session/request_permission")) == 2
        await editor.say(session, "/permissions revoke 9")
        assert "Usage: `/permissions`" in editor.told


ALWAYS = [
    (("bash", {"command": "git tag v1"}), "`git tag …` in this project", "`git tag …` in this project"),
    (("bash", {"command": "python3 -c 'x = 1'"}), "exactly this in this project", "exactly this in this project"),
    (("edit", {"path": "a.txt", "old_string": "a", "new_string": "b"}), *["every edit in this project"] * 2),
    (("write", {"path": "b.txt", "content": "b"}), *["every write in this project"] * 2),
    (("copy_path", {"source": "a.txt", "destination": "c.txt"}), *["every use of copy_path in this project"] * 2),
    (("delete_path", {"path": "a.txt"}), "exactly this in this project", "exactly this in this project"),
    (("fetch", {"url": "https://x.example/a"}), *["pages of x.example in this project"] * 2),
    (("read", {"path": "../node_modules/left.js"}), *["reading {outside}/node_modules in this project"] * 2),
]


async def test_in_every_kind_of_question_the_names_of_the_options_say_what_always_covers_and_where(tmp_path):
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "left.js").write_text("x\n")
    script = [*(uses(call) for call, *_ in ALWAYS), says("ok")]
    async with editing(tmp_path, script, capabilities=NOTHING, decide=rejecting) as editor:
        (editor.workspace / "a.txt").write_text("a\n")
        await editor.say(await editor.open(), "go")
    shown = [{option["optionId"]: option["name"] for option in asked["options"]} for asked in editor.requests(ASK)]
    for names, (call, allowed, rejected) in zip(shown, ALWAYS, strict=True):
        assert names["allow_always"] == f"Always allow {allowed.format(outside=tmp_path)}", call
        assert names["reject_always"] == f"Always reject {rejected.format(outside=tmp_path)}", call
        assert names["allow_session"].endswith(" for this session")


async def test_exact_answers_are_listed_in_words(tmp_path):
    exact = [uses(("bash", {"command": "python3 -c 'x = 1'"})), says("ok")]
    async with editing(tmp_path, exact, capabilities=NOTHING, decide=choosing("reject_always")) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        await editor.say(session, "/permissions")
    assert "1. always reject one call of bash, word for word (kept as " in editor.told
    assert "sha256" not in editor.told


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            {"action": "accept", "content": {"reason": "use make instead"}},
            "denied by the user, who says: use make instead",
        ),
        ({"action": "accept", "content": {"reason": "  "}}, "denied by the user"),
        ({"action": "accept", "content": {"reason": 5}}, "denied by the user"),
        ({"action": "decline"}, "denied by the user"),
    ],
)
async def test_a_rejection_may_carry_a_reason_which_the_model_reads(tmp_path, answer, told):
    offered = {**NOTHING, "elicitation": {"form": {}}}
    async with editing(tmp_path, TOUCH, capabilities=offered, decide=rejecting) as editor:
        editor.overrides["elicitation/create"] = answering(answer)
        await editor.say(await editor.open(), "go")
    (form,) = editor.requests("elicitation/create")
    assert form["toolCallId"] == editor.call.id
    assert form["requestedSchema"]["properties"]["reason"]["type"] == "string"
    assert told in str(editor.recording.updates())
    assert ("who says" in str(editor.recording.updates())) == ("who says" in told)
    assert not (editor.workspace / "touched").exists()


async def test_only_a_rejection_of_this_call_asks_for_a_reason(tmp_path):
    offered = {**NOTHING, "elicitation": {"form": {}}}
    for decide in (allowing, choosing("reject_always"), dismissing):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        async with editing(folder, TOUCH, capabilities=offered, decide=decide) as editor:
            await editor.say(await editor.open(), "go")
        assert editor.requests("elicitation/create") == []


async def test_a_dependency_outside_is_read_after_a_question_that_says_what_it_is(tmp_path):
    package = tmp_path / "node_modules" / "left"
    package.mkdir(parents=True)
    (package / "index.js").write_text("exports.pad = 1\n")
    (package / ".env").write_text("SECRET_KEY=fake\n")
    calls = [
        [uses(("read", {"path": "../node_modules/left/index.js"}))],
        [uses(("grep", {"pattern": "pad", "path": "../node_modules"}))],
        [uses(("list_directory", {"path": "../node_modules"}))],
        [uses(("find_path", {"pattern": "**/*.js", "path": "../node_modules"}))],
        [uses(("outline", {"path": "../node_modules/left/index.js"}))],
        [uses(("bash", {"command": "cat ../node_modules/left/index.js"}))],
        [uses(("read", {"path": "../node_modules/left/.env"}))],
        [uses(("write", {"path": "../node_modules/left/index.js", "content": "x"}))],
    ]
    script = [*(each for (each,) in calls), says("ok")]
    async with editing(tmp_path, script, decide=choosing("allow_session"), capabilities=NOTHING) as editor:
        await editor.say(await editor.open(), "go")
    (question,) = editor.requests(ASK)
    folder = tmp_path / "node_modules"
    told = str(question["toolCall"]["content"])
    assert f"reads node_modules of {tmp_path}, a dependency of this project ({folder})" in told
    assert f"Allow reading {folder} for this session" in [each["name"] for each in question["options"]]
    assert [call.status for call in editor.calls] == [*["completed"] * 6, "failed", "failed"]
    assert (package / "index.js").read_text() == "exports.pad = 1\n"


async def test_sources_of_a_toolchain_and_packages_of_an_environment_outside_are_read_after_a_question(tmp_path):
    places = {"go/src/fmt/print.go": "the Go sources", ".venv/lib/python3.12/site-packages/left.py": "site-packages of"}
    for place in places:
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text("pad\n")
    (tmp_path / ".venv/pyvenv.cfg").write_text("version = 3.12\n")
    script = [*(uses(("read", {"path": f"../{place}"})) for place in places), says("ok")]
    options = {"environment": {"GOROOT": f"{tmp_path}/go", "VIRTUAL_ENV": f"{tmp_path}/.venv"}, "capabilities": NOTHING}
    async with editing(tmp_path, script, decide=choosing("allow_once"), **options) as editor:
        await editor.say(await editor.open(), "go")
    asked = [str(question["toolCall"]["content"]) for question in editor.requests(ASK)]
    assert [(call.status, "pad" in call.text) for call in editor.calls] == [("completed", True)] * 2, [
        call.text for call in editor.calls
    ]
    assert [words in question for words, question in zip(places.values(), asked, strict=True)] == [True] * 2, asked


async def test_an_answer_for_the_session_is_not_stored_and_one_of_a_project_can_hold_everywhere(tmp_path):
    tag = [uses(("bash", {"command": "git tag v1"})), says("ok")]
    async with editing(tmp_path, TOUCH, capabilities=NOTHING, decide=choosing("allow_session")) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        await editor.say(session, "again")
        assert len(editor.requests(ASK)) == 1
        await editor.say(session, "/permissions")
        assert "1. always allow touch …, in this session" in editor.told
        await editor.say(session, "/permissions everywhere 1")
        assert "cannot hold everywhere" in editor.told
        other = await editor.open()
        await editor.say(other, "/permissions")
        assert "have not answered" in editor.told
        await editor.say(session, "/permissions revoke 1")
        await editor.say(session, "and again")
        assert len(editor.requests(ASK)) == 2
    always = choosing("allow_always")
    async with editing(tmp_path, tag, capabilities=NOTHING, decide=always, serves="") as editor:  # others would find it
        session = await editor.open()
        await editor.say(session, "go")
        await editor.say(session, "/permissions everywhere 1")
        assert "Changed: always allow git tag …, everywhere" in editor.told
        await editor.say(session, "/permissions")
        assert "1. always allow git tag …, everywhere" in editor.told
        assert "2. " not in editor.told.rpartition("Your answers")[2]


async def test_a_refusal_names_its_rule_and_a_question_about_a_loop_the_commands_in_it(tmp_path):
    loop = uses(("bash", {"command": "for f in a b; do touch $f; rm -f $f.o; done"}))
    steps = [uses(("bash", {"command": "git push origin main"})), loop, says("ok")]
    rule = '[[tools.permissions.bash]]\npattern = "git push*"\naction = "deny"\n'
    async with editing(tmp_path, steps, capabilities=NOTHING, decide=rejecting, config=rule) as editor:
        await editor.say(await editor.open(), "go")
    assert "config.toml [[tools.permissions.bash]] rule 1)" in str(editor.calls[0])
    (question,) = editor.requests(ASK)
    for inside in ("may run: touch a", "may run: touch b", "may run: rm -f a.o"):
        assert inside in str(question["toolCall"]["content"]), question


async def test_substitutions_loopback_urls_and_build_folders_are_judged_by_what_they_do(tmp_path):
    """None of it reaches anybody: nothing listens on port 9 of the loopback, and the build tools are scripts."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("cmake", "bazel"):
        (programs / name).write_text('#!/bin/sh\necho "$0 $@"\n')
        (programs / name).chmod(0o755)
    ran = {
        "echo $(echo inside)": "inside",
        "curl -s http://127.0.0.1:9/; echo tried": "tried",
        "wget -qO- --max-redirect=0 http://localhost:9/; echo tried": "tried",
        "mkdir -p build && cd build && cmake ..": "cmake ..",
        "bazel test //...": "bazel test //...",
    }
    denied = {
        "echo $(sudo ls)": "'sudo'",
        "curl -s https://x.example/": "'curl'",
        "cd build && ls ../..": "leads out of the workspace",
    }
    calls = (("bash", {"command": command}) for command in ran | denied)
    options = {
        "config": "[acp]\nauto_approve = 'full-auto'\n",
        "environment": {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
    }
    async with editing(tmp_path, [*map(uses, calls), says("ok")], capabilities=NOTHING, **options) as editor:
        await editor.say(await editor.open(), "go")
    fates = [*dict.fromkeys(ran, "completed").items(), *dict.fromkeys(denied, "failed").items()]
    for call, (command, fate) in zip(editor.calls, fates, strict=True):
        assert call.status == fate, (command, call.text)
        assert (ran | denied)[command] in call.text, command
