import os
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from acp_agent.core.errors import Refused
from acp_agent.core.types import Access
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import Roots
from acp_agent.workspace.tree_walk import find_paths

pytestmark = pytest.mark.anyio


def grow(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("x\n")


async def found(files: LocalFileSystem, project: Path, pattern: str, path: str = ".") -> list[str]:
    result = await files.find(path, pattern, 1000)
    return [each.removeprefix(f"{project}/") for each in result.paths]


async def test_directories_are_found_too_before_what_is_in_them(files: LocalFileSystem, project: Path):
    grow(project, "tests/a.py", "src/tests/b.py", "src/a.py")
    assert await found(files, project, "**/tests") == ["src/tests", "tests"]
    assert await found(files, project, "**/tests/") == ["src/tests", "tests"]
    assert await found(files, project, "*") == ["src", "tests"]
    assert await found(files, project, "src/**") == ["src/a.py", "src/tests", "src/tests/b.py"]
    assert await found(files, project, "**/*.py/") == []


async def test_hidden_files_are_found_and_the_repository_is_not(files: LocalFileSystem, project: Path):
    grow(project, ".github/workflows/ci.yml", ".env", ".git/config", "sub/.git/config")
    assert await found(files, project, "**/*") == [
        ".env",
        ".github",
        ".github/workflows",
        ".github/workflows/ci.yml",
        "sub",
    ]
    assert await found(files, project, ".git/*") == [".git/config"]


async def test_links_are_found_by_where_they_lead_and_never_entered(
    files: LocalFileSystem, project: Path, outside: Path
):
    grow(project, "real/a.py")
    (project / "alias").symlink_to("real")
    (project / "out").symlink_to(outside)
    (project / "secret").symlink_to(outside / "secret")
    (project / "dangling").symlink_to("nowhere")
    assert await found(files, project, "**/*") == ["alias", "real", "real/a.py"]
    assert await found(files, project, "alias/*.py") == ["real/a.py"]
    assert await found(files, project, "out/*") == []
    assert await found(files, project, "missing/*") == []


async def test_an_ignored_directory_is_searched_when_it_is_named(files: LocalFileSystem, project: Path):
    grow(project, "build/a.py", "build/b.log", "build/deep/c.py")
    (project / ".gitignore").write_text("build/\n*.log\n")
    (project / "build" / ".gitignore").write_text("deep/\n")
    assert await found(files, project, "**/*.py") == []
    assert await found(files, project, "*", "build") == ["build/.gitignore", "build/a.py", "build/b.log"]
    assert await found(files, project, "build/*.py") == ["build/a.py"]


async def test_a_policy_hides_what_may_not_be_read(project: Path):
    grow(project, "a.key", "a.py", "d/b.key")

    def policy(path: str, access: Access) -> str | None:
        return "secret" if path.endswith(".key") and access is Access.READ else None

    with Roots(str(project), policy=policy) as roots:
        assert await found(LocalFileSystem(roots), project, "**") == ["a.py", "d"]


async def test_directories_show_when_they_may_be_listed_and_links_when_what_they_lead_to_may_be_shown(project: Path):
    grow(project, "open/a.txt", "closed/b.txt", "hidden/c.txt")
    (project / "to-open").symlink_to("open")
    (project / "to-closed").symlink_to("closed")
    (project / "to-a").symlink_to("open/a.txt")
    (project / "to-b").symlink_to("closed/b.txt")

    def policy(path: str, access: Access) -> str | None:
        if "closed" in path:
            return "closed"
        return "no reading" if access is Access.READ and not path.endswith("a.txt") else None

    with Roots(str(project), policy=policy) as roots:
        files = LocalFileSystem(roots)
        assert await found(files, project, "**") == ["hidden", "open", "open/a.txt", "to-a", "to-open"]
        assert await found(files, project, "open/*") == ["open/a.txt"]
        assert await found(files, project, "closed/*") == []
        with pytest.raises(Refused, match="closed"):
            await files.find("closed", "**", 10)


async def test_a_pattern_that_climbs_is_refused(files: LocalFileSystem):
    with pytest.raises(Refused, match="leaves"):
        await files.find(".", "../*", 10)


async def test_a_search_stops_when_its_task_is_cancelled(files: LocalFileSystem, project: Path):
    for number in range(300):
        (project / f"d{number}").mkdir()
    finished = False

    async def search() -> None:
        nonlocal finished
        await files.find(".", "**/nothing", 10)
        finished = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(search)
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert not finished


async def test_a_tree_deeper_than_a_path_can_be_long_ends_somewhere(files: LocalFileSystem, project: Path):
    fd = os.open(project, os.O_RDONLY)
    for _ in range(30):  # 30 names of 200 bytes: more than a path may have
        os.mkdir("d" * 200, dir_fd=fd)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(fd)
    assert 10 < len((await files.find(".", "**", 1000)).paths) < 30


async def test_order_is_that_of_the_names_on_the_way(files: LocalFileSystem, project: Path):
    grow(project, "a/z", "a.txt", "a-b", "b", "B")
    assert await found(files, project, "**") == ["B", "a", "a/z", "a-b", "a.txt", "b"]


async def test_what_a_carve_out_opens_is_found_below_a_folder_that_may_not_be_listed(project: Path):
    grow(project, "closed/open/a.py", "closed/b.py")

    def policy(path: str, access: Access) -> str | None:
        del access
        return "closed" if "/closed" in path and "/open" not in path else None

    with Roots(str(project), policy=policy) as roots:
        assert await found(LocalFileSystem(roots), project, "**") == ["closed/open", "closed/open/a.py"]


async def test_a_search_without_time_says_where_it_stopped(project: Path):
    grow(project, "a/b.py", "c.py")
    with Roots(str(project)) as roots:
        stopped = await to_thread.run_sync(find_paths, roots, ".", "**", 10, 0.0)
        whole = await to_thread.run_sync(find_paths, roots, ".", "**", 10)
    assert (stopped.paths, stopped.more, stopped.stopped) == ((), False, str(project / "a"))
    assert (len(whole.paths), whole.stopped) == (3, None)
