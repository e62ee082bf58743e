"""Outputs of real tools through sanitize -> redact -> filter: what must survive, what must go, and how much it saves.

`pytest -s` prints a line for each output, and the total. docs/savings.md is the same in a table.
"""

from collections.abc import Iterator

import pytest

from acp_agent.output.filters.engine import FilterEngine
from tests.bench.outputs import FOLDER, Shown, outputs, shown
from tests.bench.savings import every_rule

OPT_IN = {"find", "grep-rg", "curl-wget", "du-df-ps", "linter"}
BY_DEFAULT = {
    *("cargo-build", "cargo-test", "cargo-clippy", "git-status", "git-diff", "git-log", "git-push", "ls", "log-dedup"),
    *("docker-build", "docker-compose", "npm-install", "pip-install", "make", "pytest", "go-test", "terraform-plan"),
    *("kubectl-get", "brew-install", "js-test"),
}


@pytest.fixture(scope="module")
def all_shown() -> Iterator[list[Shown]]:
    """Every output with the rules that are on by default, and those for an opt-in rule with it switched on."""
    default = FilterEngine()
    with every_rule() as engine:
        yield [shown(output, engine if output.opt_in else default) for output in outputs()]


def test_there_are_outputs_enough_most_of_them_really_printed_by_the_tools():
    made = [output.made for output in outputs()]
    assert set(made) == {"run", "hand"}
    assert len(made) >= 45
    assert made.count("run") >= 45
    assert {output.name for output in outputs()} == {path.stem for path in FOLDER.glob("*.txt")}


def test_what_must_survive_does(all_shown: list[Shown]):
    assert {each.output.name: each.lost for each in all_shown if each.lost} == {}
    assert all(each.output.must_survive for each in all_shown)


def test_what_must_survive_is_in_what_was_printed(all_shown: list[Shown]):
    added = {"lines left out", "4 conflict markers"}  # the filters' own notes
    wrong = {
        each.output.name: [text for text in each.output.must_survive if text not in each.clean and text not in added]
        for each in all_shown
    }
    assert {name: texts for name, texts in wrong.items() if texts} == {}


def test_of_the_lines_that_must_go_at_least_95_percent_do_and_most_of_every_output(all_shown: list[Shown]):
    noise = {each.output.name: each.noise for each in all_shown}
    due = sum(count for count, _ in noise.values())
    left = sum(len(lines) for _, lines in noise.values())
    print(f"\n{due} lines of noise, {due - left} gone: {1 - left / due:.2%}")
    assert due > 5000
    assert left / due <= 0.05
    assert {name: lines for name, (count, lines) in noise.items() if len(lines) > 0.7 * count} == {}
    told = {each.output.name for each in all_shown if each.output.must_go or each.output.once_at_most}
    assert [name for name in told if not noise[name][0]] == []  # an expression that finds nothing proves nothing


def test_every_output_is_shortened_as_much_as_it_has_to_be(all_shown: list[Shown]):
    print()
    for each in all_shown:
        rules = "+".join(each.rules) or "no rule"
        opt_in = " (opt-in)" if each.output.opt_in else ""
        sizes = f"{len(each.clean):>8,} -> {len(each.text):>7,}{each.saving:>8.1f} %"
        print(f"{each.output.name:30}{rules + opt_in:28}{sizes}")
    raw, left = sum(len(each.clean) for each in all_shown), sum(len(each.text) for each in all_shown)
    print(f"{len(all_shown)} outputs, {raw:,} characters -> {left:,}: {1 - left / raw:.1%} saved")
    assert {each.output.name: each.saving for each in all_shown if each.saving < each.output.least} == {}
    assert left < 0.25 * raw


def test_every_rule_has_an_output(all_shown: list[Shown]):
    used = {rule for each in all_shown for rule in each.rules}
    assert used >= BY_DEFAULT
    assert {each.output.opt_in for each in all_shown if each.output.opt_in} == OPT_IN
    assert all(each.output.opt_in in each.rules for each in all_shown if each.output.opt_in)


def test_by_default_the_opt_in_rules_are_off():
    engine = FilterEngine()
    for output in outputs():
        if output.opt_in:
            assert not OPT_IN.intersection(shown(output, engine).rules), output.name


def test_nothing_tells_of_the_machine_the_outputs_were_made_on():
    for path in FOLDER.glob("*.txt"):
        text = path.read_bytes().decode(errors="replace")
        for trace in (
            *(f"/{folder}/" for folder in ("tmp", "root", "work")),
            "npmjs.org",
            "pypi.org",
            "pythonhosted",
            "crates.io",
        ):
            assert trace not in text, f"{path.name}: {trace}"
