"""What gates take from command lines is on record, so that a change of it is seen."""

from difflib import unified_diff
from pathlib import Path

from tests.unit.gates.line_facts import Sessions, facts, read


def test_each_command_line_has_the_facts_on_record(tmp_path: Path):
    sessions = Sessions(tmp_path / "project")
    changed = {text: (told, found) for text, told in read().items() if told != (found := [*facts(text, sessions)])}
    diffs = ("\n".join((text, *unified_diff(*both, lineterm="", n=1))) for text, both in changed.items())
    advice = "if that is meant: python -m tests.unit.gates.line_facts, and read what `git diff` shows"
    assert not changed, f"{len(changed)} lines have other facts ({advice}), the first:\n{next(diffs)}"
