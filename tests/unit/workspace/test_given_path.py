from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.workspace.beneath import check_text, expansion_wanted
from tests.rows import each_row


@each_row("path", [None, 3, b"a", ["a"], 1.5, True])
def test_a_path_that_is_no_string_is_a_type_mismatch_naming_the_type(path: object):
    with pytest.raises(ToolError, match=type(path).__name__) as raised:
        check_text(path)
    assert raised.value.failure.category is ToolErrorCategory.TYPE_MISMATCH


@each_row(
    "path, word",
    [
        ("", "empty"),
        ("a\0b", "NUL"),
        ("a\ud800b", "surrogate"),
        ("x" * 256, "255"),
        ("é" * 128, "255"),
        ("a/" * 2100, "4095"),
    ],
)
def test_a_string_that_cannot_be_a_path_is_an_invalid_parameter_saying_why(path: str, word: str):
    with pytest.raises(ToolError, match=word) as raised:
        check_text(path)
    assert raised.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 300


@each_row("path", ["a b", "x" * 255, "a\nb", "日本語/ф", "-rf", "...", "~", "$HOME"])
def test_any_other_string_may_be_a_path(path: str):
    assert check_text(path) == path


@each_row(
    "path",
    [
        "~",
        "~/x",
        "~root/.ssh",
        "$HOME/x",
        "${HOME}/x",
        "$(pwd)/x",
        "%USERPROFILE%\\x",
        "file:///etc/passwd",
        "http://h",
    ],
)
def test_what_something_else_would_expand_is_recognised(path: str):
    refused = expansion_wanted(path)
    assert refused is not None
    assert path in str(refused)
    assert refused.failure.suggestion


@each_row(
    "path", ["a~", "~$draft.docx", "a/~/b", "routes/$id.tsx", "$id.tsx", "50%", "a%20b", "c:/x", "a:b", "~1.bak~"]
)
def test_names_that_only_look_a_little_like_it_are_left_alone(path: str):
    assert expansion_wanted(path) is None


@given(st.text())
def test_every_string_is_either_a_path_or_an_error_of_the_caller(path: str):
    fits = path != "" and "\0" not in path and path.isascii() and max(map(len, path.split("/"))) <= 255
    if fits and len(path) <= 4095:
        assert check_text(path) == path
    else:
        with suppress(ToolError):  # nothing else may be raised
            assert check_text(path) == path
