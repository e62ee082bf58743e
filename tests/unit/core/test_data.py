"""Frozen data classes behave as those of the standard library do, but for being made faster."""

from copy import deepcopy
from dataclasses import field, fields, replace
from pickle import dumps, loads

from acp_agent.core.data import frozen


@frozen
class Point:
    """A point with a note that does not tell two points apart."""

    x: int
    y: int = 0
    note: str = field(default="", compare=False)
    key: str = field(default="", repr=False)


@frozen
class Named(Point):
    """A point with a name."""

    name: str = ""


@frozen
class Nothing:
    """An object without members."""


@frozen
class Own:
    """An object that prints itself."""

    key: str

    def __repr__(self) -> str:
        return "Own()"


def test_equal_members_make_equal_objects_with_one_hash():
    assert Point(1, 2, "here") == Point(1, 2, "there")
    assert hash(Point(1, 2, "here")) == hash(Point(1, 2, "there"))
    assert {Nothing(), Nothing()} == {Nothing()}


def test_other_members_or_another_class_make_another_object():
    assert Point(1, 2) != Point(2, 1)
    assert Point(1, 2) != Named(1, 2)
    assert Point(1, 2, key="k") != Point(1, 2)
    assert Nothing() != Point(0)
    assert Point(1) != (1, 0)


def test_an_object_prints_its_members_but_those_that_shall_not_be_seen():
    assert repr(Point(1, note="n", key="hidden")) == "Point(x=1, y=0, note='n')"
    assert repr(Named(1)) == "Named(x=1, y=0, note='', name='')"
    assert repr(Nothing()) == "Nothing()"


def test_a_method_of_the_class_itself_stays():
    assert repr(Own("secret")) == "Own()"
    assert Own("a") == Own("a")


def test_it_is_a_dataclass_with_slots():
    assert [each.name for each in fields(Named)] == ["x", "y", "note", "key", "name"]
    assert replace(Named(1, name="a"), name="b") == Named(1, name="b")
    assert not hasattr(Point(1), "__dict__")
    match Point(3, 4):
        case Point(x, y):
            assert (x, y) == (3, 4)


def test_copies_and_pickles_are_equal_to_their_originals():
    assert deepcopy(Named(1, name="a")) == loads(dumps(Named(1, name="a"))) == Named(1, name="a")


def test_an_object_that_holds_itself_prints():
    inner: list[object] = []
    outer = Point(1, key="")
    holder = replace(outer, note=inner)
    inner.append(holder)
    assert repr(holder) == "Point(x=1, y=0, note=[...])"
