import re
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.workspace.processes.terminal import CommandOutput, HeadTail, Stream
from acp_agent.workspace.text_files import WINDOWS_BYTES
from tests.sizes import sized

GAP = re.compile(r"\n\[\.\.\. (\d+) bytes left out \.\.\.\]\n")


def captured(limit: int, *chunks: str) -> HeadTail:
    kept = HeadTail(limit)
    for chunk in chunks:
        kept.add(chunk.encode())
    return kept


def test_what_fits_is_kept_as_it_is():
    kept = captured(10, "01234", "56789")
    assert kept.text() == "0123456789"
    assert not kept.truncated


def test_what_does_not_fit_leaves_its_head_and_tail_and_the_size_of_the_gap():
    kept = captured(10, "abcdefgh", "ijklmnop")
    assert kept.text() == "abcde\n[... 6 bytes left out ...]\nlmnop"
    assert kept.truncated


def test_no_character_is_cut_in_two():
    text = "é" * 20
    assert captured(11, text).text() == "éé\n[... 30 bytes left out ...]\néé" + "é"
    assert captured(9, *text).text() == "éé\n[... 32 bytes left out ...]\néé"


@given(
    chunks=st.lists(st.text(max_size=20), max_size=20),
    limit=st.integers(min_value=0, max_value=100),
)
@example(chunks=["\x80"], limit=1)
def test_head_and_tail_are_the_ends_of_the_whole_and_the_gap_is_counted(chunks: list[str], limit: int):
    whole = "".join(chunks)
    if GAP.search(whole):
        return
    try:
        kept = captured(limit, *chunks)
    except UnicodeEncodeError:
        return
    text = kept.text()
    if not kept.truncated:
        assert text == whole
        return
    found = GAP.search(text)
    assert found is not None
    head, tail = text[: found.start()], text[found.end() :]
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len((head + tail).encode()) <= limit
    assert len((head + tail).encode()) + int(found[1]) == len(whole.encode())
    longest = max((len(word.encode()) for word in re.split(r"[ \t\n]", whole)), default=0)
    assert limit - len((head + tail).encode()) <= 6 + 2 * longest  # a character and a word at each side of the gap


def test_no_word_beside_the_gap_is_cut_in_two():
    """Half of a secret is one that nobody recognises."""
    whole = [f"word{number:02} token-of-ten\n" for number in range(40)]
    for limit in range(80, 400):
        kept = captured(limit, *whole).text()
        assert set(GAP.sub(" ", kept).split()) <= set("".join(whole).split()), limit


@pytest.mark.parametrize("size", [1, 100, 65536])
def test_a_long_output_costs_no_more_memory_than_its_limit(size: int):
    kept, chunk = HeadTail(20_000), b"x" * size
    tracemalloc.start()
    try:
        for _ in range(max(5, sized(60_000, 300_000) // size)):
            kept.add(chunk)
        assert tracemalloc.get_traced_memory()[1] < 250_000
    finally:
        tracemalloc.stop()
    assert len(kept.text()) < 20_100


def transcript(limit: int, *spoken: tuple[Stream, bytes]) -> tuple[str, str, str]:
    made = CommandOutput(limit, limit)
    for stream, data in spoken:
        made.add(stream, data)
    for stream in Stream:
        made.add(stream, b"", final=True)
    return made.both.text(), made.apart[Stream.STDOUT].text(), made.apart[Stream.STDERR].text()


OUT, ERR = Stream.STDOUT, Stream.STDERR


def test_streams_are_kept_as_they_came_and_apart():
    assert transcript(100, (OUT, b"1"), (ERR, b"2"), (OUT, b"3")) == ("123", "13", "2")
    assert transcript(100, (ERR, b"1"), (ERR, b"2")) == ("12", "", "12")
    assert transcript(100, (OUT, b"1")) == ("1", "1", "")
    assert transcript(100) == ("", "", "")


def test_a_character_split_between_reads_is_put_together_even_when_the_other_stream_speaks_in_between():
    assert transcript(100, (OUT, b"\xc3"), (ERR, b"!"), (OUT, b"\xa9")) == ("!é", "é", "!")
    assert transcript(100, (OUT, b"a\xe2\x82")) == ("aâ‚", "aâ‚", "")


def test_what_is_not_utf_8_is_windows_1252_as_in_files_without_controls():
    assert transcript(100, (OUT, b"caf\xe9 \x80\x9d\xff")) == ("café €\ufffdÿ", "café €\ufffdÿ", "")


def test_little_on_one_stream_survives_much_on_the_other():
    output, stdout, stderr = transcript(20, (OUT, b"x" * 100), (ERR, b"error"), (OUT, b"y" * 100))
    assert stderr == "error"
    assert "error" not in output
    assert stdout.startswith("x" * 10)
    assert stdout.endswith("y" * 10)


@given(st.lists(st.tuples(st.sampled_from(Stream), st.binary(max_size=6)), max_size=20))
def test_each_stream_is_what_decoding_it_alone_gives(spoken: list[tuple[Stream, bytes]]):
    _, stdout, stderr = transcript(10_000, *spoken)
    for said, name in ((stdout, OUT), (stderr, ERR)):
        alone = b"".join(data for stream, data in spoken if stream is name)
        assert said == alone.decode("utf-8", "surrogateescape").translate(WINDOWS_BYTES)
