"""The folders of a session: opened once, closed with it, and never another one than the path names now."""

import os

import pytest

from acp_agent.core.types import Access
from acp_agent.workspace.roots import RootPool, Roots


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
