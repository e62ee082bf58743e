"""The first answers on a stream that the editor made non-blocking."""

import json
import os
import select
from collections.abc import Iterator, Sequence

import pytest

from acp_agent import boot

_LINE = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": 1}}).encode()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    os.set_blocking(writes, False)
    yield reads, writes
    os.close(reads)
    os.close(writes)


def test_the_first_line_is_awaited_on_a_stream_that_does_not_block(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    line_out, answer_in = pipe
    pieces = [_LINE[:20], _LINE[20:] + b"\n"]

    def editor_writes(
        reads: Sequence[int], writes: Sequence[int], errors: Sequence[int]
    ) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        os.write(answer_in, pieces.pop(0))
        return reads, writes, errors

    monkeypatch.setattr(select, "select", editor_writes)
    answers, output = os.pipe()
    handover = boot.answer_first_line(line_out, output)
    assert handover.initialized == {"protocolVersion": 1}
    assert json.loads(os.read(answers, 65536))["id"] == 7
    os.close(answers)
    os.close(output)


def test_an_answer_waits_for_room_in_a_stream_that_does_not_block(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, output = pipe
    filled = 0
    while select.select([], [output], [], 0)[1]:
        filled += os.write(output, bytes(4096))
    read = bytearray()

    def editor_reads(
        reads: Sequence[int], writes: Sequence[int], errors: Sequence[int]
    ) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        read.extend(os.read(answers, filled))
        return reads, writes, errors

    monkeypatch.setattr(select, "select", editor_reads)
    line_out, line_in = os.pipe()
    os.write(line_in, _LINE + b"\n")
    handover = boot.answer_first_line(line_out, output)
    assert handover.initialized is not None
    assert json.loads(os.read(answers, 65536))["id"] == 7
    assert bytes(read) == bytes(filled)
    os.close(line_out)
    os.close(line_in)
