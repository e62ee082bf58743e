"""Files of rules: what loads, what is skipped and how that is said."""

import json
import tomllib
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import cast

import pytest

from acp_agent.core.errors import ConfigError
from acp_agent.gates.shell.command import ShellText
from acp_agent.gates.shell.printing import printing_commands
from acp_agent.output.filters.rule_file import (
    SPECS,
    CommandMatcher,
    Match,
    RuleFile,
    built_in,
    filter_rules_schema,
    read_rules,
)
from acp_agent.output.filters.strategy import CommandRun, LinePatterns
from tests.rows import each_row

ENABLED = [
    *("cargo-build", "cargo-test", "cargo-clippy", "git-status", "git-diff", "git-log", "git-push", "ls", "log-dedup"),
    *(
        "docker-build",
        "docker-compose",
        "npm-install",
        "pip-install",
        "ctest",
        "make",
        "pytest",
        "go-test",
        "test-target",
    ),
    *("js-test", "terraform-plan", "kubectl-get", "brew-install", "install-log", "any-log"),
]
AFTER_ALL = {"install-log", "any-log"}  # for what is long after the other rules
LATER = ["find", "grep-rg", "curl-wget", "du-df-ps", "linter"]
GOOD = 'name = "good"\nmatch = { prefix = "x" }\nstrategy = { type = "dedup" }\n'


def written(tmp_path: Path, *rules: str) -> str:
    file = tmp_path / "filters.toml"
    file.write_text("".join(f"[[rules]]\n{rule}\n" for rule in rules))
    return str(file)


def test_the_built_in_rules_are_the_twenty_four_and_nothing_is_wrong_with_them() -> None:
    assert [rule.name for rule in built_in().rules] == ENABLED
    assert built_in().warnings == ()


def test_a_checked_file_with_the_built_in_rules_has_the_same_rules(tmp_path: Path) -> None:
    # The package's own are neither checked nor compiled before they are used.
    text = files("acp_agent.output.filters").joinpath("builtin.toml").read_text(encoding="utf-8")
    (tmp_path / "filters.toml").write_text(text, encoding="utf-8")
    checked = read_rules(str(tmp_path / "filters.toml"))
    assert checked is not None
    assert checked.warnings == ()
    assert [(each.name, each.restored, _told(each.matcher), _told(each.strategy)) for each in built_in().rules] == [
        (each.name, each.restored, _told(each.matcher), _told(each.strategy)) for each in checked.rules
    ]


def _told(made: object) -> object:
    """Return what an object was made of, with the source of each expression."""
    if isinstance(made, LinePatterns):
        return made.source
    inner = getattr(made, "__dict__", None)
    if inner is not None:
        return type(made), {name: _told(each) for name, each in inner.items()}
    if isinstance(made, list | tuple):
        return [_told(each) for each in cast("Iterable[object]", made)]
    return getattr(made, "pattern", made)


def test_the_five_later_rules_are_there_and_switched_off() -> None:
    table = tomllib.loads(files("acp_agent.output.filters").joinpath("builtin.toml").read_text())
    rules = RuleFile.model_validate(table).rules
    assert [rule.name for rule in rules if not rule.enabled] == LATER
    assert len(rules) == 29


@each_row(
    "name, numbers",
    [
        ("git-log", (20, 20, 0)),
        ("make", (80, 15, 25)),
        ("terraform-plan", (60, 10, 15)),
        ("kubectl-get", (50, 10, 10)),
        ("find", (100, 20, 10)),
        ("grep-rg", (80, 30, 10)),
        ("du-df-ps", (50, 20, 5)),
        ("linter", (80, 20, 15)),
    ],
)
def test_the_numbers_are_those_of_the_requirements(name: str, numbers: tuple[int, int, int]) -> None:
    table = tomllib.loads(files("acp_agent.output.filters").joinpath("builtin.toml").read_text())
    strategy = next(rule["strategy"] for rule in table["rules"] if rule["name"] == name)
    assert (strategy["max_lines"], strategy["head"], strategy["tail"]) == numbers


