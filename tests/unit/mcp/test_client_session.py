"""Results of calls, whatever their servers put in."""

import base64
import contextlib
import json
import struct
import zlib

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.mcp.client_session import MAX_BLOCKS, MAX_IMAGES, MAX_STRUCTURED, MAX_TEXT, read_reply
from acp_agent.tools.read import MAX_PICTURE
from tests.unit.mcp.test_definitions import JSON


def png(width=3, height=2):
    def chunk(kind, data=b""):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * height)) + chunk(b"IEND")


PNG = png()


def image(data):
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": "image/png"}


PART = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "resource", "resource_link", "audio", "x"])},
    optional={"text": JSON, "data": JSON, "resource": JSON, "uri": JSON},
)


@given(st.dictionaries(st.sampled_from(["content", "isError", "structuredContent"]), JSON | st.lists(PART | JSON)))
def test_whatever_a_result_holds_it_is_a_reply_or_a_clear_error(result):
    with contextlib.suppress(ValueError):
        reply = read_reply(result)
        assert len(reply.text) < MAX_TEXT + 100
        if reply.structured is not None:
            json.dumps(reply.structured, allow_nan=False)


def test_texts_are_joined_and_an_error_stays_one():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    reply = read_reply({"content": parts, "isError": True})
    assert (reply.text, reply.is_error) == ("a\nb", True)


def test_what_a_server_of_go_has_not_set_is_null() -> None:
    assert read_reply({"content": None, "isError": None, "structuredContent": None}) == read_reply({})


def test_structured_content_without_text_is_told_as_text_too():
    reply = read_reply({"content": [], "structuredContent": {"ä": 1}})
    assert (reply.text, reply.structured) == ('{"ä": 1}', {"ä": 1})


def test_structured_content_that_is_too_large_or_no_json_is_left_out():
    assert read_reply({"structuredContent": {"a": "x" * MAX_STRUCTURED}}).structured is None
    reply = read_reply({"structuredContent": {"a": float("inf")}})
    assert (reply.structured, "infinity" in reply.text) == (None, True)


def test_pictures_are_taken_by_what_they_are_not_by_what_they_are_called():
    reply = read_reply({"content": [image(PNG), image(b"<svg/>"), image(b"GIF89a")]})
    assert [picture.mime_type for picture in reply.images] == ["image/png"]
    assert reply.text.count("picture") == 2


def test_a_picture_that_is_too_large_or_one_too_many_is_left_out():
    huge = image(PNG + b"\0" * MAX_PICTURE)
    wide = image(png(9000))
    reply = read_reply({"content": [huge, wide, *[image(PNG)] * (MAX_IMAGES + 1)]})
    assert len(reply.images) == MAX_IMAGES
    assert reply.text.count("picture") == 3


def test_parts_beyond_the_limit_are_left_out():
    reply = read_reply({"content": [{"type": "text", "text": "x"}] * (MAX_BLOCKS + 5)})
    assert reply.text.endswith("[5 more parts left out]")
