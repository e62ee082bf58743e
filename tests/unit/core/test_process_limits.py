"""What programs get of our limits, and the tag that tells whose they are."""

import os
import platform
import resource
import signal
import subprocess
import sys

import psutil
import pytest

from acp_agent.core import process_limits
from acp_agent.core.process_limits import give_back_memory, limits_for_child, tag_of, tag_of_process

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_RTTIME")


def tag_of_a_daemon() -> int | None:
    command = "env -i setsid sh -c 'echo $$; exec sleep 60' & wait"
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdout is not None
        daemon = int(shell.stdout.readline())
        try:
            return tag_of_process(daemon)
        finally:
            os.kill(daemon, signal.SIGKILL)


@linux_only
def test_a_tag_stays_with_whatever_a_program_starts_and_this_process_has_none():
    before = resource.getrlimit(resource.RLIMIT_RTTIME)
    tag = tag_of("1.a")
    with limits_for_child(tag):
        found = tag_of_a_daemon()
    assert found == tag
    assert resource.getrlimit(resource.RLIMIT_RTTIME) == before
    assert tag_of_a_daemon() is None


def test_two_texts_have_two_tags_and_no_tag_ends_anything_soon():
    tags = {tag_of(f"1.{number:x}") for number in range(10_000)}
    assert len(tags) == 10_000
    years = min(tags) / 1e6 / 3600 / 24 / 365
    assert years > 10_000
    assert max(tags) < 2**62


@linux_only
@pytest.mark.parametrize("soft", [resource.RLIM_INFINITY, 200_000, 0])
def test_an_ordinary_limit_is_no_tag(soft: int):
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            resource.prlimit(process.pid, resource.RLIMIT_RTTIME, (soft, resource.RLIM_INFINITY))
            assert tag_of_process(process.pid) is None
        finally:
            process.kill()
    assert tag_of_process(process.pid) is None


def test_what_is_free_is_told_without_leaving_anything_open():
    lines = (
        "import resource",
        "from acp_agent.core.process_limits import DescriptorReserve, can_open",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
        "reserve = DescriptorReserve(1000)",
        "before = can_open(1)",
        "reserve.release()",
        "reserve.release()",
        "print(before, can_open(10), can_open(64), can_open(10))",
    )
    # In a process of its own: this one may have any number of files open.
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout == "False True False True\n"


def test_the_limit_is_raised_to_what_the_system_allows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process_limits, "_before", None)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = 200 + max(map(int, os.listdir("/dev/fd")))  # other tests may have left files open
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, limits[1]))
    try:
        process_limits.raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > low
        with limits_for_child(tag_of("1.a")):
            told = subprocess.run(["sh", "-c", "ulimit -n"], capture_output=True, text=True, check=True).stdout
        assert told == f"{low}\n"
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > low
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries cannot do it")
def test_memory_between_what_is_kept_is_given_back():
    pieces = [b"x" * 60_000 for _ in range(500)]  # so small that none is mapped by itself
    kept = pieces[::10]
    del pieces
    held = psutil.Process().memory_info().rss
    give_back_memory()
    assert held - psutil.Process().memory_info().rss > 10_000_000
    assert len(kept) == 50


LARGE_BLOCKS = """
import psutil
from acp_agent.core.process_limits import give_back_memory
give_back_memory()
first = b"x" * 10_000_000
del first  # from now on, glibc would keep blocks of up to that size for later
before = psutil.Process().memory_info().rss
blocks = [b"x" * 5_000_000 for _ in range(10)]
later = b"x" * 1000  # behind them, where the memory could not shrink
blocks.clear()
print(psutil.Process().memory_info().rss - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries cannot do it")
def test_large_blocks_are_given_back_when_they_are_freed():
    # In a process of its own: here, the blocks may lie in gaps that other tests have left.
    grown = subprocess.run([sys.executable, "-c", LARGE_BLOCKS], capture_output=True, text=True, check=True).stdout
    assert int(grown) < 10_000_000