@each_row(
    "rule, said",
    [
        ('name = "a"\nmatch = { prefix = "x", regex = "y" }\nstrategy = { type = "dedup" }', "exactly one of exact"),
        ('name = "a"\nmatch = {}\nstrategy = { type = "dedup" }', "match = {}: expected exactly one of exact, prefix"),
        ('name = "a"\nmatch = { exact = "" }\nstrategy = { type = "dedup" }', 'match.exact = "": expected text'),
        (
            'name = "a"\nunless = "("\nmatch = { prefix = "x" }\nstrategy = { type = "dedup" }',
            'unless = "(": expected a reg',
        ),
        ('name = "a"\nmatch = { globb = "x" }\nstrategy = { type = "dedup" }', "only exact, prefix, regex"),
        (
            'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "nope" }',
            'strategy.type = "nope": expected one of',
        ),
        ('name = "a"\nmatch = { prefix = "x" }\nstrategy = { max_lines = 3 }', "expected a table with a type, one of"),
        ('name = "a"\nmatch = { prefix = "x" }', "strategy: expected it to be set"),
        (
            'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "strip_noise", patterns = [] }',
            "at least one value",
        ),
        (
            'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "strip_noise", patterns = ["a", "(?=b)"] }',
            'strategy.patterns[1] = "(?=b)": expected a regular expression',
        ),
        (
            'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "truncate", max_lines = 30, tail = 11 }',
            "expected head + tail from 1 to max_lines, which is 30 (head is 20, tail is 11)",
        ),
        (
            'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "truncate", max_lines = 9, head = 0, tail = 0 }',
            "which is 9 (head is 0, tail is 0)",
        ),
        (
            'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "truncate", max_lines = 30, head = -1 }',
            "strategy.head = -1: expected at least 0",
        ),
        (
            (
                'name = "a"\nmatch = { prefix = "x" }\n'
                'strategy = { type = "strip_annotated", patterns = ["x"], long_output_threshold = 9 }'
            ),
            "from 1 to long_output_threshold, which is 9 (keep_head is 10, keep_tail is 5)",
        ),
        (
            'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "truncate", max_lines = "30" }',
            'strategy.max_lines = "30": expected a whole number',
        ),
        (
            'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "truncate", max_lines = 90, haed = 3 }',
            "strategy.haed = 3: expected no such key, only max_lines, head, tail, keep",
        ),
        (
            'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "git_diff", max_diff_lines = 0 }',
            "strategy.max_diff_lines = 0: expected at least 1",
        ),
        (
            'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "test_summary", fallback = { max_lines = 3 } }',
            "strategy.fallback = ",
        ),
        (
            'name = "a"\nenabled = "yes"\nmatch = { prefix = "x" }\nstrategy = { type = "dedup" }',
            "expected true or false",
        ),
        ('name = "a"\nmatch = "x"\nstrategy = { type = "dedup" }', 'match = "x": expected a table'),
        (f'name = "a"\nmatch = {{ regex = "{"x" * 513}" }}\nstrategy = {{ type = "dedup" }}', "at most 512 characters"),
    ],
)
def test_a_rule_with_something_wrong_is_skipped_and_named_and_the_others_load(
    tmp_path: Path, rule: str, said: str
) -> None:
    path = written(tmp_path, rule, GOOD)
    loaded = read_rules(path)
    assert loaded is not None
    assert [each.name for each in loaded.rules] == ["good"]
    (warning,) = loaded.warnings
    assert warning.startswith(f"{path}: rule 1 (a) is skipped: ")
    assert said in warning


def test_a_rule_without_a_name_is_called_by_its_number(tmp_path: Path) -> None:
    loaded = read_rules(written(tmp_path, GOOD, 'match = { prefix = "x" }\nstrategy = { type = "dedup" }'))
    assert loaded is not None
    assert [warning.partition(": ")[2] for warning in loaded.warnings] == [
        "rule 2 is skipped: name: expected it to be set"
    ]


def heavy(count: int, letters: int) -> str:
    patterns = ", ".join(rf"'{number}\pL{{{letters}}}'" for number in range(count))
    return f'name = "heavy"\nmatch = {{ prefix = "x" }}\nstrategy = {{ type = "strip_noise", patterns = [{patterns}] }}'


