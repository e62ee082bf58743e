"""Against a real bash: what it runs and writes was listed, and what must not run was refused.

Tens of thousands of other strings: tests/soak/test_command_fuzz.py.
"""

import shutil

import pytest

from acp_agent.core.types import Deny
from acp_agent.gates.blocklist import BlocklistPolicy, judge
from acp_agent.gates.shell.command import ShellText
from tests.sizes import sized
from tests.unit.gates.differential import Bash, disguised, escapes, proven, settings, strings

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@pytest.mark.timeout(300)
def test_bash_runs_and_writes_nothing_that_a_plain_verdict_does_not_list(tmp_path):
    count = sized(600, 1500)
    plain, ran, escaped = escapes(Bash.install(tmp_path), list(strings(2025, count)))
    print(f"\n{count} strings: {plain} plain, {ran} programs run, {len(escaped)} escapes")
    assert plain > count / 10
    assert ran > count / 10
    assert escaped == []


@pytest.mark.timeout(300)
def test_bash_sets_and_opens_nothing_that_a_plain_verdict_does_not_list(tmp_path):
    count = sized(600, 1500)
    plain, ran, escaped = escapes(Bash.install(tmp_path), list(settings(2027, count)))
    print(f"\n{count} strings: {plain} plain, {ran} programs run, {len(escaped)} escapes")
    assert plain > count / 10
    assert ran > count / 10
    assert escaped == []


@pytest.mark.timeout(300)
def test_bash_runs_and_writes_nothing_that_a_plain_verdict_on_a_long_text_does_not_list(tmp_path):
    lines = [text for text in strings(2026, sized(2000, 6000)) if proven(text)]
    texts = ["\n".join(lines[at : at + 80]) for at in range(0, len(lines), 80)]
    texts += [f"ls {'evil ' * 9_000}{each}; evil2 x {'>f ' * 900}" for each in ("", "'", "a\n")]
    plain, ran, escaped = escapes(Bash.install(tmp_path), texts)
    print(f"\n{len(texts)} strings: {plain} plain, {ran} programs run, {len(escaped)} escapes")
    assert plain > 1
    assert escaped == []


@pytest.mark.timeout(300)
def test_bash_runs_nothing_blocked_that_was_not_refused(tmp_path):
    bash = Bash.install(tmp_path)
    texts = [text for text in strings(7, 1200) if "sudo" in text or "curl" in text]
    runs = bash.run(texts)
    ran = [
        text
        for text, each in zip(texts, runs, strict=True)
        if {"sudo", "curl"} & {one.words[0] for one in each.programs}
    ]
    print(f"\n{len(texts)} strings with a blocked word, {len(ran)} ran it")
    assert len(ran) > 25
    assert [text for text in ran if not isinstance(judge(ShellText(text), BlocklistPolicy()), Deny)] == []


@pytest.mark.timeout(300)
def test_a_blocked_program_is_refused_however_its_name_is_written(tmp_path):
    texts = list(disguised("sudo", 11, sized(300, 6000)))
    runs = Bash.install(tmp_path).run(texts)
    ran = [text for text, each in zip(texts, runs, strict=True) if "sudo" in {one.words[0] for one in each.programs}]
    assert len(ran) > len(texts) * 0.9
    assert [text for text in ran if not isinstance(judge(ShellText(text), BlocklistPolicy()), Deny)] == []
