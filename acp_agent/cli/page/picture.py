"""Pictures, inside the page itself."""

import re

from acp_agent.cli.page.escaped import text
from acp_agent.cli.session_words import clipped
from acp_agent.core.types import ImagePart

_TYPES = {"image/png", "image/jpeg", "image/gif", "image/webp"}  # no SVG: that is a program
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_ROOM = 48 * 1024 * 1024
"""Base64 characters of all pictures of a page."""
_SMALLEST = 16


class Pictures:
    """Makes elements of pictures as long as the page has room for them: `room` in characters."""

    def __init__(self) -> None:
        self.room = _ROOM

    def html(self, picture: ImagePart) -> str:
        """An image of one of the four types; of anything else, and of what is too much, only the word."""
        if picture.mime_type not in _TYPES or len(picture.data) < _SMALLEST or not _BASE64.fullmatch(picture.data):
            return f'<p class="note">a picture that cannot be shown ({text(clipped(picture.mime_type, 60))})</p>'
        if len(picture.data) > self.room:
            return '<p class="note">a picture was left out: the page is full</p>'
        self.room -= len(picture.data)
        return f'<img alt="picture" src="data:{picture.mime_type};base64,{picture.data}">'