def test_patterns_that_are_too_much_together_cost_the_rule_only(tmp_path: Path) -> None:
    loaded = read_rules(written(tmp_path, heavy(30, 10), GOOD))
    assert loaded is not None
    assert [rule.name for rule in loaded.rules] == ["good"]
    assert "rule 1 (heavy) is skipped: its patterns: expected fewer or simpler ones" in loaded.warnings[0]


def test_a_rule_has_at_most_a_hundred_patterns(tmp_path: Path) -> None:
    loaded = read_rules(written(tmp_path, heavy(101, 1)))
    assert loaded is not None
    assert loaded.warnings[0].endswith("expected at most 100 values")


def test_an_expression_too_large_for_re2_is_refused_at_once(tmp_path: Path) -> None:
    loaded = read_rules(written(tmp_path, heavy(1, 1000), GOOD))
    assert loaded is not None
    assert len(loaded.rules) == 1
    assert "pattern too large" in loaded.warnings[0]


@pytest.mark.soak
def test_a_file_made_to_compile_for_minutes_is_given_up_after_seconds(tmp_path: Path) -> None:
    loaded = read_rules(written(tmp_path, *[heavy(100, 40)] * 100))
    assert loaded is not None
    assert "on are skipped: expected expressions that compile faster" in loaded.warnings[-1]


def test_a_rule_that_is_switched_off_is_not_applied_but_checked(tmp_path: Path) -> None:
    off = GOOD + "enabled = false"
    wrong = 'name = "wrong"\nenabled = false\nmatch = { regex = "(" }\nstrategy = { type = "dedup" }'
    loaded = read_rules(written(tmp_path, off, wrong))
    assert loaded is not None
    assert loaded.rules == ()
    assert "rule 2 (wrong)" in loaded.warnings[0]


def test_other_tables_in_a_file_are_named(tmp_path: Path) -> None:
    file = tmp_path / "filters.toml"
    file.write_text("version = 2\nrules = 3\n")
    loaded = read_rules(str(file))
    assert loaded is not None
    assert [warning.removeprefix(f"{file}: ") for warning in loaded.warnings] == [
        "version: expected only [[rules]]",
        "rules = 3: expected a list of tables, [[rules]]",
    ]


def test_a_file_of_a_mebibyte_loads_and_one_byte_more_does_not(tmp_path: Path) -> None:
    file = tmp_path / "filters.toml"
    rule = f"[[rules]]\n{GOOD}"
    file.write_text(rule + "#" * (1024 * 1024 - len(rule)))
    loaded = read_rules(str(file))
    assert loaded is not None
    assert len(loaded.rules) == 1
    file.write_text(rule + "#" * (1024 * 1024 - len(rule) + 1))
    with pytest.raises(ConfigError, match="at most 1 MiB"):
        read_rules(str(file))


def test_the_schema_knows_every_strategy_and_the_longest_pattern() -> None:
    schema = json.loads(json.dumps(filter_rules_schema()))
    rule = schema["$defs"]["FilterRule"]["properties"]
    assert set(rule["strategy"]["discriminator"]["mapping"]) == set(SPECS)
    assert len(SPECS) == 9
    assert schema["$defs"]["StripNoiseSpec"]["properties"]["patterns"]["items"]["maxLength"] == 512
    assert schema["$defs"]["Match"]["maxProperties"] == 1
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_a_rule_that_makes_an_exception_loads_and_makes_it(tmp_path: Path) -> None:
    loaded = read_rules(written(tmp_path, GOOD + "unless = '-v'"))
    assert loaded is not None
    assert loaded.warnings == ()
    (rule,) = loaded.rules
    assert rule.matcher.matches(CommandRun("x -w", ("x -w",)))
    assert not rule.matcher.matches(CommandRun("x -v", ("x -v",)))


def rules_for(command: str) -> list[str]:
    run = CommandRun(command, printing_commands(ShellText(command)))
    return [rule.name for rule in built_in().rules if rule.matcher.matches(run) and rule.name not in AFTER_ALL]


