"""Which calls of one answer run together, and which keep their order."""

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.types import Touches
from tests.rows import each_row

ALL = frozenset({"/"})


def reads(*paths: str) -> Touches:
    return Touches(reads=frozenset(paths))


def changes(*paths: str) -> Touches:
    return Touches(changes=frozenset(paths))


@each_row(
    "one, other, ordered",
    [
        (reads("/w/a"), reads("/w/a"), False),
        (reads("/w/a"), changes("/w/a"), True),
        (changes("/w/a"), changes("/w/a"), True),
        (changes("/w/a"), changes("/w/b"), False),
        (changes("/w/a"), reads("/w/ab"), False),
        (changes("/w/a/b"), reads("/w"), True),
        (changes("/w"), reads("/w/a/b"), True),
        (Touches(reads=ALL), reads("/w/a"), False),
        (Touches(reads=ALL), changes("/w/a"), True),
        (Touches(reads=ALL), Touches(reads=ALL), False),
        (Touches(alone=True), Touches(), True),
        (Touches(), Touches(), False),
        (Touches(queues=frozenset({"questions"})), Touches(queues=frozenset({"questions", "process"})), True),
        (Touches(queues=frozenset({"questions"})), Touches(queues=frozenset({"process"})), False),
        (Touches(server="one"), Touches(server="one"), True),
        (Touches(server="one"), Touches(server="two"), False),
        (Touches(server="one"), reads("/w/a"), True),
        (Touches(server="one"), Touches(), False),
    ],
)
def test_calls_keep_their_order_where_one_touches_what_another_changes(one, other, ordered):
    assert one.keeps_order_with(other) is ordered
    assert other.keeps_order_with(one) is ordered


paths = st.frozensets(st.sampled_from(["/", "/w", "/w/a", "/w/ab", "/w/a/b", "/v"]), max_size=2)
touches = st.builds(
    Touches, paths, paths, st.sampled_from(["", "s", "t"]), st.frozensets(st.sampled_from("qr")), st.booleans()
)


@given(touches, touches)
def test_the_order_of_two_calls_does_not_depend_on_who_is_asked(one, other):
    assert one.keeps_order_with(other) == other.keeps_order_with(one)
    if one.changes & other.reads:
        assert one.keeps_order_with(other)
