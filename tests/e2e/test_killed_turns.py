"""kill -9 in the middle of a conversation loses nothing the editor was told, and breaks nothing.

A thousand kills, and more: `make soak`.
"""

from itertools import islice

import pytest

from tests.e2e.killed_story import story_model
from tests.e2e.killing import END, STARTS_WITHIN, kill_and_look, points
from tests.fakes.short_waits import SILENT

pytestmark = pytest.mark.anyio

SEED = 7


@pytest.mark.timeout(300)
async def test_whenever_an_agent_is_killed_the_next_one_has_all_that_was_told_once_and_every_file_is_whole(tmp_path):
    async with story_model() as model:
        whole = await kill_and_look(tmp_path / "whole", model, END, short_waits=SILENT)
        for number, point in enumerate(islice(points(SEED, whole.frames, whole.told), 2)):
            print(f"\nseed {SEED}, kill {number}: {point}")  # shown when it fails
            outcome = await kill_and_look(tmp_path / str(number), model, point, short_waits=SILENT)
            print(outcome)
            assert outcome.loaded < STARTS_WITHIN