@each_row(
    "command, rules",
    [
        ("cargo test", ["cargo-build", "cargo-test"]),
        ("cargo +nightly nextest run", ["cargo-build", "cargo-test"]),
        ("cargo clippy --all-targets -- -D warnings", ["cargo-build", "cargo-clippy"]),
        ("cargo build --release", ["cargo-build"]),
        ("cargo check", ["cargo-build"]),
        ("cargo run -- serve", ["cargo-build"]),
        ("cargo doc", ["cargo-build"]),
        ("cargo fmt", []),
        ("cargo tree", []),
        ("git status", ["git-status"]),
        ("git -C /srv/app --no-pager status -sb", ["git-status"]),
        ("git stash", []),
        ("git diff HEAD~1", ["git-diff"]),
        ("git difftool", []),
        ("git log --oneline", ["git-log"]),
        ("git log -10 --stat-of-the-art", ["git-log"]),
        ("git -p log -100", ["git-log"]),  # a pager, no patch
        ("git log -n 100", ["git-log"]),
        ("git log --max-count=12", ["git-log"]),
        ("git status -s && git log -5", []),  # the end of the text is the log
        ("git push origin main", ["git-push"]),
        ("git push -u origin feature/status", ["git-push"]),
        ("ls", ["ls"]),
        ("ls -la src", ["ls"]),
        ("lsof -i", []),
        ("find . -name '*.py'", ["ls"]),
        ("tree -L 2", ["ls"]),
        ("journalctl -u nginx", ["log-dedup"]),
        ("tail -n 100 -f app.txt", ["log-dedup"]),
        ("docker logs web", ["log-dedup"]),
        ("cat /var/log/app.log", []),
        ("cat app.logic", []),
        ("cat README.md", []),
        ("docker build -t x .", ["docker-build"]),
        ("docker buildx build .", ["docker-build"]),
        ("docker builder prune", []),
        ("docker compose up -d", ["docker-compose"]),
        ("docker composer", []),
        ("npm install", ["npm-install"]),
        ("npm ci --silent", ["npm-install"]),
        ("yarn add left-pad", ["npm-install"]),
        ("pnpm -w add x", ["npm-install"]),
        ("npm init", []),
        ("npm run install-hooks", []),
        ("pip install -r requirements.txt", ["pip-install"]),
        ("pip3 install x", ["pip-install"]),
        (".venv/bin/python -m pip install x", ["pip-install"]),
        ("pip list", []),
        ("make", ["make"]),
        ("make -j4 all", ["make"]),
        ("makefoo", []),
        ("make-kpkg", []),
        ("cmake --build .", ["make"]),
        ("ninja -C out", ["make"]),
        ("make -C sub test", ["test-target"]),
        ("tox -e py311", ["test-target"]),
        ("ctest --output-on-failure", ["ctest", "make"]),
        ("npm test", ["js-test"]),
        ("npm --silent run test:unit", ["js-test"]),
        ("npm run testing", []),
        ("pytest -q", ["pytest"]),
        ("python3.12 -W error -m pytest tests", ["pytest"]),
        ("pytest-watch", []),
        ("go test ./...", ["go-test"]),
        ("go testing", []),
        ("terraform plan", ["terraform-plan"]),
        ("terraform -chdir=infra apply", ["terraform-plan"]),
        ("kubectl get pods", ["kubectl-get"]),
        ("kubectl -n prod describe pod x", ["kubectl-get"]),
        ("kubectl apply -f x", []),
        ("brew install jq", ["brew-install"]),
        ("brew list", []),
        ("grep -r x .", []),
        ("curl https://example.com", []),
    ],
)
def test_a_simple_command_gets_its_rules(command: str, rules: list[str]) -> None:
    assert rules_for(command) == rules


@each_row(
    "command, rules",
    [
        ("cd x && cargo test 2>&1 | tail -50", ["cargo-build", "cargo-test"]),
        ("cd /srv/app && cargo clippy --workspace -- -D warnings 2>&1", ["cargo-build", "cargo-clippy"]),
        ("export CI=1; FOO=bar timeout 60 npm ci", ["npm-install"]),
        ("mkdir -p build && cd build && make", ["make"]),
        ("source .venv/bin/activate && python -m pytest -x | tee log", ["pytest"]),
        ("bash -c 'cd sub; go test ./...'", ["go-test"]),
        ("sudo docker build .", ["docker-build"]),
        ("uv run pytest", ["pytest"]),
        ("if true; then make; fi", ["make"]),
        ('cargo test --manifest-path "$DIR/Cargo.toml"', ["cargo-build", "cargo-test"]),
    ],
)
def test_what_stands_around_the_command_that_prints_does_not_matter(command: str, rules: list[str]) -> None:
    assert rules_for(command) == rules


