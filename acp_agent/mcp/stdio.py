"""The stdio transport: one JSON message a line, over the pipes of a program that we started."""

from collections.abc import Mapping
from typing import Final

import anyio

from acp_agent.core.mcp import StdioServer
from acp_agent.mcp.lines import BrokenServerError, Lines
from acp_agent.mcp.program import Program
from acp_agent.mcp.wire import Wire

_LAST_WORDS: Final = 0.2
"""Seconds for what an ended program still had in its pipes."""


class StdioTransport:
    """Starts the program anew each time it serves."""

    def __init__(self, server: StdioServer, environment: Mapping[str, str]) -> None:
        self._server = server
        self._environment = environment

    async def serve(self, wire: Wire) -> None:
        try:
            program = await Program.start(self._server, self._environment)
        except (OSError, ValueError) as error:
            wire.lose(f"{self._server.command} cannot be started ({_why(error)})", final=True)
            return
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(program.drain)
                tasks.start_soon(_write, program, wire)
                async with anyio.create_task_group() as readers:
                    readers.start_soon(_read, program, wire, readers.cancel_scope)
                    await program.exited()
                    with anyio.move_on_after(_LAST_WORDS):
                        await wire.lost.wait()
                    readers.cancel_scope.cancel()
                with anyio.move_on_after(_LAST_WORDS):
                    await program.exited()  # it may only have closed its output; then there is no more to say
                wire.lose(f"the program {program.epitaph()}", said=program.last_words())
                tasks.cancel_scope.cancel()
        finally:
            await program.end()


def _why(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.strerror}: {error.filename}" if error.filename else error.strerror


async def _read(program: Program, wire: Wire, scope: anyio.CancelScope) -> None:
    """Take in lines until there are no more, or no more is wanted."""
    lines = Lines()
    try:
        while data := await program.read():
            for line in lines.feed(data):
                await wire.take(line)
    except BrokenServerError as error:
        wire.lose(f"the program {error}")
    scope.cancel()


async def _write(program: Program, wire: Wire) -> None:
    async for item in wire.outgoing:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            await program.write(f"{line}\n".encode())
        except OSError:  # it closed its stdin; that it ended, or what it still answers, is read elsewhere
            return
