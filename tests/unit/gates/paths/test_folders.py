"""The folders in which the commands of a line may run, compared with where bash runs them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from acp_agent.gates.gate import CommandFacts
from acp_agent.gates.paths.command_paths import MAX_WORDS, Folders
from acp_agent.gates.shell.command import Command, survey
from tests.unit.gates.chain import Chain, command, full_auto

PRELUDE = """
ls() { echo "${1%% *} $(pwd -P)" >&3; }
make() { echo "${1%% *} $(pwd -P)" >&3; test "$2" != fails; }
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("walk").resolve()
    for folder in ("work/a/b/c", "work/b/a", "home/a", "other/a"):
        (top / folder).mkdir(parents=True)
    (top / "work" / "link").symlink_to("a/b")
    return top / "work"


def ran_in(text: str, project: Path) -> list[tuple[str, str]]:
    """The numbers of the commands that bash ran, with their folders."""
    read, write = os.pipe()
    try:
        environ = {"HOME": str(project.parent / "home"), "PATH": os.environ["PATH"]}
        with open(os.devnull, "wb") as nothing:
            subprocess.run(
                ["bash", "-c", f"exec 3>/dev/fd/{write}\n{PRELUDE}{text}\nwait"],
                cwd=project, env=environ, check=False, pass_fds=(write,), timeout=20,
                stdin=nothing, stdout=nothing, stderr=nothing,
            )  # fmt: skip
    finally:
        os.close(write)
    with os.fdopen(read, encoding="utf-8") as told:
        return [(number, folder.strip()) for number, _, folder in (line.partition(" ") for line in told)]


def judged_in(text: str, project: Path) -> dict[str, set[str]] | None:
    """The folders in which each command may run; None if nobody can follow them.

    Of a text with a syntax error, such as `((cd a))`, the gates only guess commands, and the user is asked.
    """

    def is_folder(path: str) -> bool:
        return os.path.isdir(os.path.join(project, path))

    found: dict[str, set[str]] = {}
    facts = CommandFacts(text, is_folder=is_folder)
    steps = facts.steps
    if facts.survey.damage or any(step.folders.lost for step in steps):
        return None
    for step in steps:
        if step.command.name in ("ls", "make"):
            places = (
                os.path.join(project, each.replace("~", str(project.parent / "home"))) for each in step.folders.possible
            )
            found.setdefault(step.command.argv[1].split(" ")[0], set()).update(map(os.path.realpath, places))
    return found


def numbered(text: str) -> str:
    """The text with a number at every command that tells its folder."""
    parts = text.split("#")
    return "".join(f"{part}{number}" for number, part in enumerate(parts[:-1])) + parts[-1]


MOVES = st.sampled_from(["cd a", "cd b", "cd ..", "cd link", "cd ../b", "pushd a", "pushd b", "popd", "cd -", "cd a/b"])
ODD = st.sampled_from(
    ["cd", "cd none", "pushd", "pushd -n a", "pushd +1", "popd -n", "cd -P link", "cd a b", "cd $HOME"]
)
TELLS = st.sampled_from(["ls #", "make #", "make # fails", "ls #"])
SHORT = MOVES | ODD | TELLS
OPERATORS = st.sampled_from([" && ", "; ", " || ", " | ", " & "])


def lists(parts: st.SearchStrategy[str], operators: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.tuples(parts, operators), min_size=1, max_size=5).map(
        lambda pairs: "".join(part + operator for part, operator in pairs[:-1]) + pairs[-1][0]
    )


def bracketed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    forms = ["({})", "{{ {}; }}", "bash -c 'cd a && {}'", "command {}", "! {}", "time {}", "if {}; then ls #; fi"]
    whole = lists(inner, OPERATORS)
    return (
        whole
        | st.tuples(st.sampled_from(forms[:3]), whole).map(lambda pair: pair[0].format(pair[1]))
        | st.tuples(st.sampled_from(forms[3:]), SHORT).map(lambda pair: pair[0].format(pair[1]))
    )


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@settings(max_examples=settings.default.max_examples * 2)
@given(st.recursive(SHORT, bracketed, max_leaves=9))
@example("pushd a && popd && ls #")
@example("bash -c 'cd a && ls #' && ls #")
@example("false && { ls #; cd a; }; ls #")
@example("cd a | ls #; ls #")
@example("cd a & ls #")
@example("(cd a && ls #) && ls #")
@example("CDPATH=$HOME; cd a; ls #")
@example("pushd -n a; ls #; popd; ls #")
@example("false || cd a; cd -; ls #")
@example("! cd none && ls #")
@example("cd link && cd .. && ls # && cd -P link/.. && ls #")
@example("! cd a && cd b")
@example("cd a && cd a; cd -")
@example("pushd a && pushd a; popd; ls #; popd")
@example("cd a && { false && cd b; }; cd -; ls #")
@example("((cd a) && ls #)")
@example("(((cd a); ls #) && ls #)")
@example("((cd ..)) || cd a")
def test_bash_runs_no_command_in_a_folder_that_nobody_thought_of(project: Path, text: str):
    text = numbered(f"{text}; ls #")
    judged = judged_in(text, project)
    for number, folder in ran_in(text, project) if judged is not None else ():
        assert judged is not None
        if "$HOME" not in text:  # an unknown folder is asked about by its word
            assert folder in judged[number], (text, number, judged)


