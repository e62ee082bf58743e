"""An answer's body: bounded before and after unpacking, and a text (T5.6, T5.17)."""

from collections.abc import AsyncIterable

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.net.charset import NoTextError, decoded
from acp_agent.net.content_type import ContentType
from acp_agent.net.unpacker import WrongPackingError, unpacker_of


class Body:
    """A body as it comes in.

    data       unpacked, and never longer than the limit, whatever is sent
    truncated  whether there was more, which only happens to those who asked for that
    """

    def __init__(self, host: str, encoding: str, limit: int, *, announced: int = 0, truncate: bool = False) -> None:
        """`limit` and `announced`, the Content-Length, are bytes; `truncate` is whether a beginning will do.

        Raises ToolError for a content-encoding that was not asked for, and for a length that is too large.
        """
        self._host = host
        self._limit = limit
        self._announced = announced
        self._truncate = truncate
        try:
            self._unpacker = unpacker_of(encoding)
        except WrongPackingError:
            raise self._wrongly_packed() from None
        self._received = 0
        self.data = bytearray()
        self.truncated = False
        if announced > limit and not truncate:
            raise self._too_large()

    async def read(self, chunks: AsyncIterable[bytes]) -> None:
        """Take it in, up to the limit. Raises ToolError when it is too large, or packed otherwise than it says."""
        async for chunk in chunks:
            self._take(chunk)
            if self._is_over():
                del self.data[self._limit :]
                if not self._truncate:
                    raise self._too_large()
                self.truncated = True
                return
            if self._unpacker and self._unpacker.ended:
                return
        if self._unpacker and not self._unpacker.complete:
            raise self._wrongly_packed()

    def _take(self, chunk: bytes) -> None:
        # One byte more than may be is enough to know: a bomb is never unpacked.
        room = self._limit + 1 - len(self.data)
        try:
            self.data += self._unpacker.unpack(chunk, room) if self._unpacker else chunk[:room]
        except WrongPackingError:
            raise self._wrongly_packed() from None
        self._received += len(chunk)

    def text(self, content_type: ContentType) -> str:
        """The body as text, by the charset its header or the page names. Raises ToolError when it is none."""
        try:
            data = bytes(self.data)
            return decoded(data, content_type.charset_of(data), cut=self.truncated)
        except NoTextError as error:
            message = f"the page of {self._host} {error}, so it is no text to read"
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, message) from None

    def _is_over(self) -> bool:
        """Whether there is more than the limit: of what was packed too, or it could go on for ever as nothing."""
        if len(self.data) == self._limit < self._announced:
            return True  # no need to wait for it
        return max(len(self.data), self._received) > self._limit

    def _too_large(self) -> ToolError:
        message = f"the page of {self._host} is larger than {self._limit} bytes, and nothing of it was kept"
        return ToolError(ToolErrorCategory.PERMANENT_FAILURE, message, "Ask for a smaller page, or a part of it.")

    def _wrongly_packed(self) -> ToolError:
        message = f"{self._host} sent a page with a wrong content-encoding"
        return ToolError(ToolErrorCategory.PERMANENT_FAILURE, message)
