"""What users bring to a session: where looking for it goes wrong, and that no call is judged more freely for it."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from acp_agent.config.files import PathStamps
from acp_agent.config.load import Flags, load
from acp_agent.core.ports import Decision, Question
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import Access, CommandSubject, PathSubject, Subject
from acp_agent.core.untrusted import now_ns
from acp_agent.extend.sources import ExtensionSources
from acp_agent.gates.grants import GrantStore
from acp_agent.session.subagents import AgentLibrary
from acp_agent.session.toolset import extensions
from acp_agent.session.toolset.extensions import SessionExtensions
from acp_agent.session.toolset.gate_factory import GateContext, build_gates, permission_gate
from acp_agent.session.toolset.settings import FolderRules
from acp_agent.session.verdicts import call_with, judged
from acp_agent.store.decisions import TrustedFolders
from acp_agent.store.schema import local_devices
from acp_agent.workspace.roots import ReadableFolder, Roots
from tests.fakes.passing_time import all_tasks_blocked
from tests.sizes import sized
from tests.unit.gates import hostile

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
        "looking for skills and commands takes too long (a slow disk?): those that were found before are used"
    ]
    hangs = False
    back.set()
    (tmp_path / "commands" / "explain.md").unlink()
    with anyio.fail_after(10):
        while made.offered():
            await made.ready(ask=True)
            await anyio.lowlevel.checkpoint()


async def test_other_looks_are_taken_behind_its_own_and_make_it_no_slower(tmp_path: Path):
    (tmp_path / "commands").mkdir()
    back, warned, seen = threading.Event(), list[str](), list[object]()
    sources = ExtensionSources(str(tmp_path / "config.toml"), str(tmp_path), TrustedFolders("", print))
    made = SessionExtensions(sources, lambda: None, NoUser(), SessionOptions(), str, warned.append, AgentLibrary(str))
    (tmp_path / "commands" / "explain.md").write_text("Do it.")
    await made.ready(ask=True, early=lambda devices: (lambda: seen.append([each.name for each in made.offered()]),))
    assert seen == [["explain"]]
    (tmp_path / "commands" / "explain.md").unlink()
    with anyio.fail_after(10):
        await made.ready(ask=True, early=lambda devices: (lambda: back.wait(10),))
    assert made.offered() == ()
    assert warned == []
    back.set()


class Watched(SessionExtensions):
    """Notes the thread of each look."""

    def __init__(
        self,
        folder: Path,
        warn: Callable[[str], None] = pytest.fail,
        external: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        stamps = partial(PathStamps, lambda: now_ns() + 1_000_000_000)
        store, config = TrustedFolders("", print), str(folder / "config.toml")
        sources = ExtensionSources(config, str(folder), store, stamps=stamps)
        agents = AgentLibrary(str, external)
        super().__init__(sources, lambda: None, NoUser(), SessionOptions(), str, warn, agents)
        self.looked = list[int]()
        self.devices = local_devices((str(folder),))

    def refresh(self) -> None:
        self.looked.append(threading.get_ident())
        super().refresh()


async def test_no_thread_looks_while_nothing_has_changed(tmp_path: Path):
    made, checks = Watched(tmp_path), list[frozenset[int]]()
    for _ in range(3):
        await made.ready(ask=True, early=lambda devices: checks.append(devices) or ())
    assert len(made.looked) == 1
    assert made.looked[0] != threading.get_ident()
    assert checks[0] == frozenset()
    assert checks[1] == checks[2] >= made.devices
    await made.ready(ask=True, early=lambda devices: (lambda: None,))
    assert len(made.looked) == 2
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "explain.md").write_text("Do it.")
    await made.ready(ask=True)
    assert [each.name for each in made.offered()] == ["explain"]


async def test_a_thread_looks_again_after_the_names_of_other_agents_have_changed(tmp_path: Path):
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "helper.md").write_text("---\nname: helper\ndescription: Helps.\n---\nHelp.")
    names, told = list[str](), list[str]()
    made = Watched(tmp_path, told.append, external=lambda: tuple(names))
    await made.ready(ask=True)
    await made.ready(ask=True)
    names.append("helper")
    await made.ready(ask=True)
    await made.ready(ask=True)
    assert len(made.looked) == 2
    assert "helper" not in {each.name for each in made.agents.offered()}
    assert "an agent of the configuration" in "".join(told)


async def test_what_a_look_found_too_late_for_its_prompt_is_told_with_the_next(tmp_path: Path):
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "bad.md").write_text("---\nallowed-tools: [\n---\nDo it.")
    told = list[str]()
    made = Watched(tmp_path, told.append)
    await anyio.to_thread.run_sync(made._look, ())  # pyright: ignore[reportPrivateUsage] - as by a cancelled prompt
    assert told == []
    await made.ready(ask=True)
    assert len(made.looked) == 1
    assert "bad.md" in told[0]


async def test_a_disk_that_may_hang_is_asked_in_a_thread_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(extensions, "local_devices", lambda folders: frozenset())
    made, checks = Watched(tmp_path), list[frozenset[int]]()
    for _ in range(3):
        await made.ready(ask=True, early=lambda devices: checks.append(devices) or ())
    assert len(made.looked) == 3
    assert threading.get_ident() not in made.looked
    assert checks == [frozenset()] * 3


async def test_a_disk_that_hangs_keeps_no_other_session_from_its_look(tmp_path: Path):
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "explain.md").write_text("Do it.")
    back, warned, threads = threading.Event(), list[str](), anyio.CapacityLimiter(1)

    def hangs() -> Roots | None:
        assert back.wait(10)

    sources = ExtensionSources(str(tmp_path / "config.toml"), str(tmp_path), TrustedFolders("", print))
    parts = NoUser(), SessionOptions(), str, warned.append, AgentLibrary(str)
    slow, other = Impatient(sources, hangs, *parts), SessionExtensions(sources, lambda: None, *parts)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: slow.ready(ask=True, threads=threads))
            await all_tasks_blocked()
            await other.ready(ask=True, threads=threads)
    assert [each.name for each in other.offered()] == ["explain"]
    assert len(warned) == 1
    back.set()


RANKS = ("allow", "ask", "deny", "blocked")
NARROW = ("Bash", "Read", "Write", "mcp")
EVERY_WAY = [(level, (None, NARROW)) for level in (AutoApprove.SUGGEST, AutoApprove.FULL_AUTO)]


@pytest.mark.parametrize(
    "narrowed",
    [
        pytest.param([(AutoApprove.SUGGEST, (NARROW,)), (AutoApprove.FULL_AUTO, (None,))], id="each once"),
        pytest.param(EVERY_WAY, id="every way", marks=pytest.mark.soak),
    ],
)
def test_with_a_skill_and_the_tools_of_a_command_no_call_is_judged_more_freely(tmp_path: Path, narrowed):
    """But for reading files of the user's own skill, about which they are asked."""
    work, skill = tmp_path / "work", tmp_path / "skills" / "greet"
    for folder in (work, skill):
        folder.mkdir(parents=True)
    (skill / "go.sh").write_text("true")
    found = (ReadableFolder(str(skill), "the skill greet", "which is your own"),)
    texts = [*hostile.U, *(text for table in (hostile.A, hostile.B, hostile.C) for text, _ in table)][:: sized(8, 1)]
    texts += [f"{text} {skill}/go.sh" for text in ("sh", "cat", "cp x", "rm", "cat > x <", "cat x >", "ln -s")]
    paths = [f"{skill}/go.sh", f"{skill}/../other", "/etc/passwd", "~/.ssh/id_rsa", "made", ".git/hooks/x"]
    subjects: list[Subject] = [CommandSubject(text) for text in texts]
    subjects += [PathSubject(path, access) for path in paths for access in (Access.READ, Access.WRITE)]

    def ranks(level: AutoApprove, only: tuple[str, ...] | None, skills: tuple[ReadableFolder, ...]) -> list[int]:
        loaded = load(Flags(), {"ACP_AGENT_CONFIG": str(tmp_path / "config.toml")}, str(work))
        with (
            FolderRules(loaded, str(work)).roots(skills=lambda: skills) as files,
            FolderRules(loaded, str(work)).roots(for_shell=True, skills=lambda: skills) as shell,
        ):
            context = GateContext(SessionOptions(auto_approve=level), files, shell, narrowed=lambda: only)
            permission = permission_gate({}, context, GrantStore(str(tmp_path / "grants.toml"), print))
            gates = build_gates(loaded, context, permission, print)
            return [RANKS.index(judged(gates.facts(call_with(each)), gates.in_order).word) for each in subjects]

    (tmp_path / "config.toml").write_text("")
    own = {CommandSubject(f"cat {skill}/go.sh"), PathSubject(f"{skill}/go.sh", Access.READ)}
    for level, narrowings in narrowed:
        before = ranks(level, None, ())
        for only in narrowings:
            after = ranks(level, only, found)
            looser = {each for each, one, other in zip(subjects, before, after, strict=True) if other < one}
            assert PathSubject(f"{skill}/go.sh", Access.READ) in looser
            assert looser <= own


