"""Grammars of build tools, test runners and the like: what asks, what is silent, and that the programs agree.

A rule such as `pytest *` or `make *` means: build and test this project. It does not mean: run a program, load code or
a configuration that an argument names, reach another host, or install what an argument names.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.gates.paths.command_paths import path_words
from acp_agent.gates.paths.written_paths import written
from acp_agent.gates.rules.permission_rules import Action, judge
from acp_agent.gates.shell.command import Plain, ShellText, analyse
from acp_agent.gates.shell.grammar import AFTER, Grammar, WordKind, grammar_of
from acp_agent.gates.shell.programs import program_table
from tests.rows import each_row
from tests.unit.gates.builds import ASK, SILENT
from tests.unit.gates.chain import rules
from tests.unit.gates.shell.grammars import known_programs


def program(text: str) -> str:
    return text.partition(" ")[0]


def allowed(text: str, *patterns: str) -> bool:
    """Return whether a text runs unasked; by default under `PROGRAM *`."""
    return judge(ShellText(text), rules(*(patterns or (f"{program(text)} *",))), lambda _: None).action is Action.ALLOW


def only(text: str) -> Plain:
    verdict = analyse(text)
    assert isinstance(verdict, Plain)
    return verdict


def lines(table: str) -> "list[str]":
    return [line for line in table.splitlines() if line]


@each_row("text", lines(ASK))
def test_a_program_that_may_build_and_test_asks_for_what_does_more(text: str):
    assert not allowed(text)


@each_row("text", lines(SILENT))
def test_everyday_builds_and_tests_are_silent(text: str):
    assert allowed(text, f"{program(text)} *", program(text))


@each_row(
    "text, path",
    [
        ("pytest /out/test_x.py::test_a", "/out/test_x.py"),
        ("pytest tests/link.py::test_a[a-b]", "tests/link.py"),
        ("pytest --ignore=/out -q", "/out"),
        ("pytest --cov=/out", "/out"),
        ("python -m pytest /out/x.py", "/out/x.py"),
        ("python -q /out/x.py", "/out/x.py"),
        ("mypy -p x /out", "/out"),
        ("pip wheel -r /out/r.txt", "/out/r.txt"),
        ("npm run x -- /out", "/out"),
        ("tsc -p /out/tsconfig.json", "/out/tsconfig.json"),
        ("jest --roots /out", "/out"),
        ("prettier --stdin-filepath /out/x.js", "/out/x.js"),
        ("rspec --pattern=/out/x_spec.rb", "/out/x_spec.rb"),
        ("cargo test --manifest-path /out/Cargo.toml", "/out/Cargo.toml"),
        ("cargo run -- /out", "/out"),
        ("go test /out/...", "/out/..."),
        ("make -C /out", "/out"),
        ("make -sC/out test", "/out"),
        ("make -C sub -C deep x", "sub/deep"),
        ("cmake -S/out -B build", "/out"),
        ("cmake --build /out", "/out"),
        ("ninja -C /out", "/out"),
        ("gcc -I/out -o x x.c", "/out"),
        ("gcc -isystem/out x.c", "/out"),
        ("gcc -L /out x.c", "/out"),
        ("docker build -f /out/Dockerfile .", "/out/Dockerfile"),
        ("pandoc /out/x.md", "/out/x.md"),
        ("curl -d @/out/x localhost", "/out/x"),
    ],
)
def test_a_file_that_is_read_is_found(text: str, path: str):
    assert path in set(path_words(only(text).commands[0]))


@each_row(
    "text, path",
    [
        ("pytest --junitxml=/out", "/out"),
        ("pytest --junitxml out.xml", "out.xml"),
        ("cargo build --target-dir /out", "/out"),
        ("go build -o /out ./x", "/out"),
        ("go test -coverprofile=/out", "/out"),
        ("gcc -o/out x.c", "/out"),
        ("gcc -MF/out x.c", "/out"),
        ("cmake -B/out", "/out"),
        ("ruff check -o /out", "/out"),
        ("tsc --outDir /out", "/out"),
        ("coverage html -d/out", "/out"),
        ("pandoc -o /out x.md", "/out"),
    ],
)
def test_a_file_that_is_written_is_found(text: str, path: str):
    command = only(text).commands[0]
    assert path in {each.word for each in written(command)}
    assert path in set(path_words(command))


@each_row(
    "text, rule",
    [
        ("pytest -p evil", "pytest -p *"),
        ("make CC=gcc", "make CC=gcc *"),
        ("pip install -r requirements.txt", "pip install -r *"),
        ("pip install -e .", "pip install *"),
        ("python -c 'print(1)'", "python -c *"),
        ("python -m mytool x", "python -m mytool *"),
        ("npm --prefix web test", "npm --prefix *"),
        ("cargo install x", "cargo install *"),
        ("gcc -fplugin=x.so x.c", "gcc -fplugin=* *"),
    ],
)
def test_a_rule_that_names_what_asks_has_thought_of_it(text: str, rule: str):
    assert allowed(text, rule)


def test_every_program_of_the_table_has_a_grammar_or_asks():
    known = set(known_programs())
    assert [name for name, each in program_table().programs.items() if not each.asks and name not in known] == []


NAMES = sorted(name for name in known_programs() if ":" not in name)


def forms(form: Grammar, words: "tuple[str, ...]") -> "Iterator[tuple[tuple[str, ...], Grammar]]":
    yield words, form
    for verb, inner in form.verbs.items():
        if verb != AFTER:
            yield from forms(inner, (*words, verb))


# Of a `raw` form (`yarn test`) all words belong to the script that it runs.
EVERY = [
    (words, form) for name in NAMES for words, form in forms(grammar_of(name) or Grammar(), (name,)) if not form.raw
]


@given(st.data())
def test_no_unlisted_option_is_known(data: st.DataObject):
    """An option that a form does not list is unknown, in every spelling, and its value is found as a path."""
    words, form = data.draw(st.sampled_from(EVERY))
    name = data.draw(st.from_regex(r"--[a-z]{2,12}(-[a-z]{2,8})?", fullmatch=True))
    listed = form.flags | form.values.keys() | form.optional.keys()
    listed |= {f"-{each}" for each in listed if form.single} | {f"--no-{each[2:]}" for each in listed if form.negatable}
    if name in listed:
        return
    apart = data.draw(st.booleans())
    given_words = (*words[1:], *((name, "/out/x") if apart else (f"{name}=/out/x",)))
    grammar = grammar_of(words[0])
    assert grammar is not None
    parsed = grammar.parse(given_words)
    assert parsed.unknown
    assert "/out/x" in {each.word for each in parsed.arguments if each.kind.path} | set(parsed.options)


SPELLED = re.compile(
    r"(--?[A-Za-z0-9?#][\w.-]*)(\.\.\.)?( ?=?\[=?[^]]*\]|[= ]?<[^>]*>|[ =]?\{[^}]*\}|[= ][A-Za-z_][\w.,:|-]*)?"
)


def described(call: "tuple[str, ...]") -> "dict[str, str]":
    """The options that a program's help describes: "" without a value, "=" with one, "?" with an optional one."""
    if shutil.which(call[0]) is None:
        pytest.skip(f"{call[0]} is not installed")
    shown = subprocess.run([*call, "--help"], capture_output=True, text=True, check=False, timeout=60)
    found: dict[str, str] = {}
    for line in shown.stdout.splitlines():
        match = re.match(r"\s{1,10}(-.*)", line)
        if match is None:
            continue
        spec = re.split(r"\s{2,}|\s=\s|\t", match[1])[0] if "  " in match[1] or " = " in match[1] else match[1]
        spec = re.sub(r"^(-\w),\s+", r"\1, ", match[1]).split("  ")[0] if re.match(r"-\w,\s+--", match[1]) else spec
        parts = [SPELLED.match(part.strip()) for part in spec.split(", ")]
        values = [part[3].strip() for part in parts if part is not None and part[3]]
        arity = "" if not values else "?" if values[0].lstrip("=").startswith("[") else "="
        found |= {part[1]: arity for part in parts if part is not None}
    return found


