"""One odd line of a project's file takes no tool away: what it says otherwise holds, and so does what the user says."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.load import MOST_ENTRIES, Flags, Loaded, load
from acp_agent.core.errors import ConfigError, Refused
from acp_agent.core.types import Access
from acp_agent.regex import LinearRegex
from acp_agent.session.toolset.settings import FolderRules, without_faulty_patterns

BAD = ["../x", "$HOME/x", "~nobody-at-all/x", "x" * 1025, "{a,b}" * 9, "[b-a]", "", "/a/../b", "a\\u0000b"]
Loading = Callable[..., Loaded]


@pytest.fixture
def loading(tmp_path: Path) -> Loading:
    """`loading(user=TOML, project=TOML, environ={...})`."""
    (tmp_path / "p" / ".acp-agent").mkdir(parents=True)

    def run(user: str = "", project: str = "", environ: dict[str, str] | None = None) -> Loaded:
        (tmp_path / "config.toml").write_text(user)
        (tmp_path / "p" / ".acp-agent" / "config.toml").write_text(project)
        private = {"ACP_AGENT_CONFIG": str(tmp_path / "config.toml"), "ACP_AGENT_DATA_DIR": str(tmp_path / "data")}
        return load(Flags(), private | (environ or {}), str(tmp_path / "p"))

    return run


def deny(*patterns: str) -> str:
    return "[tools.file]\ndeny_read = [" + ", ".join(f'"{pattern}"' for pattern in patterns) + "]\n"


@pytest.mark.parametrize("bad", [pattern for pattern in BAD if pattern])
def test_a_pattern_of_the_project_that_is_none_is_left_out_and_told(loading: Loading, tmp_path: Path, bad: str):
    loaded = loading(deny("users.txt"), deny("projects.txt", bad))
    with FolderRules(loaded, str(tmp_path / "p")).roots() as roots:
        for name in ("users.txt", "projects.txt"):
            with pytest.raises(Refused, match="deny_read"):
                roots.resolve(name, Access.READ)
        assert roots.resolve("free.txt", Access.READ)
    _, (fault,) = without_faulty_patterns(loaded, (str(tmp_path / "p"),))
    assert str(fault).startswith(f"{tmp_path}/p/.acp-agent/config.toml over ")
    assert fault.key == "tools.file.deny_read"
    assert str(fault).endswith("(ignored)")


def test_the_users_own_pattern_that_is_none_still_closes_all(loading: Loading, tmp_path: Path):
    for loaded in (
        loading(deny("../x"), deny("projects.txt")),
        loading("", deny("a.txt"), {"ACP_AGENT_TOOLS__FILE__DENY_READ": '["../x"]'}),
    ):
        with pytest.raises(ConfigError, match="a pattern without"):
            FolderRules(loaded, str(tmp_path / "p")).roots()


def test_patterns_that_are_too_much_together_leave_the_users(loading: Loading, tmp_path: Path):
    many = [f"{'?' * 900}{number}" for number in range(72)]
    loaded = loading(deny("users.txt"), deny(*many))
    with FolderRules(loaded, str(tmp_path / "p")).roots() as roots:
        with pytest.raises(Refused, match="deny_read"):
            roots.resolve("users.txt", Access.READ)
        assert roots.resolve("free.txt", Access.READ)
    _, (fault,) = without_faulty_patterns(loaded, (str(tmp_path / "p"),))
    assert "fewer or simpler patterns" in str(fault)


def test_choices_of_the_project_are_cut_before_they_are_all_compiled(
    loading: Loading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    loaded = loading(deny("users.txt"), deny(*(f"{'{a,b}' * 8}{number}" for number in range(256))))
    compiled: list[str] = []
    init = LinearRegex.__init__
    monkeypatch.setattr(LinearRegex, "__init__", lambda self, text: (compiled.append(text), init(self, text))[1])
    with FolderRules(loaded, str(tmp_path / "p")).roots() as roots:
        for name in ("users.txt", "aaaaaaaa0", "bbbbbbbb1"):
            with pytest.raises(Refused, match="deny_read"):
                roots.resolve(name, Access.READ)
        assert roots.resolve("aaaaaaaa2", Access.READ)
    assert len(compiled) < 5_000  # of 65,536
    _, (fault,) = without_faulty_patterns(loaded, (str(tmp_path / "p"),))
    assert "at most 512 choices in a project's patterns; this one and those after it (ignored)" in str(fault)


def test_choices_of_the_users_are_as_many_as_they_like(loading: Loading, tmp_path: Path):
    loaded = loading(deny(*(f"{'{a,b}' * 7}{number}" for number in range(8))), deny("{c,d}.txt"))
    with FolderRules(loaded, str(tmp_path / "p")).roots() as roots:
        for name in ("aaaaaaa7", "c.txt"):
            with pytest.raises(Refused, match="deny_read"):
                roots.resolve(name, Access.READ)


def test_a_list_of_the_project_is_cut_and_told(loading: Loading, tmp_path: Path):
    loaded = loading(deny("users.txt"), deny(*(f"p{number}.txt" for number in range(50_000))))
    (problem,) = loaded.problems
    assert str(problem).endswith(
        'tools.file.deny_read = ["p0.txt", "p1.txt", "p2.txt"]: expected at most 256 entries in a '
        "project's file; the other 49744 are ignored"
    )
    assert len(loaded.settings.tools.file.deny_read) == 1 + MOST_ENTRIES
    with FolderRules(loaded, str(tmp_path / "p")).roots() as roots:
        for name in ("users.txt", "p0.txt", f"p{MOST_ENTRIES - 1}.txt"):
            with pytest.raises(Refused, match="deny_read"):
                roots.resolve(name, Access.READ)


def test_a_list_of_the_users_is_as_long_as_they_like(loading: Loading):
    loaded = loading(deny(*(f"u{number}.txt" for number in range(1000))))
    assert not loaded.problems
    assert len(loaded.settings.tools.file.deny_read) == 1000


def test_protected_paths_of_the_project_hold_without_the_bad_ones(loading: Loading, tmp_path: Path):
    paths = '[tools.protection]\nprotected_paths = ["deploy.sh", "../x", "~nobody-at-all/x"]\n'
    found = FolderRules(loading("", paths), str(tmp_path / "p")).protected
    assert found.find(f"{tmp_path}/p/deploy.sh") is not None
    assert found.find(f"{tmp_path}/p/other.sh") is None


@given(
    st.lists(st.sampled_from(["a.txt", "b.txt", "c.txt"]), max_size=2),
    st.lists(st.sampled_from(["a.txt", "b.txt", "c.txt", "d.txt", *filter(None, BAD)]), max_size=5),
)
def test_no_project_can_make_readable_what_the_user_denies_nor_take_all_away(
    tmp_path_factory: pytest.TempPathFactory, users: list[str], projects: list[str]
):
    folder = tmp_path_factory.mktemp("world").resolve()
    (folder / ".acp-agent").mkdir()
    (folder / "user.toml").write_text(deny(*users))
    (folder / ".acp-agent" / "config.toml").write_text(deny(*projects))
    loaded = load(Flags(config=str(folder / "user.toml")), {"ACP_AGENT_DATA_DIR": str(folder / "data")}, str(folder))
    with FolderRules(loaded, str(folder)).roots() as roots:
        for name in ("a.txt", "b.txt", "c.txt", "d.txt", "e.txt"):
            denied = name in users or name in projects
            assert roots.allows(str(folder / name), Access.READ) is not denied


@pytest.mark.parametrize("bad", [pattern for pattern in BAD if pattern])
def test_a_pattern_of_the_project_that_is_none_takes_no_wall_away(loading: Loading, tmp_path: Path, bad: str):
    for wish in (deny(bad), f'[tools.protection]\nprotected_paths = ["{bad}"]\n'):
        walls = FolderRules(loading("", wish), str(tmp_path / "p")).walls()
        assert walls is not None
        assert walls.roots == (str(tmp_path / "p"),)