# --------------------------------------------------------------------------- what waits for the user


class Yes:
    """A user who agrees to everything, and notes what they were asked."""

    def __init__(self) -> None:
        self.asked: list[Question] = []

    async def ask(self, question: Question) -> Decision:
        self.asked.append(question)
        return Decision.ALLOW_ONCE


@contextmanager
def brought(
    folder: Path, approver: NoUser | Yes, options: SessionOptions | None = None
) -> Generator[tuple[SessionExtensions, list[str]]]:
    """A project with two commands, one of which has a mistake; the user has a skill with the name of a command."""
    commands, skill = folder / "work" / ".acp-agent" / "commands", folder / "skills" / "clear"
    commands.mkdir(parents=True)
    skill.mkdir(parents=True)
    (commands / "explain.md").write_text("Do it.")
    (commands / "broken.md").write_text("---\ndescription: [\n---\nDo it.")
    (skill / "SKILL.md").write_text("---\nname: clear\ndescription: Clears up.\n---\nClear up.")
    warned = list[str]()
    trusted = TrustedFolders(str(folder / "trusted.toml"), print)
    (folder / "config.toml").write_text("")
    loaded = load(Flags(), {"ACP_AGENT_CONFIG": str(folder / "config.toml")}, str(folder / "work"))
    sources = ExtensionSources(str(folder / "config.toml"), str(folder / "work"), trusted)
    with FolderRules(loaded, str(folder / "work")).roots() as roots:
        yield (
            SessionExtensions(
                sources, lambda: roots, approver, options or SessionOptions(), str, warned.append, AgentLibrary(str)
            ),
            warned,
        )


