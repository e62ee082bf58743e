"""A shape of data: its fields and their limits as a class, and the reading of data that plainly fits.

A shape is declared with the words of pydantic: `Annotated` types, `Field`, `AfterValidator`, `BeforeValidator`. Loading
pydantic takes 80 ms and 12 MB, so data is read here if everything in it has exactly the declared type and is within its
limits. All other data is judged by the pydantic model that `shape_models` makes of the declaration: the data may still
fit (5.0 for a whole number, where the shape is not strict), and pydantic finds everything that is wrong. So this module
must never accept what pydantic refuses; a property test holds that.
"""

import math
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    Self,
    TypeAlias,
    TypedDict,
    Union,
    Unpack,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

_MISSING: Final = object()

Reader = Callable[[Any], Any]
"""Returns the typed value for a raw value. Raises NotPlain if pydantic must judge the raw value."""


class NotPlain(Exception):
    """The data does not plainly fit. It may be wrong, or right after a conversion."""


Problem: TypeAlias = Mapping[str, Any]
"""One thing that is wrong with data, as pydantic's `ErrorDetails`: `type`, `loc`, `msg`, `input` and perhaps `ctx`."""


class ValidationError(ValueError):
    """Data that does not fit its shape. `problems` holds everything that is wrong."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in self.problems))


class ShapeConfig(NamedTuple):
    """How strict a shape is.

    strict        no value is converted, as in pydantic's strict mode
    forbid        unknown keys are errors; else they are skipped
    camel         the keys are the fields' names in camelCase
    schema_extra  added to the JSON Schema
    """

    strict: bool = True
    forbid: bool = True
    camel: bool = False
    schema_extra: Mapping[str, Any] | None = None


class FieldOptions(TypedDict, total=False):
    """The options of a field. They mean what they mean to `pydantic.Field`."""

    description: str
    examples: list[Any]
    strict: bool
    ge: float
    gt: float
    le: float
    lt: float
    allow_inf_nan: bool
    min_length: int
    max_length: int
    pattern: str
    repr: bool
    json_schema_extra: dict[str, Any]


class FieldInfo:
    """A field's options and default. `factory` is the `default_factory` of the declaration, or None."""

    def __init__(self, options: FieldOptions, default: Any, factory: Callable[[], Any] | None) -> None:
        self.options = options
        self.default = default
        self.factory = factory


def Field(  # noqa: N802 - it is spelled and used as pydantic's
    default: Any = _MISSING, *, default_factory: Callable[[], Any] | None = None, **options: Unpack[FieldOptions]
) -> Any:
    """Return the limits, the description and the default of a field.

    `default_factory` is called once, here: all instances share its result, because the values of a shape never change.
    """
    return FieldInfo(options, default_factory() if default_factory else default, default_factory)


class AfterValidator(NamedTuple):
    """A mark (metadata of `Annotated`): `check` returns the value or another, or raises ValueError with a reason."""

    check: Callable[[Any], Any]


class BeforeValidator(NamedTuple):
    """A mark: `change` gets the raw value before its type is checked, and returns it or another one."""

    change: Callable[[Any], Any]


class NoneIfWrong:
    """A mark: a value that does not fit counts as None."""


class Tagged(NamedTuple):
    """A mark of a union of shapes: the text under `key` selects the shape whose field `key` is the Literal of it.

    otherwise   the shape of data with another text, or None if that is an error
    """

    key: str
    otherwise: "type[Shape] | None" = None


