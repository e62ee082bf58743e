import os
from pathlib import Path

import pytest

from acp_agent.core.errors import AgentError, ConfigError, Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access
from acp_agent.workspace.roots import Root, RootPool, Roots
from tests.unit.workspace.trees import open_fds

ROOT_USER = os.geteuid() == 0


def place(roots: Roots, path: str) -> str:
    return roots.resolve(path, Access.READ)


def test_paths_resolve_as_the_kernel_walks_them(roots: Roots, project: Path):
    (project / "real" / "deep").mkdir(parents=True)
    (project / "alias").symlink_to("real/deep")
    (project / "absolute").symlink_to(project / "real")
    assert place(roots, "alias/..") == str(project / "real")
    assert place(roots, "alias/../new") == str(project / "real" / "new")
    assert place(roots, "absolute/deep") == str(project / "real" / "deep")
    assert place(roots, "real//deep/./") == str(project / "real" / "deep")
    assert place(roots, f"{project}/real/../real") == str(project / "real")


def test_a_neighbour_whose_name_begins_alike_is_outside(roots: Roots, project: Path):
    twin = project.with_name("project-twin")
    twin.mkdir()
    for path in (str(twin), "../project-twin", f"{twin}/x"):
        with pytest.raises(Refused):
            place(roots, path)


@pytest.mark.parametrize("target", ["../outside", "../outside/secret", "/etc/passwd", "..", "."])
def test_a_link_counts_by_where_it_leads(roots: Roots, project: Path, target: str):
    (project / "link").symlink_to(target)
    if target == ".":
        assert place(roots, "link/x") == str(project / "x")
    else:
        with pytest.raises(Refused, match="link"):
            place(roots, "link")


def test_links_that_lead_nowhere_are_refused_as_the_last_name_and_before_it(roots: Roots, project: Path):
    (project / "dangling").symlink_to("../outside/new")
    (project / "inside").symlink_to("not-yet")
    (project / "loop").symlink_to("loop")
    for path in ("dangling", "dangling/x", "inside", "inside/x/y", "loop", "loop/x"):
        with pytest.raises(Refused):
            place(roots, path)


def test_a_chain_of_more_links_than_the_kernel_follows_is_refused(roots: Roots, project: Path):
    (project / "end").write_text("x")
    for number in range(1500):
        (project / f"l{number}").symlink_to("end" if number == 0 else f"l{number - 1}")
    assert place(roots, "l30") == str(project / "end")
    with pytest.raises(Refused):
        place(roots, "l1499")


@pytest.mark.parametrize("path", ["missing/../x", "missing/../../outside/secret", "missing/.."])
def test_going_up_from_what_does_not_exist_is_refused(roots: Roots, path: str):
    with pytest.raises(Refused, match="does not exist"):
        place(roots, path)


def test_a_path_through_a_file_resolves_and_fails_when_opened(roots: Roots, project: Path):
    (project / "file").write_text("x")
    found = roots.place("file/x", Access.READ)
    with pytest.raises(ToolError, match="file/x: a part of the path is a file"):
        found.open_regular()


def test_the_same_words_tell_of_what_exists_outside_and_what_does_not(roots: Roots):
    told = set[str]()
    for name in ("secret", "nothing", "secret/x", "nothing/x"):
        with pytest.raises(Refused) as raised:
            place(roots, f"../outside/{name}")
        told.add(str(raised.value).replace(name, "NAME"))
    assert len(told) == 1


def test_tilde_variables_and_urls_are_refused_unless_they_are_names_here(roots: Roots, project: Path):
    for path in ("~/x", "$HOME/x", "file:///etc/passwd"):
        with pytest.raises(Refused):
            place(roots, path)
    (project / "~").mkdir()
    (project / "$HOME").mkdir()
    assert place(roots, "~/x") == str(project / "~" / "x")
    assert place(roots, "$HOME/x") == str(project / "$HOME" / "x")


@pytest.mark.skipif(ROOT_USER, reason="root may look everywhere")
def test_what_may_not_be_looked_into_is_refused(roots: Roots, project: Path):
    (project / "locked").mkdir(mode=0)
    with pytest.raises(Refused, match="permission denied"):
        place(roots, "locked/x")


def test_extra_directories_are_roots_too_and_relative_paths_mean_the_first(project: Path, outside: Path):
    with Roots(str(project), [str(outside)]) as roots:
        assert place(roots, f"{outside}/secret") == f"{outside}/secret"
        assert place(roots, "../outside/secret") == f"{outside}/secret"
        assert place(roots, "secret") == str(project / "secret")


def test_a_root_named_by_a_link_is_the_directory_it_leads_to(project: Path):
    alias = project.with_name("alias")
    alias.symlink_to(project)
    with Roots(str(alias)) as roots:
        assert roots.cwd == str(project)
        assert place(roots, f"{alias}/x") == str(project / "x")


def test_the_whole_machine_can_be_a_root():
    with Roots("/") as roots:
        assert place(roots, "etc") == "/etc"
        assert place(roots, "/") == "/"
        assert roots.place("etc", Access.READ).relative == "etc"