async def test_files_of_a_folder_wait_for_the_user_who_is_told_what_is_wrong_with_them(tmp_path: Path):
    with brought(tmp_path, NoUser()) as (made, warned):
        made.refresh()
        assert "explain" not in [each.name for each in made.offered()]
        *waiting, usage = made.waiting()
        assert len(waiting) == 2
        assert all(each.startswith("- ") for each in waiting)
        assert usage == "`/trust accept` uses them."
        (told,) = [each for each in made.status() if "not used until you approve them" in each]
        assert told.startswith("Problem: not used until you approve them")
        assert "explain.md" in told
        assert warned == []
        told = await made.accept()
        assert told.startswith("Used from now on (2 files):\n\n- ")
        assert "explain" in [each.name for each in made.offered()]
        clear = "/clear is a command of the agent itself"
        assert sorted((clear in each, "broken.md" in each) for each in warned) == [(False, True), (True, False)]
        assert made.waiting() == ()
        assert await made.accept() == "No file of this folder waits for your approval."
        assert len(warned) == 2, "each is told once"
        assert any(each.startswith("Problem: ") and clear in each for each in made.status())


async def test_the_user_is_asked_about_them_unless_nobody_is_to_be_asked(tmp_path: Path):
    for name, level, asked in (("a", AutoApprove.SUGGEST, 1), ("b", AutoApprove.FULL_AUTO, 0)):
        user = Yes()
        with brought(tmp_path / name, user, SessionOptions(auto_approve=level)) as (made, _):
            await made.ready(ask=True)
            assert len(user.asked) == asked
            assert ("explain" in [each.name for each in made.offered()]) is bool(asked)
            assert bool(made.waiting()) is not bool(asked)
            await made.ready(ask=False)
            assert len(user.asked) == asked


def test_every_kind_of_definition_that_the_user_has_is_read_and_forgotten(tmp_path: Path):
    with brought(tmp_path, NoUser()) as (made, _):
        made.refresh()
        assert (made.agents.users(), made.hooks) == ((), None)
        skills = made.tools()
        (tmp_path / "agents").mkdir()
        (tmp_path / "agents" / "scout.md").write_text("---\ndescription: Looks around.\n---\nLook.")
        (tmp_path / "hooks.toml").write_text("[[pre_tool_use]]\ncommand = 'check'\n")
        made.refresh()
        assert [each.name for each in made.agents.users()] == ["scout"]
        assert made.hooks is not None
        assert [each.command for each in made.hooks.all] == ["check"]
        assert any("scout" in each for each in made.status())
        assert made.tools() is skills, "as long as there are as many skills"
        (tmp_path / "agents" / "scout.md").unlink()
        (tmp_path / "hooks.toml").unlink()
        (tmp_path / "skills" / "clear" / "SKILL.md").unlink()
        made.refresh()
        assert (made.agents.users(), list(made.hooks.all)) == ((), [])
        assert (bool(skills), made.tools()) == (True, ())