KNOWN = st.sampled_from(["cd a", "cd b", "cd ..", "pushd a", "popd", "cd -", "ls #", "ls #"])


def certain(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    whole = lists(inner, st.just(" && "))
    return whole | whole.map("({})".format) | whole.map("{{ {}; }}".format)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@given(st.recursive(KNOWN, certain, max_leaves=9))
@example("cd a && (cd b && ls #) && ls # && cd .. && ls #")
@example("pushd a && ls # && popd && ls # && cd b && cd - && ls #")
@example("((cd a && cd .. && cd a) && cd a)")
@example("((cd a) && cd a)")
def test_where_all_must_succeed_exactly_one_folder_is_thought_of(project: Path, text: str):
    text = numbered(f"{text} && ls #")
    assume(not survey(text).damage)
    judged = judged_in(text, project)
    assert judged is not None
    for number, folder in ran_in(text, project):
        assert judged[number] == {folder}, (text, number)


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    (tmp_path / "work" / "sub" / "deep").mkdir(parents=True)
    return Chain(os.fspath(tmp_path / "work"), os.fspath(tmp_path / "grants"), conduct=full_auto())


@pytest.mark.anyio
async def test_a_way_back_to_the_root_does_not_leave_the_workspace(chain: Chain):
    for text in (
        "cd sub && make && cd .. && make test",
        "cd sub; make; cd ..; make test",
        "git clone https://host.example/new && cd new && make && cd .. && make test",
        "cd new && make && cd .. && make test",
        "pushd sub && make && popd && make test",
        "cd sub && make && cd - && make test",
        "(cd sub && make) && make test",
        "cd sub && (cd deep && make) && cat ../Makefile",
        "cd sub; cat ../Makefile",
        "ls; cd sub && cat ../Makefile",
        "git -C sub/deep -C .. status",
        "git -C sub diff -- ../Makefile",
        "make -C sub/deep -C .. all",
    ):
        assert await chain.fate(command(text)) == "silent", text


@pytest.mark.anyio
async def test_a_way_that_only_seems_to_be_inside_is_refused(chain: Chain):
    for text in (
        "pushd sub && popd && cat ../x",
        "bash -c 'cd sub && ls' && cat ../x",
        "cd sub && cd - && cat ../x",
        "(cd sub && ls) && cat ../x",
        "echo $(cd sub && ls) && cat ../x",
        "CDPATH=/etc && cd ssl && cat openssl.cnf",
        "rm -r sub; cd sub; cat ../x",
        "cd sub > /nonexistent/x; cat ../x",
        "cd sub | cat; cat ../x",
        "cd new; make; cd ..; make test",
        "git -C sub -C ../.. status",
        "git -C sub diff -- ../../x",
        "make -C sub -f ../../x",
    ):
        assert await chain.fate(command(text)) == "refused", text


def test_a_folder_that_cannot_be_entered_is_not_taken_for_entered(project: Path):
    facts = CommandFacts("cd a; cat ../x", is_folder=lambda path: False)
    assert set(facts.steps[-1].folders.possible) == {"", "a"}


def test_a_pattern_is_known_until_it_stands_for_more_files_than_are_resolved():
    words = Command(("ls", "*"), patterns=frozenset("*"))
    for count, known in ((MAX_WORDS, True), (MAX_WORDS + 1, False)):
        names = [str(number) for number in range(count)]
        folders = Folders(lambda _, folder, names=names: names if folder == "a" else (), ("a", "b"))
        found = folders.matches("*", words)
        assert found == (tuple(f"a/{name}" for name in names) if known else None), count
