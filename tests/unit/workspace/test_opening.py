"""No sequence of operations reads or changes anything outside the roots, whatever links the tree has."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.core.backends import GrepQuery
from acp_agent.core.errors import Refused, ToolError
from acp_agent.workspace.beneath import Opener
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import Roots
from tests.sizes import sized

NAMES = ["a", "b", "c"]
STEPS = [*NAMES, *NAMES, "..", "."]

inside_paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
wild_paths = st.builds(
    lambda start, steps: start + "/".join(steps),
    st.sampled_from(["", "", "OUTSIDE/", "PROJECT/", "PROJECT/../outside/", "../outside/", "/"]),
    st.lists(st.sampled_from([*STEPS, "secret"]), min_size=1, max_size=5),
)
nodes = st.one_of(
    st.tuples(st.just("file"), inside_paths, st.just("")),
    st.tuples(st.just("folder"), inside_paths, st.just("")),
    st.tuples(st.just("link"), inside_paths, wild_paths),
    st.tuples(
        st.just("link"), inside_paths, st.sampled_from(["OUTSIDE", "OUTSIDE/a", "OUTSIDE/secret", "OUTSIDE/new"])
    ),
)
any_paths = st.one_of(inside_paths, wild_paths)
calls = st.tuples(
    st.sampled_from(["read", "write", "list", "find", "grep", "make", "delete", "move", "copy"]), any_paths, any_paths
)


@dataclass(frozen=True)
class World:
    """A project and, beside it, what must neither be seen nor change."""

    project: Path
    outside: Path

    def spelled(self, path: str) -> str:
        return path.replace("OUTSIDE", str(self.outside)).replace("PROJECT", str(self.project))

    def grow(self, kind: str, path: str, target: str) -> None:
        place = self.project / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            match kind:
                case "file":
                    # Never through a link: the tree is the test's, the outside is not.
                    fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
                    os.write(fd, b"inside\n")
                    os.close(fd)
                case "folder":
                    place.mkdir()
                case _:
                    place.symlink_to(self.spelled(target))
        except OSError:
            return  # a name taken twice; the tree is then a little smaller

    def outside_now(self) -> list[tuple[str, int, int, bytes]]:
        return state_of(self.outside)


def state_of(top: Path) -> list[tuple[str, int, int, bytes]]:
    """Every path from here on, links not followed: its mode, its time and its bytes."""
    state: list[tuple[str, int, int, bytes]] = []
    for folder, _, names in os.walk(top):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            status = os.lstat(path)
            data = Path(path).read_bytes() if stat.S_ISREG(status.st_mode) else b""
            state.append((path, status.st_mode, status.st_mtime_ns, data))
    return sorted(state)


def new_world(base: Path) -> World:
    world = World(base / "project", base / "outside")
    (world.outside / "a" / "b").mkdir(parents=True)
    world.project.mkdir()
    for path in ("secret", "a/secret", "a/b/secret", "c", "canary", "a/canary", "a/b/canary"):
        (world.outside / path).write_text("SECRET\n")
    return world


async def written(files: LocalFileSystem, path: str) -> None:
    """Create or replace; whoever writes says what the file held."""
    old = await files.read_text(path) if await files.kind(path) is not None else None
    await files.write_text(path, "inside\n", expected=old)


async def shown_by(files: LocalFileSystem, call: str, path: str, other: str) -> str:
    """Everything an operation tells, its errors included."""
    try:
        match call:
            case "read":
                return await files.read_text(path)
            case "write":
                await written(files, path)
                return ""
            case "list":
                return repr(await files.list_directory(path))
            case "find":
                return repr((await files.find(path, "**", 1000)).paths)
            case "grep":
                return repr((await files.grep(GrepQuery(".", path))).matches)
            case "make":
                return repr(await files.make_directory(path))
            case "delete":
                return repr(await files.delete(path, recursive=len(other) % 2 == 0))
            case "move":
                return repr(await files.move(path, other))
            case _:
                return repr(await files.copy(path, other))
    except (Refused, ToolError) as error:
        return "SECRET" if "SECRET" in str(error) else ""


@settings(max_examples=settings.default.max_examples * sized(2, 3))
@given(tree=st.lists(nodes, max_size=10), sequence=st.lists(calls, min_size=1, max_size=12))
def test_nothing_outside_is_ever_read_or_changed(
    tmp_path_factory: pytest.TempPathFactory,
    opener: Opener,
    tree: list[tuple[str, str, str]],
    sequence: list[tuple[str, str, str]],
):
    world = new_world(tmp_path_factory.mktemp("world").resolve())
    for kind, path, target in tree:
        world.grow(kind, path, target)
    before = world.outside_now()

    async def run() -> None:
        with Roots(str(world.project), opener=opener) as roots:
            files = LocalFileSystem(roots)
            for call, path, other in sequence:
                shown = await shown_by(files, call, world.spelled(path), world.spelled(other))
                assert "SECRET" not in shown, (call, path)
                assert "canary" not in shown, (call, path)
                if call in ("find", "grep"):
                    assert str(world.outside) not in shown, (call, path)

    anyio.run(run)
    assert world.outside_now() == before
    assert not [path for path, _, _, data in state_of(world.project) if b"SECRET" in data or "canary" in path]


near_paths = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2).map("/".join)
far_places = st.sampled_from(["OUTSIDE", "OUTSIDE/a", "OUTSIDE/secret", "../outside/a/b", "../../outside/c", "..", "."])
changes = st.tuples(st.sampled_from(["make", "delete", "move", "copy", "copy", "write"]), near_paths, near_paths)


@given(
    links=st.lists(st.tuples(st.just("link"), near_paths, far_places), min_size=1, max_size=4),
    sequence=st.lists(changes, min_size=1, max_size=8),
)
def test_no_change_of_a_tree_full_of_links_out_takes_anything_in_or_away(
    tmp_path_factory: pytest.TempPathFactory, links: list[tuple[str, str, str]], sequence: list[tuple[str, str, str]]
):
    world = new_world(tmp_path_factory.mktemp("world").resolve())
    for kind, path, target in links:
        world.grow(kind, path, target)
    before = world.outside_now()

    async def run() -> None:
        with Roots(str(world.project)) as roots:
            files = LocalFileSystem(roots)
            for call, path, other in sequence:
                await shown_by(files, call, path, other)

    anyio.run(run)
    assert world.outside_now() == before
    assert not [path for path, _, _, data in state_of(world.project) if b"SECRET" in data or "canary" in path]
