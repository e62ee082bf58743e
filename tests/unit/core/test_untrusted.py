"""Files of others are parsed within bounds: a hostile one is refused at once, an ordinary one is read as ever."""

import json
import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core import untrusted
from acp_agent.core.untrusted import MAX_DEPTH, MAX_PARTS, MAX_VALUES, MAX_WORD, json_value, json_value_at, toml_table

ROOM = 128 * 1024 * 1024
"""Bytes of address space that the interpreter and a parse may take. The interpreter has 16 MiB of them."""

keys = st.text("ab", min_size=1, max_size=3)
parts = st.one_of(keys, keys.map(lambda key: f'"{key}.[{{#"'), keys.map(lambda key: f"'{key}.='"))
dotted = st.lists(parts, min_size=1, max_size=4).map(".".join)
texts = st.text("a.[]{}=,#' \\é", max_size=8)
values = st.recursive(
    st.one_of(
        st.integers().map(str),
        st.floats(allow_nan=False, allow_infinity=False).map(str),
        texts.map(lambda text: json.dumps(text, ensure_ascii=False)),
        texts.map(lambda text: f'"""{text.replace(chr(92), "")}"""'),
        texts.map(lambda text: f"'''{text.strip(chr(39))}'''"),
        st.just("1979-05-27T07:32:00.5Z"),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(inner, max_size=3).map(lambda items: "[ # . [\n" + ",\n".join(items) + "\n]"),
        inner.map(lambda value: f"{{ x.y = {value} }}"),
    ),
    max_leaves=6,
)
lines = st.one_of(
    st.tuples(dotted, values).map(" = ".join),
    dotted.map(lambda key: f"[{key}]"),
    dotted.map(lambda key: f"[[ {key} ]]"),
    texts.map(lambda text: f"# {text}"),
    texts,
)


@given(st.lists(lines, max_size=8).map("\n".join))
def test_an_ordinary_text_means_what_it_means_to_the_parser(text: str):
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(tomllib.TOMLDecodeError):
            toml_table(text)
    else:
        assert toml_table(text) == expected


@given(
    st.lists(parts, min_size=MAX_PARTS - 3, max_size=MAX_PARTS + 3),
    st.sampled_from(["{} = 1", "[{}]", "x = {{ {} = 1 }}"]),
)
def test_a_key_has_at_most_so_many_parts(names: list[str], form: str):
    text = form.format(" . ".join(names))
    if len(names) > MAX_PARTS:
        with pytest.raises(ValueError, match="a key of more than 16 parts"):
            toml_table(text)
    else:
        toml_table(text)


@given(st.lists(st.sampled_from(["[", "{a = "]), min_size=MAX_DEPTH - 2, max_size=MAX_DEPTH + 3))
def test_values_are_nested_only_so_deep(opens: list[str]):
    closes = ["]" if each == "[" else "}" for each in reversed(opens)]
    text = f"x = {''.join(opens)}{''.join(closes)}".replace("{a = }", "{}")
    if len(opens) > MAX_DEPTH:
        with pytest.raises(ValueError, match="nested more than 32 deep"):
            toml_table(text)
    else:
        toml_table(text)


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 5000, "0b" + "1" * 5000, "9" * 5000 + ".5"])
def test_a_number_nobody_could_print_is_refused(number: str):
    with pytest.raises(ValueError, match=f"more than {MAX_WORD} characters"):
        toml_table(f"x = {number}")
    str(toml_table(f"x = 0x{'f' * (MAX_WORD - 2)}"))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[[]" + ",[]" * MAX_VALUES + "]", "9" * 5000])
def test_json_beyond_the_bounds_is_refused(text: str):
    reason = "nested too deeply|more than 1000000 values|4300 digits"
    for each in (text, text.encode()):
        with pytest.raises(ValueError, match=reason):
            json_value(each)
    with pytest.raises(ValueError, match=reason):
        json_value_at(text, 0)


def test_json_is_read_as_ever():
    assert json_value('{"a": [1, 2.5, null]}') == json_value(b'{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    assert json_value_at('said: {"a": 1} and more', 6) == {"a": 1}


HOSTILE = {
    "one long key": lambda: ".".join(["a"] * 500_000) + " = 1",
    "one long header": lambda: "[" + ".".join(["a"] * 500_000) + "]",
    "one long key of texts": lambda: ".".join(['"a"'] * 250_000) + " = 1",
    "many keys of many parts": lambda: "".join(f"a{n}.{'.'.join('b' * 15)} = 1\n" for n in range(30_000)),
    "many headers of many parts": lambda: "".join(f"[a{n}.{'.'.join('b' * 15)}]\n" for n in range(30_000)),
    "many keys below a long header": lambda: f"[{'.'.join('a' * 16)}]\n" + "".join(f"{n}=1\n" for n in range(130_000)),
    "many tables": lambda: "".join(f"[{n}]\n" for n in range(120_000)),
    "many arrays": lambda: "".join(f"{n}=[]\n" for n in range(110_000)),
    "an array of arrays": lambda: "x = [" + "[]," * 340_000 + "]",
    "an array of tables": lambda: "x = [" + "{a=1}," * 170_000 + "]",
    "nested arrays": lambda: "x = " + "[" * 1_000_000,
    "a huge number": lambda: "x = 0x" + "f" * 1_000_000,
    "many large numbers": lambda: "x = [" + f"{'9' * 1000}," * 1000 + "]",
    "the same key again and again": lambda: "x = 1\n" * 170_000,
    "quotes": lambda: '"' * 1_000_000,
    "escapes": lambda: 'x = "' + "\\" * 1_000_000,
    "escapes and quotes": lambda: 'x = """' + '""\\' * 330_000,
    "an endless word": lambda: "x" * 1_000_000,
}


def test_no_file_of_a_mebibyte_costs_much_memory_or_time(tmp_path: Path):
    for kind, text in HOSTILE.items():
        (tmp_path / kind).write_text(text()[: 1024 * 1024])
    code = """if True:
        import os, sys, time
        from pathlib import Path
        from acp_agent.core.untrusted import toml_table
        for path in sys.argv[1:]:  # each in a process of its own, which only the first need start
            if not os.fork():
                text = Path(path).read_text()
                begun = time.process_time()
                try:
                    toml_table(text)
                except ValueError:
                    pass
                os._exit(time.process_time() - begun >= 5)  # 0.6 s on a quiet machine
            if status := os.wait()[1]:
                print(path, os.waitstatus_to_exitcode(status))
    """
    bound = lambda: resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))  # noqa: E731
    files = [str(tmp_path / kind) for kind in HOSTILE]
    done = subprocess.run(
        [sys.executable, "-c", code, *files], capture_output=True, text=True, check=False, preexec_fn=bound
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-500:]


def test_what_reads_files_of_others_reads_them_within_bounds():
    """TOML is parsed without bounds only by modules that read files of the package."""
    package = Path(untrusted.__file__).parents[1]
    sources = {path.relative_to(package).as_posix(): path.read_text() for path in package.rglob("*.py")}
    parsing = {name for name, source in sources.items() if "tomllib.load" in source or "tomllib import" in source}
    others = {name for name in parsing if "packaged_text" not in sources[name]}
    assert others == {"core/untrusted.py"}
    assert "read_toml" in sources["output/filters/rule_file.py"], "the user's rules"
