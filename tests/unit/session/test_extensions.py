"""What users bring to a session, where looking for it goes wrong."""

import threading
from pathlib import Path

import anyio
import pytest

from acp_agent.core.ports import Decision, Question
from acp_agent.core.session_options import SessionOptions
from acp_agent.extend.sources import ExtensionSources
from acp_agent.session.subagents import AgentLibrary
from acp_agent.session.toolset.extensions import SessionExtensions
from acp_agent.store.decisions import TrustedFolders
from acp_agent.workspace.roots import Roots

pytestmark = pytest.mark.anyio


class Impatient(SessionExtensions):
    seconds = 0.05


class NoUser:
    async def ask(self, question: Question) -> Decision:
        raise AssertionError(question)


async def test_a_disk_that_hangs_costs_a_prompt_a_moment_and_what_was_found_stays(tmp_path: Path):
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "explain.md").write_text("Do it.")
    back, hangs, warned = threading.Event(), False, list[str]()

    def roots() -> Roots | None:
        if hangs:
            assert back.wait(10)

    sources = ExtensionSources(str(tmp_path / "config.toml"), str(tmp_path), TrustedFolders("", print))
    made = Impatient(sources, roots, NoUser(), SessionOptions(), str, warned.append, AgentLibrary(str))
    made.refresh()
    hangs = True
    for _ in range(3):
        await made.ready(ask=True)
    assert [each.name for each in made.offered()] == ["explain"]
    assert warned == [
        "looking for skills and commands takes too long (a slow disk?): those that were found last are used"
    ]
    hangs = False
    back.set()
    (tmp_path / "commands" / "explain.md").unlink()
    with anyio.fail_after(10):
        while made.offered():
            await made.ready(ask=True)
            await anyio.lowlevel.checkpoint()
