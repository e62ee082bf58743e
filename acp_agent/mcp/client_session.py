"""A session with an MCP server: the handshake, the list of its tools, calls and pings.

The `mcp` package does the handshake and matches answers to requests. This module reads lists and results part by part,
so that one invalid tool does not make the others unusable. Results are not validated by a server's own schemas.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, Self, cast

import anyio.to_thread
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.types import (
    CONNECTION_CLOSED,
    ClientCapabilities,
    ElicitationCapability,
    FormElicitationCapability,
    Implementation,
    InitializedNotification,
    InitializeRequest,
    InitializeRequestParams,
    InitializeResult,
    UrlElicitationCapability,
)
from pydantic import ValidationError

from acp_agent import __version__
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.mcp import McpReply, McpServer
from acp_agent.core.types import ImagePart, Json, JsonObject
from acp_agent.mcp.channel import MessageChannel
from acp_agent.mcp.connection import AnsweredError, connection_lost, lost_in_call
from acp_agent.mcp.definitions import ToolListing
from acp_agent.mcp.elicitation import ServerElicitations
from acp_agent.text import visible
from acp_agent.tools.read import MAX_PICTURE, picture_of

MAX_TEXT: Final = 1024 * 1024
"""The longest text of a reply, in characters."""
MAX_STRUCTURED: Final = 1024 * 1024
"""The largest structured content, in bytes of JSON."""
MAX_IMAGES: Final = 10
MAX_BLOCKS: Final = 1000
_SHORT: Final = 200


def read_reply(result: JsonObject) -> McpReply:
    """Return the reply in a `tools/call` result.

    Raises:
        ValueError: the result has a wrong form; the message says how.

    """
    content, failed = result.get("content"), result.get("isError")
    content = [] if content is None else content  # Go writes an empty list as null
    failed = False if failed is None else failed
    match content, failed:
        case list(), bool():
            reading = _ReplyParts()
        case _:
            raise ValueError("its content is not a list, or its isError is not a boolean")
    for block in content[:MAX_BLOCKS]:
        reading.add(block)
    if len(content) > MAX_BLOCKS:
        reading.texts.append(f"[{len(content) - MAX_BLOCKS} more parts left out]")
    structured = _structured(result.get("structuredContent"), reading)
    if structured is not None and not reading.texts:
        reading.texts.append(json.dumps(structured, ensure_ascii=False))
    return McpReply(_bounded(reading.texts), tuple(reading.images), structured, failed)


class _ReplyParts:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.images: list[ImagePart] = []

    def add(self, block: Json) -> None:
        match block:
            case {"type": "text", "text": str(text)}:
                self.texts.append(text)
            case {"type": "image", "data": str(data)}:
                self._add_image(data)
            case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
                self.texts.append(f"[resource {_short(uri)}]\n{text}")
            case {"type": "resource", "resource": {"uri": str(uri)}}:
                self.texts.append(f"[resource {_short(uri)}: binary, left out]")
            case {"type": "resource_link", "uri": str(uri)}:
                self.texts.append(f"[link to a resource: {_short(uri)}]")
            case {"type": "audio"}:
                self.texts.append("[audio, left out]")
            case _:
                self.texts.append("[a part of unknown kind, left out]")

    def _add_image(self, data: str) -> None:
        try:
            raw = base64.b64decode(data, validate=True) if len(data) <= MAX_PICTURE * 4 // 3 + 4 else b""
        except (binascii.Error, ValueError):
            raw = b""
        picture = picture_of(raw)
        if picture is None or len(raw) > MAX_PICTURE or len(self.images) == MAX_IMAGES:
            self.texts.append(
                "[a picture that cannot be shown: too large, one too many, or not PNG, JPEG, GIF or WebP]"
            )
        elif picture.trouble:
            self.texts.append(f"[a {picture.trouble} picture, left out]")
        else:
            self.images.append(ImagePart(data, picture.mime_type))


def _structured(value: Json, reading: _ReplyParts) -> JsonObject | None:
    if not isinstance(value, dict):
        if value is not None:
            reading.texts.append("[structured content that is not an object, left out]")
        return None
    try:
        size = len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    except ValueError:
        reading.texts.append("[structured content with NaN or infinity, left out]")
        return None
    if size > MAX_STRUCTURED:
        reading.texts.append(f"[structured content of {size} bytes, left out]")
        return None
    return value


def _bounded(texts: Iterable[str]) -> str:
    text = "\n".join(texts)
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n[cut: {len(text) - MAX_TEXT} more characters]"


def _short(text: str) -> str:
    shown = visible(text[:_SHORT])
    return shown if len(text) <= _SHORT else f"{shown}…"


VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The versions of MCP that begin with a handshake. The client asks for the last one."""

_MAX_PAGES: Final = 20
_LONGEST_CURSOR: Final = 4096
_REPLY_CATEGORIES: Final = frozenset({ToolErrorCategory.INVALID_PARAMETERS, ToolErrorCategory.PERMANENT_FAILURE})


