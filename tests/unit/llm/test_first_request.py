"""The first request of a session stays small whatever API it goes to."""

import json

import pytest

from tests.bench.first_request import AIM, FORMATS, first_request, sent, whole_catalogue

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", FORMATS)
async def test_the_first_request_with_every_tool_stays_under_12_kilobytes(name):
    body = await sent(name)

    assert len(body) < AIM
    text = body.decode()
    assert all(f'"{spec.name}"' in text for spec in whole_catalogue())
    assert json.dumps(first_request().system, ensure_ascii=False) in text


async def test_two_sessions_of_one_folder_send_the_same_bytes():
    assert await sent("anthropic") == await sent("anthropic")
