"""Which rules a command line gets, from its text on."""

import pytest

from acp_agent.gates.shell.command import ShellText
from acp_agent.gates.shell.printing import printing_commands
from acp_agent.output.filters.rule import CommandMatcher
from acp_agent.output.filters.rule_file import built_in
from acp_agent.output.filters.rule_model import Match
from acp_agent.output.filters.strategy import CommandRun
from tests.rows import each_row


def rules_for(command: str) -> list[str]:
    run = CommandRun(command, printing_commands(ShellText(command)))
    return [rule.name for rule in built_in().rules if rule.matcher.matches(run)]


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
        ("cat /var/log/app.log", ["log-dedup"]),
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
        ("cmake --build .", []),
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


@pytest.mark.parametrize(
    ("command", "rules"),
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