class McpClientSession:
    """A session with one server. Use it as an async context manager in one task; any task may call it.

    questions   says which kinds of elicitation to offer to the server
    """

    def __init__(self, server: McpServer, channel: MessageChannel, questions: ServerElicitations) -> None:
        self._server = server
        self._questions = questions
        self._channel = channel
        self._dispatcher = JSONRPCDispatcher(channel.incoming, channel)
        # Without callbacks the session offers neither sampling nor roots. The channel handles elicitation.
        self._session = ClientSession(dispatcher=self._dispatcher)

    async def __aenter__(self) -> Self:
        await self._session.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.__aexit__(kind, error, trace)

    @property
    def alive(self) -> bool:
        """Return True while the connection is not known to be lost."""
        return not self._channel.lost.is_set()

    def close(self) -> None:
        """End all calls that wait for an answer."""
        self._channel.mark_lost("the agent has closed it")

    async def open(self) -> None:
        """Do the handshake. Raises ToolError."""
        elicitor = self._questions.elicitor  # offer only the kinds of elicitation that the editor has
        form = FormElicitationCapability() if elicitor is not None and elicitor.forms else None
        url = UrlElicitationCapability() if elicitor is not None and elicitor.visits else None
        request = InitializeRequest(
            params=InitializeRequestParams(
                protocol_version=VERSIONS[-1],
                capabilities=ClientCapabilities(
                    elicitation=ElicitationCapability(form=form, url=url) if form or url else None
                ),
                client_info=Implementation(name="acp-agent", version=__version__),
            )
        )
        try:
            result = await self._session.send_request(request, InitializeResult)
            if result.protocol_version not in VERSIONS:
                message = f"MCP server {self._server.name} speaks a version of MCP that this agent does not know"
                raise ToolError.permanent(message)
            self._session.adopt(result)
            await self._session.send_notification(InitializedNotification())
        except MCPError as error:
            raise self._error(error) from None
        except ValidationError:
            raise self._unreadable("its initialize result has a wrong form") from None

    async def tools(self) -> ToolListing:
        """Return the server's tools, read page by page up to the limits. Raises ToolError."""
        listing = ToolListing(self._server)
        capabilities = self._session.server_capabilities
        if capabilities is None or capabilities.tools is None:
            return listing
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await self._ask("tools/list", {} if cursor is None else {"cursor": cursor})
            tools, following = page.get("tools"), page.get("nextCursor")
            if tools is None and "tools" in page:  # Go writes an empty list as null, and no cursor as an empty text
                tools = []
            if not isinstance(tools, list):
                raise self._unreadable("its list of tools is not a list")
            await anyio.to_thread.run_sync(listing.add, tools)  # takes up to 0.2 s on a slow machine
            if following in (None, "") or listing.full:
                return listing
            if not isinstance(following, str) or len(following) > _LONGEST_CURSOR or following == cursor:
                listing.note("its list of tools names a next page that it does not have")
                return listing
            cursor = following
        listing.note(f"only the first {_MAX_PAGES} pages of its list of tools were read")
        return listing

    async def call(self, tool: str, arguments: JsonObject) -> McpReply:
        """Run a tool and return its reply. Raises ToolError. If the call is cancelled, the server is notified.

        The request is sent without waiting for anything first. An error from the server is returned as a reply, so
        that its text is shown as the server's words.
        """
        try:
            result = await self._ask("tools/call", {"name": tool, "arguments": arguments}, effects=True)
        except AnsweredError as error:
            failure = None if error.failure.category in _REPLY_CATEGORIES else error.failure
            return McpReply(error.said or error.failure.message, is_error=True, failure=failure)
        try:
            return read_reply(result)
        except ValueError as error:
            raise self._unreadable(str(error)) from None

    async def ping(self) -> None:
        """Check that the server answers. Raises ToolError if it does not.

        An error is an answer too, unless its code means a lost connection or a timeout.
        """
        try:
            await self._dispatcher.send_raw_request("ping", None)
        except MCPError as error:
            said = self._error(error)
            lost = {ToolErrorCategory.NETWORK_ERROR, ToolErrorCategory.TIMEOUT}
            if said.failure.category in lost or error.code == CONNECTION_CLOSED:
                raise said from None

    async def _ask(self, method: str, params: JsonObject, *, effects: bool = False) -> JsonObject:
        headers = {"mcp-protocol-version": self._session.protocol_version or ""}
        try:
            raw = await self._dispatcher.send_raw_request(
                method, cast("Mapping[str, object]", params), {"headers": headers}
            )
        except MCPError as error:
            raise self._error(error, effects=effects) from None
        return cast("dict[str, Json]", raw)  # the channel has parsed it as JSON

    def _unreadable(self, why: str) -> ToolError:
        return ToolError.permanent(f"MCP server {self._server.name} gave a result that cannot be read: {why}")

    def _error(self, error: MCPError, *, effects: bool = False) -> ToolError:
        failure = self._channel.take_failure(error.code)
        if failure is not None:
            return ToolError(failure.category, failure.message, failure.suggestion)
        if error.code == CONNECTION_CLOSED and self._channel.lost.is_set():
            lost = lost_in_call if effects else connection_lost
            return lost(self._server.name, self._channel.reason)
        return AnsweredError(self._server.name, error.code, error.message)
