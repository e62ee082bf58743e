"""A filters file of the user's, good and bad: what is bad is told, what is good acts."""

import os
from pathlib import Path

import pytest

from tests.e2e.aided import aided, last
from tests.e2e.model_servers import Thought
from tests.e2e.thoughts import Mind, go, inside, thinking
from tests.fakes.editor import ScriptedEditor

pytestmark = pytest.mark.anyio

TALK = "seq -f 'noise number %g of the day' 400; echo kept"
FILTERED = "[400 lines left out]\nkept"


def rule(
    name: str, match: str = 'prefix = "seq"', strategy: str = 'type = "strip_noise", patterns = ["^noise"]'
) -> str:
    return f'[[rules]]\nname = "{name}"\nmatch = {{ {match} }}\nstrategy = {{ {strategy} }}\n'


GOOD = rule("good")
HALF_VALID = (
    rule("two-keys", match='prefix = "a", exact = "b"')
    + rule("odd", strategy='type = "magic"')
    + rule("slow", strategy=f'type = "strip_noise", patterns = ["{"(a{1000}){1000}" * 2}"]')
    + rule("long", match=f'regex = "{"x" * 600}"')
    + rule("backtracking", strategy='type = "strip_noise", patterns = ["(a+)+$", "(?=b)"]')
    + GOOD
)
COMPLAINTS = (
    "rule 1 (two-keys) is skipped: match",
    'rule 2 (odd) is skipped: strategy.type = "magic": expected one of ',
    "rule 3 (slow) is skipped: strategy.patterns[0] = ",
    "rule 4 (long) is skipped: match.regex = ",
    'rule 5 (backtracking) is skipped: strategy.patterns[1] = "(?=b)": expected ',
)


def write(path: Path, text: str | bytes) -> None:
    """Save as editors do: the new file takes the name of the old one."""
    new = path.with_suffix(".new")
    new.write_bytes(text.encode() if isinstance(text, str) else text)
    os.replace(new, path)


def filters(folder: Path) -> Path:
    (folder / "home").mkdir(exist_ok=True)
    return folder / "home" / "filters.toml"


def warnings(editor: ScriptedEditor) -> list[str]:
    return [line for line in editor.told.splitlines() if "filters.toml" in line]


async def test_of_a_half_valid_file_the_good_rule_acts_and_each_bad_one_is_named_once_with_its_cause(tmp_path):
    mind = Mind()
    write(filters(tmp_path), HALF_VALID)
    async with thinking(tmp_path, mind.run(TALK, TALK)) as (editor, _):
        await go(editor)
    for said in mind.said:
        assert inside(said) == FILTERED
        assert "read_overflow" in said, "what was left out is kept"
    assert len(warnings(editor)) == len(COMPLAINTS)
    for complaint, line in zip(COMPLAINTS, warnings(editor), strict=True):
        assert f"{filters(tmp_path)}: {complaint}" in line


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"# " + b"x" * 1024 * 1024, "MiB"),
        (b"[[rules]\nname = 1", "expected TOML"),
        (b"name = '\xff\xfe'", "UTF-8"),
        (None, ""),
    ],
    ids=["too large", "no TOML", "no UTF-8", "a pipe"],
)
async def test_a_file_nobody_can_use_is_told_once_and_the_built_in_rules_act(tmp_path, content, cause):
    mind, path = Mind(), filters(tmp_path)
    if content is None:
        os.mkfifo(path)  # opening it would wait for a writer
    else:
        path.write_bytes(content)
    log = "printf '%s\\n' x '   Compiling a v1' '    Finished y'; seq -f '   Compiling crate%g v1.0' 400"
    async with thinking(tmp_path, mind.run("cargo build", "cargo build")) as (editor, _):
        fake_cargo(editor, log)
        await go(editor)
    assert len(warnings(editor)) == 1
    assert str(path) in warnings(editor)[0]
    assert cause in warnings(editor)[0]
    assert "the built-in rules stay in use" in warnings(editor)[0]
    for said in mind.said:
        assert said.count("Compiling") < 5


def fake_cargo(editor: ScriptedEditor, code: str) -> None:
    """A `cargo` that is found first; what it prints is what is filtered."""
    tool = editor.workspace / "cargo"
    tool.write_text(f"#!/bin/sh\n{code}\n")
    tool.chmod(0o755)


async def test_a_file_that_is_edited_is_taken_up_at_the_next_command(tmp_path):
    mind, path = Mind(), filters(tmp_path)

    def edit() -> Thought:
        for text in (GOOD, "[[rules]\n", GOOD.replace("^noise", "[1-9] of"), "", rule("off") + "enabled = false\n"):
            write(path, text)
            yield from mind.run(f"{TALK}; # {len(mind.said)}")
        path.unlink()
        yield from mind.run(TALK)

    async with thinking(tmp_path, edit()) as (editor, _):
        await go(editor)
    good, broken, other, empty, off, gone = [inside(said) for said in mind.said]
    assert good == FILTERED
    assert broken == FILTERED, "what held before holds on"
    assert other.count("noise number") == 40
    assert empty == off == gone
    assert empty.count("noise") == 400


def noise(line: str, end: str) -> str:
    """Return 300 numbered lines and an end."""
    return "".join(line.format(number) + "\n" for number in range(300)) + end


LOGS = {
    "npm install": (
        noise("npm warn deprecated package-{0}@1.0.0: use another", "added 812 packages in 9s"),
        "added 812 packages",
    ),
    "npm test": (
        noise("  ✓ adds {0} (1 ms)", "  ✕ takes away\n\nTests:  1 failed, 300 passed"),
        "1 failed, 300 passed",
    ),
    "terraform plan": (
        noise("aws_x.y[{0}]: Refreshing state... [id=i-{0}]", "Plan: 1 to add, 2 to destroy."),
        "Plan: 1 to add",
    ),
    "cargo build": (
        noise("   Compiling crate{0} v1.0.{0}", "error[E0308]: mismatched types"),
        "error[E0308]: mismatched types",
    ),
    "make all": (
        noise("cc -c -o part{0}.o part{0}.c", "part7.c:3:1: error: expected ';'"),
        "part7.c:3:1: error: expected ';'",
    ),
    "pytest -q": (
        noise("tests/test_{0}.py .                          [ 50%]", "300 passed in 0.31s"),
        "300 passed in 0.31s",
    ),
}


async def test_the_logs_of_builds_and_tests_are_short_by_default_and_keep_their_result_in_its_own_words(tmp_path):
    """Each program is a script that prints a log."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for command, (log, _) in LOGS.items():
        name = command.split()[0]
        (programs / f"{command}.log").write_text(log)
        (programs / name).write_text(f'#!/bin/sh\nexec cat "{programs}/{name} $1.log"\n')
        (programs / name).chmod(0o755)
    steps = [("bash", {"command": command}) for command in LOGS]
    options = {"environment": {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}}
    async with aided(tmp_path, *steps, config="[acp]\nauto_approve = 'full-auto'\n", **options) as (session, model, _):
        await session.say("go")
    for request, (command, (log, kept)) in zip(model.requests[1:], LOGS.items(), strict=True):
        assert kept in last(request), command
        assert len(last(request)) < len(log) / 3, command
        assert set(last(request).split()) & {"passed", "failed"} <= set(log.split()), command
