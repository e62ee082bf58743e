"""kill -9 of a process that keeps outputs: what it acknowledged is there, byte for byte, and the file is whole."""

import subprocess
import sys

import pytest


def run(what: str, path, count: int) -> list[str]:
    writer = ("-m", "tests.unit.store.overflow_writer", what, str(path), str(count))
    command = [sys.executable, "-W", "ignore::DeprecationWarning", *writer]  # it forks beside threads, on purpose
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.splitlines()


def kills(path, count: int) -> int:
    rounds = [tuple(map(int, line.split())) for line in run("kills", path, count)]
    acknowledged, unacknowledged = map(sum, zip(*rounds, strict=True))
    print(f"\n{count} kills, {acknowledged} acknowledged texts, none lost; {unacknowledged} kept but not acknowledged")
    return acknowledged


def test_kills_in_the_middle_of_writes_lose_nothing_that_was_acknowledged(tmp_path):
    assert kills(tmp_path / "agent.db", 6) > 6


def test_kills_while_a_database_is_made_leave_one_that_works(tmp_path):
    assert run("births", tmp_path, 5) == ["5"]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_hundred_kills_lose_nothing_that_was_acknowledged(tmp_path):
    assert kills(tmp_path / "agent.db", 100) > 100


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_two_hundred_kills_while_a_database_is_made_leave_one_that_works(tmp_path):
    assert run("births", tmp_path, 200) == ["200"]
