"""Folders outside the roots that hold a project's dependencies, and what cannot be passed off as one."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from acp_agent.core.backends import GrepQuery
from acp_agent.core.errors import Refused
from acp_agent.core.ports import Decision
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import Access, PathSubject
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.read_policy import ProjectDependencies
from acp_agent.workspace.roots import ReadableFolders, Roots
from tests.rows import each_row
from tests.unit.gates.chain import Chain, ScriptedApprover, call, command, full_auto

pytestmark = pytest.mark.anyio


@dataclass
class Machine:
    """A home with caches of packages, other people's files, and a project in it."""

    top: Path

    def __post_init__(self) -> None:
        self.home, self.project = self.top / "home", self.top / "home" / "me" / "app"
        self.environ = {"HOME": os.fspath(self.home), "PATH": os.fspath(self.top / "bin")}
        python = "opt/python/lib/python3.12"
        for name in (
            "home/me/node_modules/left/index.js",
            "home/me/node_modules/left/.env",
            "home/.ssh/id_rsa",
            "home/me/other/site-packages/secret.py",
            "home/me/other/plans.txt",
            "home/.cargo/registry/src/serde/lib.rs",
            "home/.cargo/credentials.toml",
            "home/.m2/repository/a/a.jar",
            "home/.m2/settings.xml",
            "home/go/pkg/mod/errors/errors.go",
            "store/plans.txt",
            "store/node_modules/@scope/far/index.js",
            "store/node_modules/near/index.js",
            f"{python}/os.py",
            f"{python}/site.py",
            f"{python}/encodings/__init__.py",
            "opt/python/bin/python3",
            "opt/venv/pyvenv.cfg",
            "opt/venv/lib/python3.12/site-packages/flask/app.py",
            "opt/venv/lib/python3.12/site-packages/certifi/cacert.pem",
            "usr2/lib/python3.12/secret.py",
        ):
            self.put(name)
        self.project.mkdir(parents=True)
        (self.project / "main.py").write_text("main\n")

    def put(self, name: str, text: str = "needle\n") -> None:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def link(self, name: str, target: str) -> None:
        link = self.project / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self.top / target)

    def venv(self, home: str) -> None:
        self.put("home/me/app/.venv/pyvenv.cfg", f"home = {self.top / home}\nversion = 3.12\n")

    def roots(self) -> Roots:
        found = ProjectDependencies([os.fspath(self.project)], self.environ)
        return Roots(os.fspath(self.project), readable=ReadableFolders(found.find))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path.resolve())


def test_packages_and_sources_are_found_where_they_are(machine: Machine):
    machine.venv("opt/python/bin")
    machine.link("node_modules/near", "store/node_modules/near")
    machine.link("venv", "opt/venv")
    with machine.roots() as roots:
        for path, name in {
            "../node_modules/left/index.js": f"node_modules of {machine.home}/me",
            f"{machine.home}/.cargo/registry/src/serde/lib.rs": "the Cargo registry",
            f"{machine.home}/.m2/repository": "the Maven repository",
            f"{machine.home}/go/pkg/mod/errors": "the Go module cache",
            "node_modules/near/index.js": f"the package near in node_modules of {machine.top}/store",
            "venv/lib/python3.12/site-packages/flask/app.py": "site-packages of venv",
            f"{machine.top}/opt/python/lib/python3.12/os.py": "the Python library of .venv",
        }.items():
            found = roots.folder(path)
            assert found is not None, path
            assert found.name == name


ABUSES = {
    "a link in node_modules to the keys": ("node_modules/x -> home/.ssh", "node_modules/x/id_rsa"),
    "a link in node_modules to another project": ("node_modules/x -> home/me/other", "node_modules/x/plans.txt"),
    "node_modules as a link to another project": ("node_modules -> home/me/other", "node_modules/plans.txt"),
    "a link to the folder above node_modules": ("node_modules -> store", "node_modules/plans.txt"),
    "node_modules of somebody else, by its path": ("", "{top}/store/node_modules/near/index.js"),
    "a file of secrets within": ("", "../node_modules/left/.env"),
    "keys of certificates within": ("venv -> opt/venv", "venv/lib/python3.12/site-packages/certifi/cacert.pem"),
    "site-packages that is only a name": ("", "{top}/home/me/other/site-packages/secret.py"),
    "site-packages behind a link of that name": ("site-packages -> home/me/other", "site-packages/plans.txt"),
    "a way back up out of node_modules": ("", "../node_modules/../other/plans.txt"),
    "a way back up out of the Cargo registry": ("", "{top}/home/.cargo/registry/src/../../credentials.toml"),
    "the credentials beside the Cargo registry": ("", "{top}/home/.cargo/credentials.toml"),
    "the passwords beside the Maven repository": ("", "{top}/home/.m2/settings.xml"),
    "the folder above the caches": ("", "{top}/home/.m2"),
    "the home": ("", "{top}/home"),
    "everything": ("", "/"),
    "a virtual environment behind a link that is none": (".venv -> home/me/other", ".venv/plans.txt"),
    "settings of a virtual environment as a link": (".venv/pyvenv.cfg -> home/.ssh/id_rsa", "../other/plans.txt"),
    "a file in a virtual environment but no package": ("venv -> opt/venv", "venv/pyvenv.cfg"),
    "a Python by name, without its library": ("", "{top}/usr2/lib/python3.12/secret.py"),
    "a path that only a shell expands": ("", "~/go/pkg/mod/errors/errors.go"),
}


