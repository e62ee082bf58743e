"""Which keys of the file of answers a call can have."""

from acp_agent.gates.grants import expected_key
from acp_agent.gates.shell import programs
from acp_agent.gates.shell.command import Plain, analyse
from tests.rows import each_row
from tests.unit.gates.everyday import COMMANDS


def test_whatever_always_keeps_is_a_key_for_both_answers():
    kept = set[str]()
    for text in COMMANDS:
        found = analyse(text)
        for command in found.commands if isinstance(found, Plain) else ():
            kept.add(" ".join(programs.prefix(command)))
    kept.discard("")
    assert len(kept) > 20
    for key in kept:
        assert expected_key("bash", key, allowed=True) == "", key
        assert expected_key("bash", key, allowed=False) == "", key


@each_row("key", ["git", "rm", "docker", "python", "python3.12", "unheard-of", "npm run", "make"])
def test_a_program_is_a_key_of_a_denial(key: str):
    assert expected_key("bash", key, allowed=False) == ""


@each_row(
    "key",
    [
        "git",
        "rm",
        "python",
        "unheard-of",
        "git push --force",
        "git  status",
        "/usr/bin/git status",
        "",
        " ",
        "bash",
        "*",
    ],
)
def test_a_key_that_always_never_keeps_allows_nothing(key: str):
    assert "'git status'" in expected_key("bash", key, allowed=True)


@each_row("key", ["rm -rf", "git push --force", "/bin/rm", "git*push", "", "env git", "make b a"])
def test_a_key_no_command_is_looked_up_by_denies_nothing(key: str):
    assert "a program" in expected_key("bash", key, allowed=False)


@each_row(
    "tool, key, sound",
    [
        ("fetch", "https://good.com/", True),
        ("web_scrape", "https://good.com:9/", True),
        ("fetch", "https://good.com", False),
        ("fetch", "good.com", False),
        ("fetch", "https://good.com/page", False),
        ("fetch", "", False),
        ("mcp_x_y", "anything", True),
    ],
)
def test_of_pages_the_key_is_a_site_and_of_other_tools_anything(tool: str, key: str, *, sound: bool):
    for allowed in (True, False):
        assert (expected_key(tool, key, allowed=allowed) == "") is sound
