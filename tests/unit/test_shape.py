"""Shapes of data: read without pydantic where everything plainly fits, and judged by pydantic where not."""

import importlib
import pkgutil
import subprocess
import sys
import types
from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import acp_agent
from acp_agent.shape import (
    AfterValidator,
    BeforeValidator,
    Field,
    FieldInfo,
    NoneIfWrong,
    NotPlain,
    Shape,
    ShapeConfig,
    Tagged,
    ValidationError,
    fields,
    read_plainly,
)
from acp_agent.shape_models import validated
from tests.rows import each_row
from tests.sizes import sized

SEAMS = ("acp_agent.config", "acp_agent.llm", "acp_agent.output", "acp_agent.protocol", "acp_agent.tools")


def every_shape() -> list[type[Shape]]:
    """Return the shapes of the package that have fields."""
    for module in pkgutil.walk_packages(acp_agent.__path__, "acp_agent."):
        if module.name.startswith(SEAMS):
            importlib.import_module(module.name)

    def below(kind: type[Shape]) -> list[type[Shape]]:
        return [each for child in kind.__subclasses__() for each in (child, *below(child))]

    shapes = {shape: None for shape in below(Shape) if shape.__module__.startswith("acp_agent.") and fields(shape)}
    return sorted(shapes, key=lambda shape: (shape.__module__, shape.__qualname__))


ODD = st.sampled_from(
    [None, True, False, 0, 1, -1, 1.0, 0.5, float("nan"), float("inf"), 10**400, "", "1", "true", [], {}]
)
TEXTS = st.one_of(
    st.sampled_from(
        ["a", "/a", "~/b", "a:b", "scripted:x", "http://h", "https://h/p?q", "bash", "A_B", "x y", "\n", "é"]
    ),
    st.sampled_from(
        ["\ud800", "a\0", "text", "image", "cancelled", "selected", "dedup", "truncate", "**/x", "(", "UTC"]
    ),
    st.text(max_size=5),
)