@pytest.mark.parametrize("path", ["missing", "file", "nul\0"])
def test_a_root_that_is_no_directory_is_an_error_naming_it(project: Path, path: str):
    (project / "file").write_text("")
    with pytest.raises(ConfigError, match="directory") as raised:
        Roots(str(project), [f"{project}/{path}"])
    assert raised.value.value == f"{project}/{path}"


def test_a_root_that_cannot_be_opened_leaves_no_other_one_open(project: Path):
    before = open_fds()
    with pytest.raises(ConfigError) as raised:
        Roots(str(project), [f"{project}/missing"])
    assert open_fds() <= before  # others may be closed meanwhile
    del raised


def test_a_root_stays_the_directory_it_was_when_its_name_is_taken_over(project: Path, outside: Path):
    (project / "file").write_text("inside")
    root = Root(str(project))
    project.rename(project.with_name("moved"))
    project.symlink_to(outside)
    fd = root.open_regular("file")
    assert os.read(fd, 10) == b"inside"
    os.close(fd)
    root.close()


def test_a_policy_is_asked_about_the_resolved_path_and_its_word_is_given_on(project: Path):
    (project / "alias").symlink_to("secrets")
    (project / "secrets").mkdir()

    def policy(path: str, access: Access) -> str | None:
        return "not for writing" if path.endswith("/secrets/key") and access is Access.WRITE else None

    with Roots(str(project), policy=policy) as roots:
        assert roots.resolve("alias/key", Access.READ) == str(project / "secrets" / "key")
        with pytest.raises(Refused, match="alias/key: not for writing"):
            roots.resolve("alias/key", Access.WRITE)
        assert roots.allows(str(project / "secrets" / "key"), Access.READ)
        assert not roots.allows(str(project / "secrets" / "key"), Access.WRITE)


def test_directories_are_made_all_or_none(project: Path):
    root = Root(str(project))
    assert root.make_directories("a/b/c") == ["a", "a/b", "a/b/c"]
    assert root.make_directories("a/b/d") == ["a/b/d"]
    assert root.make_directories(".") == []
    with pytest.raises(OSError, match="too long"):
        root.make_directories(f"new/{'x' * 300}")
    assert not (project / "new").exists()
    (project / "a/b/c/kept").write_text("")
    root.remove_directories(["a/b/c", "a/b/d"])
    assert sorted(os.listdir(project / "a/b")) == ["c"]
    root.close()


def test_a_closed_sandbox_opens_nothing(project: Path):
    roots = Roots(str(project))
    found = roots.place("x", Access.READ)
    roots.close()
    roots.close()
    with pytest.raises(ToolError, match="Bad file descriptor"):
        found.open_directory()


def test_a_type_that_is_no_path_is_the_callers_mistake(roots: Roots):
    with pytest.raises(AgentError) as raised:
        roots.place(None, Access.READ)
    assert isinstance(raised.value, ToolError)
    assert raised.value.failure.category is ToolErrorCategory.TYPE_MISMATCH


def test_a_folder_is_opened_once_whatever_it_is_called(tmp_path):
    pool = RootPool()
    (tmp_path / "link").symlink_to(tmp_path)
    assert pool.open(str(tmp_path)) is pool.open(str(tmp_path / "link"))
    pool.close()


def test_another_folder_at_the_path_is_opened_anew_and_the_former_stays_open_for_a_while(tmp_path):
    pool = RootPool()
    (tmp_path / "one").mkdir()
    former = pool.open(str(tmp_path / "one"))
    (tmp_path / "one").rename(tmp_path / "two")
    (tmp_path / "one").mkdir()
    now = pool.open(str(tmp_path / "one"))
    assert now.is_at(os.stat(tmp_path / "one"))
    assert former.is_at(os.stat(tmp_path / "two"))
    pool.close_replaced()
    assert now.is_at(os.stat(tmp_path / "one"))
    with pytest.raises(OSError, match="Bad file descriptor"):
        former.status(".")
    pool.close()


def test_roots_of_a_pool_leave_the_closing_to_it(tmp_path):
    pool = RootPool()
    (tmp_path / "a").write_text("a")
    one, other = (Roots(str(tmp_path), open_root=pool.open) for _ in range(2))
    with pytest.raises(Exception, match="missing"):
        Roots(str(tmp_path), [str(tmp_path / "missing")], open_root=pool.open)
    for roots in (one, other):
        os.close(roots.place("a", Access.READ).open_regular())
    pool.close()
    with pytest.raises(Exception, match="Bad file descriptor"):
        one.place("a", Access.READ).open_regular()


def test_a_closed_pool_opens_no_folder_again(tmp_path):
    pool = RootPool()
    pool.open(str(tmp_path))
    pool.close()
    with pytest.raises(OSError, match="the session was closed"):
        pool.open(str(tmp_path))
    with pytest.raises(ConfigError, match="the session was closed"):
        Roots(str(tmp_path), open_root=pool.open)
