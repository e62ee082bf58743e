"""What is wrong with the files that users bring, on the wire: told in the turn and in /status, and the rest works."""

from pathlib import Path

import anyio
import pytest

from tests.e2e.aided import aided, offered, system
from tests.e2e.test_skills import SKILL, put, users
from tests.fakes.answers import choosing
from tests.fakes.held import PATIENCE

pytestmark = pytest.mark.anyio

AGENT = "---\nname: {0}\ndescription: does it\n{1}---\nDo it.\n"
TOOL = 'description = "Do it"\ncommand = ["true"]\n'

BAD = {
    ("agents/keyed.md", AGENT.format("keyed", "max_turn: 3\n")): ", line 4: max_turn: unknown key; did you mean max_t",
    ("agents/reader.md", AGENT.format("Explore", "")): ": name: 'Explore' is built in; this one is not used",
    ("agents/back.md", AGENT.format("back", "")): ": name: 'back' is the word that ends a handoff",
    ("agents/typed.md", AGENT.format("typed", "tools: {alow: [read]}\n")): 'until then, got {"alow": ["read"]}',
    ("agents/skilled.md", AGENT.format("skilled", "skills: [nowhere]\n")): ": skills: there is no skill 'nowhere'",
    ("skills/help/SKILL.md", SKILL.format("help", "Help")): ": name: /help is a command of the agent itself",
    ("skills/empty/SKILL.md", "---\nname: empty\n---\n"): ": expected a text for the model behind the front matter",
    ("commands/keyed.md", "---\nfoo: 1\n---\nDo it."): ", line 2: foo: unknown key (known keys: descr",
    ("commands/status.md", "Do it."): ": name: 'status' is a command of the agent itself; this one is not used",
    ("tools/keyed.toml", f"{TOOL}timout = 1\n"): ": timout: unknown key; did you mean timeout?",
    ("tools/bash.toml", TOOL): ": name: 'bash' is a tool of the agent itself; this one is not used",
    ("tools/mcp_x.toml", TOOL): "not mcp_ in front, got 'mcp_x'",
    ("tools/formed.toml", f"{TOOL}[parameters]\ntype = 'list'\n"): ': parameters.type: expected "object"',
    ("hooks.toml", "[pre_tool_use]\ncommand = 'x'\n"): ": pre_tool_use: expected a list of tables, [[pre_",
}  # fmt: skip


async def test_each_is_told_with_file_key_and_reason_in_the_turn_and_in_status_and_the_rest_works(tmp_path: Path):
    for name, text in BAD:
        users(tmp_path, name, text)
    (tmp_path / "home" / "agents" / "circle.md").symlink_to("circle.md")
    users(tmp_path, "agents/good.md", AGENT.format("good", "color: red\n"))
    users(tmp_path, "tools/good.toml", TOOL)
    hooks = '{"hooks": {"Stop": [3, {"hooks": [{"type": "command", "command": "touch stopped"}]}], "Other": []}}'
    put(tmp_path / "work", ".claude/settings.json", hooks)
    async with aided(tmp_path, "done", "done", decide=choosing("allow_once")) as (session, model, _):
        told, status = await session.say("go"), await session.status()
        expected = [f"~/{name}{problem}" if problem[0] in ":," else problem for (name, _), problem in BAD.items()]
        expected += ["~/agents/circle.md: is a link that leads to no file", "Stop 1: expected a table, got 3"]
        assert [problem for problem in expected if problem not in told] == []
        assert [problem for problem in expected if problem not in status] == []
        assert [key in told for key in ("color", "Other")] == [False, False], "keys of other agents are no news"
        assert "~/agents/good.md, line 4: color: a key of other agents" in status
        assert "good: does it" in str(model.requests[0]["tools"])
        assert "good" in offered(model.requests[0])
        assert "- help: Help" in system(model.requests[0])
        with anyio.fail_after(PATIENCE):
            while not (session.editor.workspace / "stopped").exists():  # noqa: ASYNC110 - the hook is waited for by nobody
                await anyio.sleep(0.01)
        assert "warning" not in await session.say("go"), "what was told is told once"


async def test_of_very_many_problems_the_first_are_told_and_the_others_counted(tmp_path: Path):
    users(tmp_path, "agents/a.md", AGENT.format("a", "".join(f"key{number}: 1\n" for number in range(240))))
    async with aided(tmp_path, "done") as (session, _, _):
        told, status = await session.say("go"), await session.status()
        assert (told.count("unknown key"), "220 more problems: `/status` names them" in told) == (20, True)
        assert (status.count("unknown key"), "40 more problems: correct these first" in status) == (200, True)
