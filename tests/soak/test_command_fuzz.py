"""The differential fuzz at length: `make properties`."""

import shutil
import subprocess
import sys

import pytest

from acp_agent.core.types import Deny
from acp_agent.gates.blocklist import BlocklistPolicy, judge
from acp_agent.gates.shell.command import ShellText
from tests.unit.gates.differential import Bash, escapes, settings, strings

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


@pytest.mark.parametrize("seed", range(5))
def test_bash_sets_and_opens_nothing_that_a_plain_verdict_does_not_list(tmp_path, seed: int):
    plain, ran, escaped = escapes(Bash.install(tmp_path), list(settings(3000 + seed, 10_000)))
    print(f"\nseed {seed}: 10000 strings, {plain} plain, {ran} programs run, {len(escaped)} escapes")
    assert escaped == []


@pytest.mark.parametrize("seed", range(4))
def test_bash_runs_nothing_blocked_that_was_not_refused(tmp_path, seed: int):
    bash = Bash.install(tmp_path)
    texts = [text for text in strings(2000 + seed, 10_000) if "sudo" in text or "curl" in text]
    missed: list[str] = []
    for start in range(0, len(texts), 200):
        batch = texts[start : start + 200]
        for text, run in zip(batch, bash.run(batch), strict=True):
            ran = any(each.words[0] in ("sudo", "curl") for each in run.programs)
            if ran and not isinstance(judge(ShellText(text), BlocklistPolicy()), Deny):
                missed.append(text)
    assert missed == []


PARSER = """
import random, sys
from acp_agent.gates.shell.command import analyse, survey
from tests.unit.gates.differential import MARKS, WORDS
choose = random.Random(int(sys.argv[1]))
tokens = [*MARKS, *WORDS, *map(chr, range(1, 128)), "é", "漢", "\\U000b5566", "{\\U0010ffff", "<<é\\n"]
for _ in range(20000):
    text = "".join(choose.choice(tokens) for _ in range(choose.choice((3, 8, 20, 60, 200))))
    analyse(text)
    survey(text)
"""


@pytest.mark.parametrize("seed", range(4))
def test_no_text_ends_the_process(seed: int):
    subprocess.run([sys.executable, "-c", PARSER, str(seed)], check=True, timeout=1200)
