"""Where the links lead that a command makes, as `ln` reads its words."""

from acp_agent.gates.paths.links import link_targets
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