@pytest.mark.parametrize("name", ABUSES)
async def test_what_only_looks_like_a_dependency_is_refused(machine: Machine, name: str):
    link, path = ABUSES[name]
    if link:
        machine.link(*link.split(" -> "))
    if not (machine.project / ".venv").exists():
        machine.venv("usr2/bin")
    path = path.format(top=machine.top)
    with machine.roots() as roots:
        roots.readable.open([os.fspath(machine.home / "me" / "node_modules")])
        for access in (Access.READ, Access.LIST):
            with pytest.raises(Refused):
                LocalFileSystem(roots).resolve(path, access)
            with pytest.raises(Refused):
                roots.place(path, access)


@each_row("access", [Access.WRITE, Access.MOVE, Access.DELETE])
def test_nothing_is_written_there_also_while_it_may_be_read(machine: Machine, access: Access):
    with machine.roots() as roots:
        roots.readable.open([os.fspath(machine.home / "me" / "node_modules")])
        assert roots.place("../node_modules/left/index.js", Access.READ).path
        with pytest.raises(Refused):
            roots.place("../node_modules/left/index.js", access)


def test_settings_that_are_a_pipe_do_not_block(machine: Machine):
    (machine.project / ".venv").mkdir()
    os.mkfifo(machine.project / ".venv" / "pyvenv.cfg")
    with machine.roots() as roots:
        assert roots.folder("../other/plans.txt") is None


def test_settings_that_are_a_folder_are_no_settings(machine: Machine):
    (machine.project / ".venv" / "pyvenv.cfg").mkdir(parents=True)
    with machine.roots() as roots:
        assert roots.folder("../other/plans.txt") is None


def test_settings_full_of_blanks_are_read_in_one_pass(machine: Machine):
    machine.put("home/me/app/.venv/pyvenv.cfg", "home = /a" + " " * 16_000 + "b")
    with machine.roots() as roots:
        assert {roots.folder("../other/plans.txt") for _ in range(100)} == {None}


def test_variables_of_a_command_change_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    machine.put("home/me/other/pkg/mod/plans.txt")
    with machine.roots() as roots:
        monkeypatch.setenv("GOPATH", os.fspath(machine.home / "me" / "other"))
        assert roots.folder("../other/pkg/mod/plans.txt") is None
    machine.environ["GOPATH"] = "home/me/other"  # a relative one is not taken from the project
    with machine.roots() as roots:
        assert roots.folder("../other/pkg/mod/plans.txt") is None


async def test_a_link_that_is_swapped_after_the_answer_opens_nothing_else(machine: Machine):
    machine.link("node_modules/near", "store/node_modules/near")
    with machine.roots() as roots:
        files = LocalFileSystem(roots)
        folder = roots.folder("node_modules/near/index.js")
        assert folder is not None
        close = roots.readable.open([folder.path])
        assert await files.read_text("node_modules/near/index.js") == "needle\n"
        (machine.project / "node_modules" / "near").unlink()
        machine.link("node_modules/near", "store/node_modules/@scope/far")
        with pytest.raises(Refused):
            await files.read_text("node_modules/near/index.js")
        (machine.top / "store/node_modules/near/index.js").unlink()
        (machine.top / "store/node_modules/near/index.js").symlink_to(machine.home / ".ssh" / "id_rsa")
        with pytest.raises(Refused):
            await files.read_text(f"{folder.path}/index.js")
        await close()
        with pytest.raises(Refused):
            await files.list_directory(folder.path)


async def test_tools_that_read_work_there_while_it_is_open(machine: Machine):
    with machine.roots() as roots:
        files = LocalFileSystem(roots)
        roots.readable.open([os.fspath(machine.home / "me" / "node_modules")])
        assert [each.name for each in await files.list_directory("../node_modules")] == ["left"]
        found = await files.find("../node_modules", "**/*.js", 9)
        assert [os.path.basename(path) for path in found.paths] == ["index.js"]
        for path in ("../node_modules", "../node_modules/left/index.js"):
            assert len((await files.grep(GrepQuery("needle", path))).matches) == 1
        assert (await files.copy("../node_modules/left/index.js", "copied.js")).files == 1


# ------------------------------------------------------------------------------------------------ through the gates


