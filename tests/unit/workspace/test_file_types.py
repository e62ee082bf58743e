import pytest

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.workspace.ripgrep import file_type, known_types


@pytest.mark.parametrize(
    ("name", "yes", "no"),
    [
        ("py", ["a.py", "A.PY", "a.b.pyi", ".py"], ["py", "a.pyc", "apy"]),
        ("typescript", ["a.ts", "a.d.ts", "a.tsx"], ["a.js"]),
        ("C++", ["a.cpp", "a.h"], ["a.c"]),
        (".rs", ["a.rs"], ["rs"]),
        ("*.md", ["README.md"], ["README"]),
        ("docker", ["Dockerfile", "web.Dockerfile"], ["dockerfile.txt"]),
        ("gradle", ["build.gradle.kts"], ["a.kts"]),
    ],
)
def test_a_type_has_the_names_people_expect_whatever_their_case(name: str, yes: list[str], no: list[str]):
    wanted = file_type(name)
    assert [each for each in yes if not wanted.has(each)] == []
    assert [each for each in no if wanted.has(each)] == []


@pytest.mark.parametrize(("name", "hint"), [("pyton", "python"), ("javscript", "javascript"), ("qqq", "known are asm")])
def test_an_unknown_type_is_an_error_that_helps(name: str, hint: str):
    with pytest.raises(ToolError, match=hint) as raised:
        file_type(name)
    assert raised.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert repr(name) in str(raised.value)


def test_the_table_says_everything_once_and_in_lower_case():
    types = known_types()
    names = [*types, *(alias for each in types.values() for alias in each.aliases)]
    assert len(names) == len(set(names))
    for name, each in types.items():
        assert each.extensions or each.names, name
        assert all(text == text.lower() for text in (name, *each.aliases, *each.extensions, *each.names))
        assert not any(extension.startswith(".") for extension in each.extensions)
