"""The differential fuzz at length: `make soak`."""

import shutil

import pytest

from acp_agent.core.types import Deny
from acp_agent.gates.blocklist import BlocklistPolicy, judge
from tests.unit.gates.differential import Bash, escapes, strings

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash"),
]


@pytest.mark.parametrize("seed", range(10))
def test_bash_runs_nothing_that_a_plain_verdict_does_not_list(tmp_path, seed: int):
    plain, ran, escaped = escapes(Bash.install(tmp_path), list(strings(1000 + seed, 10_000)))
    print(f"\nseed {seed}: 10000 strings, {plain} plain, {ran} programs run, {len(escaped)} escapes")
    assert escaped == []


@pytest.mark.parametrize("seed", range(4))
def test_bash_runs_nothing_blocked_that_was_not_refused(tmp_path, seed: int):
    bash = Bash.install(tmp_path)
    texts = [text for text in strings(2000 + seed, 10_000) if "sudo" in text or "curl" in text]
    missed: list[str] = []
    for start in range(0, len(texts), 200):
        batch = texts[start : start + 200]
        for text, records in zip(batch, bash.run(batch), strict=True):
            ran = any(record[0] in ("sudo", "curl") for record in records)
            if ran and not isinstance(judge(text, BlocklistPolicy()), Deny):
                missed.append(text)
    assert missed == []