@each_row(
    "command",
    [
        *(
            "git log -1",
            "git log -n 1",
            "git log -n1",
            "git log --max-count=1 --format=%B",
            "git log --oneline -1 HEAD~3",
        ),
        *("git log -p", "git log -3 -p", "git log -u", "git log --patch -- src", "git -C app log -p -2", "git log -U8"),
        *("git log --stat", "git log --stat=120 -30", "git log --patch-with-stat", "git log -L 1,20:a.py"),
    ],
)
def test_a_log_that_was_asked_for_in_full_is_not_truncated(command: str) -> None:
    assert rules_for(command) == []


@each_row(
    "command",
    [
        "cargo test | grep FAILED",
        "ls | wc -l",
        "git diff | awk '{print $1}'",
        "find . -name '*.py' | xargs cat",
        "git log | sort",
        "pytest > log; tail -100 log",
        "make > /dev/null && cat result.txt",
        "git status | jq .",
    ],
)
def test_what_another_command_selected_or_wrote_is_not_filtered(command: str) -> None:
    assert rules_for(command) == []


def test_a_summary_is_only_made_when_no_other_commands_words_would_be_lost() -> None:
    assert rules_for("cat notes.md; git status") == []
    assert rules_for("git diff; cat notes.md") == []
    assert rules_for("cat notes.md; make") == ["make"]  # truncating leaves both ends
    assert rules_for("make; cat notes.md") == []


@each_row(
    "command, rules",
    [
        ("npm test 2>&1 && npx eslint lib", ["js-test"]),
        ("npm run lint && npm test", ["js-test"]),
        ("pytest -q; ruff check . && python3 -m mypy src | tail -5", ["pytest"]),
        ("cargo fmt --check && cargo clippy && cargo test", ["cargo-build", "cargo-test"]),
        ("git status --short; go vet ./... && go test ./...", ["go-test"]),
        ("pytest -q; git diff", []),
        ("pytest -q; cat ruff.log", []),
        ("pytest -q && npm test", []),
        ("ruff check . && mypy src", []),
    ],
)
def test_tests_are_summed_up_also_beside_linters_and_builds(command: str, rules: list[str]) -> None:
    assert rules_for(command) == rules


def test_a_line_nobody_can_read_gets_only_rules_that_make_no_summary() -> None:
    assert printing_commands(ShellText("make 'x")) == ()
    assert rules_for("make 'x") == ["make"]
    assert rules_for("git status 'x") == []


def test_exact_is_the_whole_line_or_the_command() -> None:
    matcher = CommandMatcher(Match(exact="make -j && make check"), summary=True)
    assert matcher.matches(CommandRun("make -j && make check\n", ("make -j", "make check")))
    assert not matcher.matches(CommandRun("make -j", ("make -j",)))
    assert CommandMatcher(Match(exact="make"), summary=False).matches(CommandRun("cd x; make", ("make",)))
    assert not CommandMatcher(Match(exact="make"), summary=False).matches(CommandRun("make all", ("make all",)))


def test_a_prefix_ends_where_a_word_does() -> None:
    matcher = CommandMatcher(Match(prefix="docker build "), summary=False)
    assert matcher.matches(CommandRun("docker build", ("docker build",)))
    assert matcher.matches(CommandRun("docker build\t.", ("docker build\t.",)))
    assert not matcher.matches(CommandRun("docker builds", ("docker builds",)))


@pytest.mark.parametrize("match", [Match(exact="x -v"), Match(prefix="x"), Match(regex="^x")])
def test_a_command_a_rule_makes_an_exception_for_is_not_its_own(match: Match) -> None:
    matcher = CommandMatcher(match, summary=False, unless=r"\s-v(\s|$)")
    assert not matcher.matches(CommandRun("x -v", ("x -v",)))
    assert not matcher.matches(CommandRun("x -v"))
    assert CommandMatcher(match, summary=False, unless="-w").matches(CommandRun("x -v", ("x -v",)))