def near(kind: Any, marks: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Return values that fit a type, nearly fit it, or do not."""
    usual = fitting(kind, marks)
    return st.integers(0, 19).flatmap(lambda number: usual if number else ODD)


def fitting(kind: Any, marks: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        return fitting(inner, (*more, *marks))
    origin, inner = get_origin(kind), get_args(kind)
    limits = [
        mark.options[name]
        for mark in marks
        if isinstance(mark, FieldInfo)
        for name in ("ge", "gt", "le", "lt")
        if name in mark.options
    ]
    edges = [edge + step for edge in limits for step in (-1, 0, 1)] or [0, 1, 50, 5000]
    match kind:
        case type() if issubclass(kind, Shape):
            return raw(kind)
        case type() if issubclass(kind, Enum):
            return st.sampled_from([*kind, *(member.value for member in kind)])
        case _ if kind is str:
            return TEXTS
        case _ if kind is int:
            return st.sampled_from([*edges, *(float(edge) for edge in edges)])
        case _ if kind is float:
            return st.sampled_from([*edges, *(edge + 0.5 for edge in edges), float("nan"), float("inf")])
        case _ if kind is bool:
            return st.booleans()
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, types.UnionType):
        return st.one_of(*(near(each) for each in inner))
    if origin is list:
        return st.lists(near(inner[0]), max_size=3)
    if origin is tuple:
        return st.lists(near(inner[0]), max_size=3).flatmap(lambda found: st.sampled_from([found, tuple(found)]))
    if origin in (dict, Mapping):
        return st.dictionaries(st.one_of(TEXTS, st.just(1)), near(inner[1]), max_size=3)
    return ODD


def raw(shape: type[Shape]) -> st.SearchStrategy[Any]:
    """Return data for a shape, with most of its keys."""
    every = {field.key: near(field.type, field.marks) for field in fields(shape).values()}
    needed = {field.key: every[field.key] for field in fields(shape).values() if field.is_required()}
    optional = {key: value for key, value in every.items() if key not in needed}
    usual = st.fixed_dictionaries(needed, optional=optional)
    odd = st.fixed_dictionaries({}, optional={**every, "unknown": ODD, 1: ODD})
    return st.integers(0, 9).flatmap(lambda number: usual if number else odd)


@given(st.data())
@settings(max_examples=sized(100, 2_000))
def test_what_is_read_plainly_is_just_what_pydantic_makes_of_it(data):
    """In every shape of the package. What only pydantic understands may be judged by it alone."""
    shape = data.draw(st.sampled_from(SHAPES))
    value = data.draw(raw(shape))
    try:
        plain = read_plainly(shape, value)
    except NotPlain:
        event("judged by pydantic")
        return
    event("read plainly")
    judged = validated(shape, value)

    assert plain == judged
    assert repr(plain) == repr(judged), "1 is not 1.0"
    assert plain.model_fields_set == judged.model_fields_set


SHAPES = every_shape()


def test_the_property_sees_the_shapes_of_settings_tools_filters_models_and_the_wire():
    found = {shape.__module__.split(".")[1] for shape in SHAPES}

    assert found == {"config", "tools", "output", "llm", "protocol"}
    assert len(SHAPES) > 100


class Colour(StrEnum):
    """An enumeration."""

    RED = "red"


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("an even number")
    return value


class Inner(Shape):
    """A shape in another."""

    name: Annotated[str, Field(min_length=1, pattern="^[a-z]+$")]
    size: Annotated[int, Field(ge=0, lt=10), AfterValidator(_even)] = 4


class Outer(Shape):
    """A strict shape."""

    inner: Inner = Inner.model_construct(name="a")
    many: Annotated[tuple[Inner, ...], Field(strict=False)] = ()
    colour: Annotated[Colour | None, Field(strict=False)] = None
    ratio: float = 0.5
    table: Mapping[str, int] = Field(default_factory=dict[str, int], description="Numbers by name.")
    number: Annotated[int, BeforeValidator(lambda value: value or 0)] = 1

    def check(self) -> None:
        """Raise ValueError if the ratio is that of nobody."""
        if self.ratio == 13:
            raise ValueError("another ratio than 13")


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"inner": {"name": "b", "size": 2}, "ratio": 1},
        {"many": [{"name": "b"}], "colour": "red", "table": {"a": 1}},
        {"number": None, "colour": None},
    ],
)
def test_good_data_is_read_without_pydantic_and_as_pydantic_reads_it(value):
    assert read_plainly(Outer, value) == validated(Outer, value)


@each_row(
    "value, where, kind",
    [
        ({"inner": {"name": ""}}, ("inner", "name"), "string_too_short"),
        ({"inner": {"name": "B"}}, ("inner", "name"), "string_pattern_mismatch"),
        ({"inner": {}}, ("inner", "name"), "missing"),
        ({"inner": {"name": "b", "size": 10}}, ("inner", "size"), "less_than"),
        ({"inner": {"name": "b", "size": 3}}, ("inner", "size"), "value_error"),
        ({"inner": {"name": "b", "size": True}}, ("inner", "size"), "int_type"),
        ({"many": [{"name": "b"}, {"name": 1}]}, ("many", 1, "name"), "string_type"),
        ({"colour": "blue"}, ("colour",), "enum"),
        ({"ratio": "1"}, ("ratio",), "float_type"),
        ({"ratio": 13}, (), "value_error"),
        ({"table": {"a": "x"}}, ("table", "a"), "int_type"),
        ({"other": 1}, ("other",), "extra_forbidden"),
        ([], (), "model_type"),
    ],
)
def test_wrong_data_is_told_by_its_place_and_kind(value, where, kind):
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(value)

    assert [(problem["loc"], problem["type"]) for problem in caught.value.problems] == [(where, kind)]


def test_everything_that_is_wrong_is_told_at_once():
    with pytest.raises(ValidationError) as caught:
        Outer(ratio="x", colour=3, other=1)

    assert len(caught.value.problems) == 3


def test_instances_are_equal_by_value_and_know_what_was_given():
    given, default = Outer(ratio=0.5), Outer()

    assert given == default
    assert (given.model_fields_set, default.model_fields_set) == ({"ratio"}, set())
    assert hash(Inner(name="a")) == hash(Inner(name="a", size=4))
    assert Inner(name="a") != Inner(name="b")
    assert repr(Inner(name="a")) == "Inner(name='a', size=4)"


def test_instances_do_not_change():
    inner = Inner(name="a")

    with pytest.raises(AttributeError, match="Inner does not change"):
        inner.size = 2  # type: ignore[misc]
    with pytest.raises(AttributeError, match="Inner does not change"):
        del inner.name
    assert inner.model_copy(update={"size": 2}) == Inner(name="a", size=2)
    assert inner.size == 4


def test_values_are_dumped_as_json_has_them():
    outer = Outer(colour="red", many=[{"name": "b"}])

    assert outer.model_dump(exclude_defaults=True) == {"colour": "red", "many": [{"name": "b"}]}
    assert outer.model_dump()["inner"] == {"name": "a", "size": 4}
    assert "colour" not in Outer().model_dump(exclude_none=True)


def test_a_secret_is_not_in_the_text_of_an_instance():
    class Door(Shape):
        key: Annotated[str, Field(repr=False)]

    assert repr(Door(key="geheim")) == "Door()"


def test_the_json_schema_is_that_of_the_declaration():
    schema = Outer.model_json_schema()

    assert schema["additionalProperties"] is False
    assert schema["properties"]["table"]["description"] == "Numbers by name."
    assert schema["properties"]["table"]["additionalProperties"] == {"type": "integer"}
    assert "default" not in schema["properties"]["table"]
    assert schema["properties"]["inner"]["default"] == {"name": "a", "size": 4}


class Cat(Shape):
    """One of a union."""

    shape_config = ShapeConfig(strict=False, forbid=False, camel=True)
    kind: Literal["cat"]
    lives_left: Annotated[int | None, NoneIfWrong()] = None


class Dog(Shape):
    """Another."""

    kind: Literal["dog"]


class Other(Shape):
    """Any other."""

    shape_config = ShapeConfig(strict=False, forbid=False)
    kind: str


class House(Shape):
    """A union of shapes, and one with a last resort."""

    closed: Annotated[Cat | Dog, Tagged("kind")] = Dog.model_construct(kind="dog")
    open: Annotated[Cat | Dog | Other, Tagged("kind", otherwise=Other)] = Dog.model_construct(kind="dog")


def test_a_tag_says_which_shape_of_a_union_it_is():
    house = House(closed={"kind": "cat", "livesLeft": 9, "more": 1}, open={"kind": "cow"})

    assert house.closed == Cat.model_construct(kind="cat", lives_left=9)
    assert house.open == Other.model_construct(kind="cow")
    with pytest.raises(ValidationError) as caught:
        House(closed={"kind": "cow"})
    assert caught.value.problems[0]["type"] == "union_tag_invalid"


def test_a_value_that_does_not_matter_counts_as_none_where_it_is_wrong():
    assert House(closed={"kind": "cat", "livesLeft": "many"}).closed == Cat.model_construct(kind="cat", lives_left=None)


def test_good_data_does_not_load_pydantic_and_wrong_data_does():
    script = (
        "import sys\n"
        "from acp_agent.config.settings import LspSettings\n"
        "LspSettings.model_validate({'max_references': 5})\n"
        "print('pydantic' in sys.modules)\n"
        "try: LspSettings.model_validate({'max_references': -5})\n"
        "except ValueError: print('pydantic' in sys.modules)\n"
    )

    assert subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split() == ["False", "True"]