@pytest.fixture
def chain(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    for name, value in machine.environ.items():
        monkeypatch.setenv(name, value)

    def made(*answers: Decision, options: SessionOptions | None = None) -> Chain:
        grants = os.fspath(machine.top / "grants.toml")
        return Chain(
            os.fspath(machine.project), grants, conduct=options or SessionOptions(), approver=ScriptedApprover(*answers)
        )

    return made


def reads(path: str):
    return call("read", PathSubject(path, Access.READ), arguments={"path": path})


async def test_a_question_names_the_place_and_a_yes_to_it_covers_tools_and_commands(chain, machine: Machine):
    asked = chain(Decision.ALLOW_SESSION)
    assert await asked.fate(reads("../node_modules/left/index.js")) == "asked"
    (question,) = asked.approver.questions
    folder = f"{machine.home}/me/node_modules"
    assert question.reasons == (f"reads node_modules of {machine.home}/me, a dependency of this project ({folder})",)
    assert question.option == f"reading {folder}"
    for later in (
        reads("../node_modules/other.js"),
        call("grep", PathSubject("../node_modules", Access.LIST)),
        command(f"cat {folder}/left/index.js | head -n 3"),
        command("ls ../node_modules && rg -n needle ../node_modules/left"),
    ):
        assert await asked.fate(later) == "silent", later
    assert [each.told for each in asked.permission.answers()] == [f"always allow reading {folder}, in this session"]
    assert await chain().fate(reads("../node_modules/left/index.js")) == "asked"


async def test_always_holds_for_the_project_and_a_no_is_named(chain):
    asked = chain(Decision.ALLOW_ALWAYS)
    assert await asked.fate(reads("../node_modules/left/index.js")) == "asked"
    assert await chain().fate(command("cat ../node_modules/left/index.js")) == "silent"
    assert await asked.permission.revoke(asked.permission.answers()[0])
    denied = chain(Decision.REJECT_ALWAYS)
    assert await denied.fate(reads("../node_modules/left/index.js")) == "asked"
    result = await chain().run(command("cat ../node_modules/left/index.js"))
    assert result.failure is not None
    assert "always reject" in result.failure.message
    assert "node_modules" in result.failure.message


async def test_once_is_asked_again(chain):
    asked = chain(Decision.ALLOW_ONCE, Decision.ALLOW_ONCE)
    assert await asked.fate(reads("../node_modules/left/index.js")) == "asked"
    assert await asked.fate(reads("../node_modules/left/index.js")) == "asked"


async def test_full_auto_reads_dependencies_unasked_and_nothing_else(chain):
    free = chain(options=full_auto())
    assert await free.fate(reads("../node_modules/left/index.js")) == "silent"
    assert await free.fate(command("cat ../node_modules/left/index.js")) == "silent"
    for refused in (
        reads("../node_modules/left/.env"),
        reads("../other/plans.txt"),
        command("cat ../node_modules/left/.env"),
        command("cat ../other/plans.txt"),
        command("rm ../node_modules/left/index.js"),
        command("touch ../node_modules/left/new.js"),
        command("cat ../node_modules/left/index.js > ../node_modules/left/other.js"),
        command("node ../node_modules/left/index.js"),
    ):
        assert await free.fate(refused) in ("refused", "blocked"), refused


async def test_after_a_yes_commands_that_write_or_show_secrets_are_not_let_through(chain, machine: Machine):
    asked = chain(Decision.ALLOW_SESSION)
    (machine.home / "me" / "node_modules" / "left" / "keys").symlink_to(machine.home / ".ssh")
    await asked.fate(reads("../node_modules/left/index.js"))
    for text in (
        "rm -r ../node_modules/left",
        "sed -i s/a/b/ ../node_modules/left/index.js",
        "cp main.py ../node_modules/left/index.js",
        "cat ../node_modules/left/.env",
        "rg --hidden needle ../node_modules",
        "cat ../node_modules/../other/plans.txt",
        "cd ../node_modules && cat ../other/plans.txt",
        "node ../node_modules/left/index.js",
        "cat ../node_modules/*/index.js",
        "git -C ../node_modules/left status",
        "cd ../node_modules && git log",
        "grep -R needle ../node_modules",
        "find -L ../node_modules -name x",
        "cat ../node_modules/left/keys/id_rsa",
        "cat $HOME/../node_modules/left/index.js",
        "GOPATH=/x cat ../other/plans.txt",
    ):
        assert await asked.fate(command(text)) != "silent", text
    assert await asked.fate(call("write", PathSubject("../node_modules/x", Access.WRITE))) == "refused"


async def test_what_may_not_be_read_is_not_asked_about(chain, machine: Machine):
    loaded = chain().loaded
    file = loaded.settings.tools.file.model_copy(update={"deny_read": ("**/left",)})
    tools = loaded.settings.tools.model_copy(update={"file": file})
    limited = replace(loaded, settings=loaded.settings.model_copy(update={"tools": tools}))
    denying = Chain(os.fspath(machine.project), os.fspath(machine.top / "grants.toml"), loaded=limited)
    assert await denying.fate(reads("../node_modules/left/index.js")) == "refused"


@each_row("level", [AutoApprove.SUGGEST, AutoApprove.AUTO_EDIT])
async def test_every_level_but_full_auto_asks(chain, level: AutoApprove):
    asked = chain(options=SessionOptions(auto_approve=level))
    assert await asked.fate(reads("../node_modules/left/index.js")) == "asked"
