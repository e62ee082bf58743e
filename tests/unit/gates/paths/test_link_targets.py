"""Where the links lead that a command makes, and which folders and files it names."""

from acp_agent.gates.paths.command_paths import path_words
from acp_agent.gates.paths.links import link_targets
from acp_agent.gates.paths.unnamed_paths import starting_points
from acp_agent.gates.shell.command import survey
from tests.rows import each_row

FOLDERS = ("d", "d/", ".")


@each_row(
    "text, targets",
    [
        ("cp -s a b", {}),
        ("ln a b", {}),
        ("ln -s --unknown a b", {}),
        ("ln -s ../a/b", {"../a/b": ("./../a/b",)}),
        ("ln -s a b", {"a": ("a",)}),
        ("gln -s a x/b", {"a": ("x/a",)}),
        ("ln -s a x/b/", {"a": ("x/a",)}),
        ("ln -s a d", {"a": ("d/a",)}),
        ("ln -sT a d", {"a": ("a",)}),
        ("ln -s --no-target-directory a d", {"a": ("a",)}),
        ("ln -sn a d", {"a": ("a", "d/a")}),
        ("ln -s a b d", {"a": ("d/a",), "b": ("d/b",)}),
        ("ln -s -t d a b", {"a": ("d/a",), "b": ("d/b",)}),
        ("ln -s --target-directory=d a", {"a": ("d/a",)}),
        ("ln -s /a b", {}),
        ("ln -s b b", {"b": ("b", "b")}),
    ],
)
def test_a_target_is_seen_from_the_folder_of_its_link(text: str, targets: dict[str, tuple[str, ...]]):
    assert link_targets(survey(text).commands[0], FOLDERS.__contains__) == targets


@each_row(
    "text, folders",
    [
        ("find", (".",)),
        ("find -H", (".",)),
        ("find -L -O3 -D tree", (".",)),
        ("find -D", (".",)),
        ("find a b -name x", ("a", "b")),
        ("find -P -D tree a ! -name x", ("a",)),
        ("find -name x", (".",)),
        ("find a , -name x", ("a",)),
    ],
)
def test_find_searches_the_folders_in_front_of_its_expression(text: str, folders: tuple[str, ...]):
    assert starting_points(tuple(text.split()[1:])) == folders


def test_the_target_of_a_redirection_is_a_path_if_it_is_known():
    for text, words in (("cat < a", {"a"}), ("cat > a", {"a"}), ("cat < $x", set()), ("cat > /dev/null", set())):
        assert set(path_words(survey(text).commands[0])) == words, text