class ShapeField(NamedTuple):
    """One field of a shape.

    name        the attribute
    key         the key in the data
    type        the type without its marks, such as `int | None`
    marks       the metadata of `Annotated`, with each `Field(...)`
    default     the default, if it is not required
    factory     the `default_factory` of the declaration, or None
    """

    name: str
    key: str
    type: Any
    marks: tuple[Any, ...]
    default: Any
    factory: Callable[[], Any] | None

    def is_required(self) -> bool:
        """Return whether there is no default."""
        return self.default is _MISSING

    @property
    def description(self) -> str | None:
        """What the field is for."""
        return self.option("description")

    @property
    def examples(self) -> list[Any] | None:
        """Values that it may have."""
        return self.option("examples")

    def option(self, option: str) -> Any:
        """Return what a `Field(...)` of the field says under this name, or None."""
        said = (cast("dict[str, Any]", mark.options) for mark in reversed(self.marks) if isinstance(mark, FieldInfo))
        return next((options[option] for options in said if option in options), None)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class Shape:
    """Base of every shape. Its instances do not change.

    An instance holds the values that were given; defaults are attributes of its class.
    """

    shape_config: ClassVar[ShapeConfig] = ShapeConfig()
    assigned_fields: ClassVar[Mapping[str, FieldInfo]] = {}

    def __init_subclass__(cls) -> None:
        assigned = {name: value for name, value in vars(cls).items() if isinstance(value, FieldInfo)}
        for name, info in assigned.items():
            if info.default is _MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, info.default)
        cls.assigned_fields = {**cls.assigned_fields, **assigned}

    def __init__(self, **given: Any) -> None:
        """Validate the values. Raises ValidationError."""
        vars(self).update(vars(self.model_validate(given)))

    @classmethod
    def model_validate(cls, value: object) -> Self:
        """Return the data as an instance. Raises ValidationError."""
        try:
            return cast("Self", read_plainly(cls, value))
        except NotPlain:
            from acp_agent import shape_models  # noqa: PLC0415 - pydantic, which healthy data does not need

            return shape_models.validated(cls, value)

    @classmethod
    def model_construct(cls, **given: Any) -> Self:
        """Return an instance with valid values."""
        made = cls.__new__(cls)
        vars(made).update(given)
        return made

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        from acp_agent import shape_models  # noqa: PLC0415 - as above

        return shape_models.json_schema(cls)

    @classmethod
    def prepared(cls, value: object) -> object:
        """Return the raw data to validate. A shape may override this to change the data first."""
        return value

    def check(self) -> None:
        """Raise ValueError, with what is expected, if valid values do not fit each other."""

    @property
    def model_fields_set(self) -> set[str]:
        """The names of the fields that were given."""
        return {*vars(self)}

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """Return a copy with other valid values."""
        return self.model_construct(**{**vars(self), **update})

    def model_dump(self, *, exclude_defaults: bool = False, exclude_none: bool = False) -> dict[str, Any]:
        """Return the values as JSON has them, under the names of the fields."""

        def dumped(value: Any) -> Any:
            match value:
                case Shape():
                    return value.model_dump(exclude_defaults=exclude_defaults, exclude_none=exclude_none)
                case Enum():
                    return value.value
                case Mapping():
                    return {key: dumped(item) for key, item in cast("Mapping[str, Any]", value).items()}
                case list() | tuple():
                    return [dumped(item) for item in cast("Iterable[Any]", value)]
                case _:
                    return value

        shown = {name: (getattr(self, name), field.default) for name, field in fields(type(self)).items()}
        return {
            name: dumped(value)
            for name, (value, default) in shown.items()
            if not (exclude_defaults and value == default) and not (exclude_none and value is None)
        }

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} does not change")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} does not change")

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in fields(type(self)))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and cast("Shape", other)._values() == self._values()

    def __hash__(self) -> int:
        return hash((type(self), *self._values()))

    def __repr__(self) -> str:
        told = (name for name, field in fields(type(self)).items() if field.option("repr") is not False)
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in told)
        return f"{type(self).__name__}({values})"


