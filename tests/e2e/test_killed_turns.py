"""kill -9 in the middle of a conversation loses nothing the editor was told, and breaks nothing (security.md 3).

Two hundred kills: tests/soak/test_kill_turns.py.
"""

from itertools import islice

import pytest

from tests.e2e.killing import STARTS_WITHIN, Point, kill_and_look, points, story_model

pytestmark = pytest.mark.anyio

SEED = 7
LATEST = Point("plain", 10_000, 0.05)
"""While the last command of the story waits."""


@pytest.mark.timeout(120)
async def test_whenever_an_agent_is_killed_the_next_one_has_all_that_was_told_once_and_every_file_is_whole(tmp_path):
    async with story_model() as model:
        for number, point in enumerate((LATEST, *islice(points(SEED, 400, 1.8), 5))):
            print(f"\nseed {SEED}, kill {number}: {point}")
            outcome = await kill_and_look(tmp_path / str(number), model, point)
            print(outcome)
            assert outcome.loaded < STARTS_WITHIN