def arity(form: Grammar, option: str) -> str | None:
    if option in form.values:
        return "="
    return "?" if option in form.optional else "" if option in form.flags else None


BIN = Path(sys.executable).parent
ORACLES = {
    (str(BIN / "pytest"),): 60,
    (str(BIN / "ruff"), "check"): 25,
    (str(BIN / "ruff"), "format"): 10,
    (str(BIN / "pip"), "install"): 25,
    (str(BIN / "pip"), "list"): 10,
    (str(BIN / "uv"), "sync"): 30,
    (str(BIN / "uv"), "export"): 30,
    (str(BIN / "uv"), "pip", "list"): 8,
    **{("cargo", verb): 15 for verb in ("build", "test", "run", "doc", "fix")},
    **{
        ("cargo", verb): 5
        for verb in ("clean", "tree", "metadata", "update", "add", "remove", "new", "fetch", "vendor")
    },
    ("make",): 30,
    ("cmake",): 10,
}


@each_row("call, least", ORACLES.items())
def test_programs_give_their_options_a_value_where_the_grammar_does(call: tuple[str, ...], least: int):
    form = grammar_of(Path(call[0]).name)
    for verb in call[1:]:
        assert form is not None
        form = form.verbs[verb]
    assert form is not None
    compared, wrong = 0, list[str]()
    for option, theirs in described(call).items():
        ours = arity(form, option)
        if ours is None:
            continue
        compared += 1
        # A program whose values never begin with a dash may take an optional one from the next word.
        same = ours == theirs or (ours, theirs) == ("?", "") or (form.dashless and (ours, theirs) == ("=", "?"))
        wrong += [] if same else [f"{option}: the program says {theirs!r}, the grammar {ours!r}"]
    assert not wrong, "\n".join(wrong)
    assert compared >= least


def test_the_value_of_an_option_is_never_of_an_unknown_kind():
    for words, form in EVERY:
        assert set(form.values.values()) <= set(WordKind), words
        assert form.ends <= form.values.keys() | form.flags, words
        assert form.attached <= form.values.keys() | form.optional.keys(), words