@cache
def fields(shape: type[Shape]) -> Mapping[str, ShapeField]:
    """Return the fields of a shape by name, those of its bases first."""
    found: dict[str, ShapeField] = {}
    for name, hint in get_type_hints(shape, include_extras=True).items():
        if get_origin(hint) is ClassVar:
            continue
        annotated = get_origin(hint) is Annotated
        plain, *marks = get_args(hint) if annotated else (hint,)
        assigned = shape.assigned_fields.get(name)
        if assigned is not None:
            marks.append(assigned)
        key = _camel(name) if shape.shape_config.camel else name
        default, factory = getattr(shape, name, _MISSING), assigned.factory if assigned else None
        found[name] = ShapeField(name, key, plain, tuple(marks), default, factory)
    return found


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def read_plainly(shape: type[Shape], value: object) -> Shape:
    """Return data that plainly fits as an instance. Raises NotPlain."""
    if type(value) is shape:
        return value
    data = shape.prepared(value)
    if type(data) is not dict:
        raise NotPlain
    given, read = cast("dict[object, Any]", data), dict[str, Any]()
    for key, (name, required, reader) in _readers(shape).items():
        if key in given:
            read[name] = reader(given[key])
        elif required:
            raise NotPlain
    if len(read) < len(given) and (shape.shape_config.forbid or not all(type(key) is str for key in given)):
        raise NotPlain
    made = shape.__new__(shape)
    vars(made).update(read)
    if shape.check is not Shape.check:
        try:
            made.check()
        except ValueError:
            raise NotPlain from None
    return made


@cache
def _readers(shape: type[Shape]) -> Mapping[str, tuple[str, bool, Reader]]:
    """Return by key the name of each field, whether it is required, and its reader."""
    config = shape.shape_config
    return {
        field.key: (field.name, field.is_required(), _reader(field.type, field.marks, config, strict=config.strict))
        for field in fields(shape).values()
    }


def _reader(kind: Any, marks: tuple[Any, ...], config: ShapeConfig, *, strict: bool) -> Reader:
    """Return the reader of a type with marks.

    strict   whether a list is refused where a tuple is declared, and a value where a member of an enumeration is
    """
    if get_origin(kind) is Annotated:
        inner, *inner_marks = get_args(kind)
        return _reader(inner, (*inner_marks, *marks), config, strict=strict)
    for mark in marks:
        if isinstance(mark, FieldInfo):
            strict = mark.options.get("strict", strict)
    tagged = next((mark for mark in marks if isinstance(mark, Tagged)), None)
    read = _tagged_reader(kind, tagged) if tagged else _type_reader(kind, config, strict=strict)
    for mark in marks:
        match mark:
            case FieldInfo():
                read = _within(read, mark.options)
            case AfterValidator():
                read = _after(read, mark.check)
            case BeforeValidator():
                read = _before(read, mark.change)
            case _:
                pass  # Tagged was used above, NoneIfWrong only concerns pydantic, and other marks mean nothing here
    return read


def _after(read: Reader, check: Callable[[Any], Any]) -> Reader:
    def checked(value: Any) -> Any:
        plain = read(value)
        try:
            return check(plain)
        except ValueError:
            raise NotPlain from None

    return checked


def _before(read: Reader, change: Callable[[Any], Any]) -> Reader:
    def changed(value: Any) -> Any:
        try:
            ready = change(value)
        except ValueError:
            raise NotPlain from None
        return read(ready)

    return changed


def _within(read: Reader, options: FieldOptions) -> Reader:
    """Return a reader that also checks the limits, except for None."""
    limits = [limit(options[name]) for name, limit in _LIMITS.items() if name in options]
    if not limits:
        return read

    def limited(value: Any) -> Any:
        plain = read(value)
        for holds in limits:
            if plain is not None and not holds(plain):
                raise NotPlain
        return plain

    return limited


def _matches(pattern: str) -> Callable[[str], bool]:
    """Return a test whether a text matches. Pydantic's regular expressions may differ outside of printable ASCII."""
    search = re.compile(pattern).search
    return lambda text: text.isascii() and text.isprintable() and search(text) is not None


_LIMITS: Final[Mapping[str, Callable[[Any], Callable[[Any], bool]]]] = {
    "ge": lambda limit: lambda value: value >= limit,
    "gt": lambda limit: lambda value: value > limit,
    "le": lambda limit: lambda value: value <= limit,
    "lt": lambda limit: lambda value: value < limit,
    "allow_inf_nan": lambda allowed: lambda value: allowed or math.isfinite(value),
    "min_length": lambda length: lambda value: len(value) >= length,
    "max_length": lambda length: lambda value: len(value) <= length,
    "pattern": _matches,
}
"""For each limit, a function that makes a test of values from the limit's setting."""


