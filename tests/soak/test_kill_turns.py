"""Two hundred agents killed at random points of a story (issue 7, "done when"; security.md 3)."""

import shutil
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

import pytest

from tests.e2e.killed_story import story_model
from tests.e2e.killing import END, STARTS_WITHIN, Outcome, kill_and_look, points

pytestmark = [pytest.mark.anyio, pytest.mark.soak, pytest.mark.timeout(1800)]

KILLS = 50


@pytest.mark.parametrize("seed", [11, 12, 13, 14])
async def test_fifty_killed_agents_lose_nothing_that_was_told_and_leave_nothing_half_done(tmp_path, seed):
    outcomes: list[Outcome] = []
    async with story_model() as model:
        whole = await kill_and_look(tmp_path / "whole", model, END, cold=True)
        for number, point in enumerate(islice(points(seed, whole.frames, whole.told), KILLS)):
            folder = tmp_path / f"{number}"
            print(f"\nseed {seed}, kill {number} of a story of {whole.frames} frames, {whole.told:.2f} s: {point}")
            outcomes.append(await kill_and_look(folder, model, point, cold=True))
            print(outcomes[-1])
            shutil.rmtree(folder)
    print(f"\nseed {seed}: killed during {dict(Counter(outcome.during for outcome in outcomes))}")
    print(f"seconds until session/load was answered: {spread(each.loaded for each in outcomes)}")
    print(f"seconds until no process was left: {spread(each.gone for each in outcomes)}")
    print(f"temporary files left: {sum(each.left for each in outcomes)}")
    assert max(each.loaded for each in outcomes) < STARTS_WITHIN


def spread(samples: Iterable[float]) -> str:
    """Median, 95 of 100, the worst."""
    cuts: Sequence[float] = statistics.quantiles(found := sorted(samples), n=20)
    return f"median {statistics.median(found):.3f}, p95 {cuts[-1]:.3f}, worst {found[-1]:.3f}"
