"""The pydantic models of shapes: they judge all data that does not plainly fit, and make the JSON Schemas."""

import types
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

import pydantic
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from acp_agent.shape import (
    AfterValidator,
    BeforeValidator,
    FieldInfo,
    NoneIfWrong,
    Problem,
    Shape,
    Tagged,
    ValidationError,
    fields,
    tags,
)

S = TypeVar("S", bound=Shape)


def validated(shape: type[S], value: object) -> S:
    """Return the data as an instance. Raises ValidationError."""
    try:
        return cast("S", model(shape).model_validate(value))
    except pydantic.ValidationError as error:
        raise ValidationError(cast("list[Problem]", error.errors(include_url=False))) from None


def json_schema(shape: type[Shape]) -> dict[str, Any]:
    """Return the JSON Schema of a shape."""
    return model(shape).model_json_schema()


def lean_json_schema(shape: type[Shape]) -> dict[str, Any]:
    """Return the JSON Schema without titles, null types and null defaults."""
    return model(shape).model_json_schema(schema_generator=_Lean)


class _Lean(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        lean = super().default_schema(schema)
        return {key: value for key, value in lean.items() if key != "default" or value is not None}


@cache
def model(shape: type[Shape]) -> type[pydantic.BaseModel]:
    """Return the pydantic model of a shape. Its `model_validate` returns an instance of the shape."""
    config = shape.shape_config

    def judged(cls: object, value: Any, judge: pydantic.ModelWrapValidatorHandler[Any]) -> Any:
        del cls
        if isinstance(value, shape):
            return value
        found = judge(shape.prepared(value))
        made = shape.model_construct(**{name: getattr(found, name) for name in found.model_fields_set})
        made.check()
        return made

    members: dict[str, Any] = {
        "__module__": shape.__module__,
        "__doc__": shape.__doc__,
        "__annotations__": {},
        "model_config": pydantic.ConfigDict(
            strict=config.strict,
            extra="forbid" if config.forbid else "ignore",
            alias_generator=to_camel if config.camel else None,
            json_schema_extra=dict(config.schema_extra) if config.schema_extra else None,
        ),
        "judged": pydantic.model_validator(mode="wrap")(judged),
    }
    for field in fields(shape).values():
        members["__annotations__"][field.name] = _translated(field.type, field.marks)
        if field.factory is not None:
            members[field.name] = pydantic.Field(default_factory=field.factory)
        elif not field.is_required():  # only for the JSON Schema: `judged` takes no defaults
            default = field.default
            members[field.name] = default.model_dump() if isinstance(default, Shape) else default
    make: Any = type(pydantic.BaseModel)
    return make(shape.__name__, (pydantic.BaseModel,), members)


def _translated(kind: Any, marks: tuple[Any, ...] = ()) -> Any:
    """Return a type and its marks in pydantic's form."""
    if get_origin(kind) is Annotated:
        inner, *inner_marks = get_args(kind)
        return _translated(inner, (*inner_marks, *marks))
    tagged = next((mark for mark in marks if isinstance(mark, Tagged)), None)
    translated = _translated_union(kind, tagged) if tagged else _translated_type(kind)
    theirs = tuple(each for mark in marks if (each := _translated_mark(mark)) is not None)
    return Annotated[translated, *theirs] if theirs else translated


def _translated_type(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, Shape):
        return model(kind)
    origin, inner = cast("Any", get_origin(kind)), get_args(kind)
    if origin is Literal or not inner:
        return cast("Any", kind)
    if origin in (Union, types.UnionType):
        return Union[*(_translated(each) for each in inner)]
    return origin[*(each if each is ... else _translated(each) for each in inner)]


def _translated_union(kind: Any, tagged: Tagged) -> Any:
    if tagged.otherwise is None:
        return Annotated[_translated_type(kind), pydantic.Field(discriminator=tagged.key)]
    known = tags(kind, tagged)
    names = {shape: tag for tag, shape in known.items()}
    members = [Annotated[model(shape), pydantic.Tag(names.get(shape, ""))] for shape in get_args(kind)]

    def tag_of(value: Any) -> str:
        tag = cast("dict[object, Any]", value).get(tagged.key) if isinstance(value, dict) else None
        return tag if isinstance(tag, str) and tag in known else ""

    return Annotated[Union[*members], pydantic.Discriminator(tag_of)]


def _translated_mark(mark: Any) -> Any:
    """Return one of our marks in pydantic's form, or None if pydantic needs none for it."""
    match mark:
        case FieldInfo():
            return pydantic.Field(**cast("dict[str, Any]", mark.options)) if mark.options else None
        case AfterValidator():
            return pydantic.AfterValidator(mark.check)
        case BeforeValidator():
            return pydantic.BeforeValidator(mark.change)
        case NoneIfWrong():
            return pydantic.WrapValidator(_none_if_wrong)
        case _:
            return None


def _none_if_wrong(value: Any, read: pydantic.ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except pydantic.ValidationError:
        return None