def _type_reader(kind: Any, config: ShapeConfig, *, strict: bool) -> Reader:
    """Return the reader of a type without marks. The reader of an unknown type always raises NotPlain."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _literal_reader(inner)
    if origin in (Union, types.UnionType):
        return _union_reader([_reader(each, (), config, strict=strict) for each in inner])
    if origin in (list, tuple, dict, Mapping):
        readers = [_reader(each, (), config, strict=config.strict) for each in inner if each is not ...]
        return _container_reader(origin, inner, readers, lists=not strict)
    if isinstance(kind, type) and issubclass(kind, Shape):
        return lambda value: read_plainly(kind, value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum_reader(kind, values=not strict)
    return _SIMPLE.get(kind, _never)


def _container_reader(origin: Any, inner: tuple[Any, ...], readers: Sequence[Reader], *, lists: bool) -> Reader:
    if origin is list:
        return _list_reader(*readers)
    if origin is tuple:
        return _tuple_reader(*readers, lists=lists) if inner[1:] == (...,) else _never
    return _dict_reader(*readers)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise NotPlain
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            raise NotPlain from None
    return value


def _number(value: Any) -> float:
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise NotPlain from None
    if type(value) is not float:
        raise NotPlain
    return value


def _never(value: Any) -> Any:
    del value
    raise NotPlain


def _exactly(kind: type) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise NotPlain
        return value

    return read


def _any(value: Any) -> Any:
    return value


_SIMPLE: Final[Mapping[Any, Reader]] = {
    str: _text,
    float: _number,
    **{kind: _exactly(kind) for kind in (int, bool, types.NoneType)},
    Any: _any,
    object: _any,
}


def _literal_reader(values: tuple[Any, ...]) -> Reader:
    known: set[tuple[type, object]] = {(type(value), value) for value in values}

    def read(value: Any) -> Any:
        if type(value) not in (str, bool, int) or (type(value), value) not in known:
            raise NotPlain
        return value

    return read


def _union_reader(readers: Sequence[Reader]) -> Reader:
    """Return the reader of a union. A value is plain if it fits exactly one of the types."""

    def read(value: Any) -> Any:
        fitting: list[Any] = []
        for reader in readers:
            try:
                fitting.append(reader(value))
            except NotPlain:
                continue
        if len(fitting) != 1:
            raise NotPlain
        return fitting[0]

    return read


def _tagged_reader(union: Any, tagged: Tagged) -> Reader:
    shapes = tags(union, tagged)

    def read(value: Any) -> Any:
        tag = cast("dict[object, object]", value).get(tagged.key) if type(value) is dict else None
        shape = shapes.get(tag, tagged.otherwise) if type(tag) is str else None
        if shape is None:
            raise NotPlain
        return read_plainly(shape, cast("object", value))

    return read


def tags(union: Any, tagged: Tagged) -> Mapping[str, type[Shape]]:
    """Return the shapes of a tagged union by the text that selects each."""
    shapes = cast("tuple[type[Shape], ...]", get_args(union))
    kinds = {shape: fields(shape)[tagged.key].type for shape in shapes if shape is not tagged.otherwise}
    return {get_args(kind)[0]: shape for shape, kind in kinds.items()}


def _list_reader(item: Reader) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not list:
            raise NotPlain
        return [item(each) for each in cast("list[Any]", value)]

    return read


def _tuple_reader(item: Reader, *, lists: bool) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not tuple and not (lists and type(value) is list):
            raise NotPlain
        return tuple([item(each) for each in cast("Iterable[Any]", value)])

    return read


def _dict_reader(key: Reader, item: Reader) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise NotPlain
        return {key(name): item(each) for name, each in cast("dict[Any, Any]", value).items()}

    return read


def _enum_reader(kind: type[Enum], *, values: bool) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is kind:
            return value
        if not values or type(value) is not str:
            raise NotPlain
        try:
            return kind(value)
        except ValueError:
            raise NotPlain from None

    return read
