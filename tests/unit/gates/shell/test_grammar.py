"""Grammars of programs: what they know, how they read bundles, and that git agrees about every value."""

import re
import subprocess
import tomllib
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.gates.paths.command_paths import path_words
from acp_agent.gates.paths.unnamed_paths import name_list
from acp_agent.gates.rules.permission_rules import Action, judge
from acp_agent.gates.shell.command import Command, Plain, ShellText, analyse
from acp_agent.gates.shell.grammar import GUESS, KEYS, Grammar, ParsedArguments, WordKind, _form, grammar_of
from acp_agent.gates.shell.programs import program_table
from tests.rows import each_row
from tests.unit.gates.chain import rules
from tests.unit.gates.shell.grammars import known_programs

FILES = [each.name for each in files("acp_agent.gates").joinpath("grammars").iterdir() if each.name.endswith(".toml")]
USAGE = re.compile(
    r"^\s{4}(?:(-\w), )?(-\w|--[\w-]+)?(\[=?<[^>]+>[^\]]*\]|=?[ ]?<[^>]+>|=\([^)]*\)| \([^)]*\)|\[=[^\]]+\])?"
)

TEXT = WordKind.TEXT


def parsed(text: str) -> ParsedArguments:
    verdict = analyse(text)
    assert isinstance(verdict, Plain)
    grammar = grammar_of(verdict.commands[0].name)
    assert grammar is not None
    return grammar.parse(verdict.commands[0].argv[1:])


def words(text: str) -> set[str]:
    verdict = analyse(text)
    assert isinstance(verdict, Plain)
    return set(path_words(verdict.commands[0]))


def allowed(text: str, *patterns: str) -> bool:
    return judge(ShellText(text), rules(*patterns), lambda _: None).action is Action.ALLOW


def forms(form: Grammar, name: str) -> "list[tuple[str, Grammar]]":
    return [(name, form), *(each for verb, inner in form.verbs.items() for each in forms(inner, f"{name} {verb}"))]


def test_an_option_may_take_the_place_of_the_pattern():
    for text, paths in (
        ("rg x src", {"src"}),
        ("rg --files src", {"src"}),
        ("rg --files src tests", {"src", "tests"}),
        ("ack -f src", {"src"}),
    ):
        assert {each.word for each in parsed(text).arguments if each.kind.path} == paths, text


def test_a_list_of_names_is_read_from_no_other_option():
    for text, option in (
        ("wc --files0-from=x", "--files0-from"),
        ("wc --files0-f x", "--files0-from"),
        ("wc -- x", ""),
        ("wc -l x", ""),
        ("tar cTf x y", "-T"),
        ("tar -c -T x", "-T"),
        ("tar c -- T", ""),
        ("cat x", ""),
    ):
        assert name_list(Command(tuple(text.split()))) == option, text


@each_row("name", FILES)
def test_every_key_of_a_grammar_file_is_known(name: str):
    data = tomllib.loads(files("acp_agent.gates").joinpath("grammars", name).read_text(encoding="utf-8"))
    if name == "index.toml":
        assert {f"{family}.toml" for family in data} | {"index.toml"} == set(FILES)
        return
    data.pop("aliases", None)
    stack = [*data.pop("sets", {}).values(), *data.values()]
    while stack:
        table = stack.pop()
        stack += [each for key, each in table.items() if isinstance(each, dict) and key != "choices"]
        assert {key for key, each in table.items() if not isinstance(each, dict) or key == "choices"} <= KEYS


def test_every_grammar_is_whole_and_has_the_program_of_its_approvals():
    for program in known_programs():
        grammar = grammar_of(program)
        assert grammar is not None, program
        for name, form in forms(grammar, program):
            assert not form.flags & set(form.values), name
            assert not set(form.optional) & (set(form.values) | form.flags), name
            listed = form.flags | set(form.values) | set(form.optional)
            assert all(option.startswith("-") for option in listed), name
            assert form.asking <= listed, name
            single = [option for option in listed if not option.startswith("--") and len(option) > 2]
            assert form.single or not single, (name, single)
    table = program_table()
    for name in ("git",):
        assert name in table.programs


@each_row(
    "text, unknown",
    [
        ("git log --oneline -n 20 -5 -- x", ()),
        ("git log --no-renames --no-merges", ()),
        ("git format-patch --suffix=.sh -1", ("--suffix",)),
        ("git merge -Xsubtree=.vscode b", ("-X subtree=.vscode",)),
        ("git -c a=b log", ("-c",)),
        ("git frob x", ("frob",)),
        ("git stash store x", ("store",)),
        ("git log --outp=x", ("--outp",)),
        ("git update-index --add --cacheinfo 100755,abc,.envrc", ("--cacheinfo",)),
        ("git apply --stat --apply --unsafe-paths a.patch", ("--unsafe-paths",)),
    ],
)
def test_what_a_grammar_does_not_list_is_unknown(text: str, unknown: tuple[str, ...]):
    assert parsed(text).unknown == unknown


@each_row(
    "text, path",
    [
        ("git format-patch -no/abs -1", "/abs"),
        ("git format-patch -1 -sno /abs", "/abs"),
        ("git commit -nF/abs/file", "/abs/file"),
        ("git commit -qnF /abs/file", "/abs/file"),
        ("git commit --file=/abs/file", "/abs/file"),
        ("git blame --contents /abs/file x", "/abs/file"),
        ("git ls-files -oX/abs/file", "/abs/file"),
        ("git -C sub commit -F file", "sub/file"),
        ("git -C sub -C deep commit -F file", "sub/deep"),
        ("git log -ZC/abs", "/abs"),
        ("git frob -o/abs", "/abs"),
    ],
)
def test_the_file_behind_an_option_is_found_in_every_bundle(text: str, path: str):
    assert path in words(text)


@pytest.mark.parametrize(
    "text",
    [
        "git commit -m /etc/passwd",
        "git log --format=/etc/passwd",
        "git log -S/etc/passwd",
        "git grep /etc/passwd",
        "git grep -e /etc/passwd",
    ],
)
def test_what_is_no_file_is_not_taken_for_one(text: str):
    assert "/etc/passwd" not in words(text)


@pytest.mark.parametrize(
    "text",
    [
        "git config core.fsmonitor 'touch x' --get",
        "git config --type=path core.pager evil",
        "git config set core.pager evil",
        "git config --file .git/config core.pager evil",
        "git config edit",
    ],
)
def test_git_config_is_reading_only_as_git_itself_reads_its_arguments(text: str):
    assert not allowed(text, "git *")


@each_row(
    "text",
    [
        "git --bare diff m~1 m",
        "git --bare init",
        "git notes add -m 'print(1)' HEAD",
        "git notes append -m x",
        "git apply --directory=sub .git/COMMIT_EDITMSG",
        "git apply a.patch",
        "git apply --stat --index a.patch",
        "git am a.patch",
        "git config -f x --includes --get a.b",
    ],
)
def test_git_neither_plants_content_nor_takes_another_repository_under_a_wildcard(text: str):
    assert not allowed(text, "git *")


@pytest.mark.parametrize(
    "text", ["git apply --stat a.patch", "git apply --check a.patch", "git notes show", "git am --abort"]
)
def test_git_looks_at_patches_and_notes_unasked(text: str):
    assert allowed(text, "git *")


@each_row(
    "text, rule",
    [
        ("git hash-object -w --stdin", "git *"),
        ("git hash-object -w --stdin-paths", "git *"),
        ("git hash-object -w -t tree x", "git *"),
        ("pytest --doctest-glob=COMMIT_EDITMSG .git/COMMIT_EDITMSG", "pytest *"),
        ("pytest --trace -s", "pytest *"),
        ("pytest --pdb", "pytest *"),
        ("pytest --log-file=test_x.py", "pytest *"),
        ("pytest --junitxml=GNUmakefile", "pytest *"),
        ("ruff check -o GNUmakefile .", "ruff *"),
        ("mypy --junit-xml Makefile .", "mypy *"),
        ("sed -n -i s/a/b/p x", "sed -n *"),
        ("sed -ni s/a/b/p x", "sed -n *"),
        ("jq -n '$ ENV'", "jq *"),
        ("go test -mod=mod evil.example/pkg", "go *"),
    ],
)
def test_no_option_makes_code_of_what_a_command_prints_or_reports(text: str, rule: str):
    assert not allowed(text, rule)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("pytest --junitxml=report.xml", "pytest *"),
        ("sed -n 1,4p x", "sed -n *"),
        ("sed -i s/a/b/ x", "sed -i *"),
        ("git hash-object x", "git *"),
    ],
)
def test_reports_and_plain_reading_stay_silent(text: str, rule: str):
    assert allowed(text, rule)


@pytest.mark.parametrize(
    "text", ["prog --a.b=/outside", "prog -Dx.y=/outside", "prog a.b=/outside", "prog --a:b=/outside"]
)
def test_a_value_behind_any_name_of_an_option_may_be_a_path(text: str):
    assert "/outside" in words(text)


def test_a_script_of_the_project_is_not_read_as_the_tool_of_that_name():
    assert allowed("./test --all x", "./test *")
    assert "x" in words("./echo x")
    assert allowed("node_modules/.bin/eslint src", "node_modules/.bin/eslint *")
    assert not allowed("node_modules/.bin/eslint --rulesdir x src", "node_modules/.bin/eslint *")


def test_what_a_package_runner_starts_is_read_as_that_program():
    assert allowed("npx tsc --noEmit", "npx tsc *")
    assert not allowed("npx jest --globalSetup=x", "npx jest *")
    assert not allowed("npx -c 'touch x'", "npx *")


def test_a_rule_that_names_an_option_outright_has_thought_of_it():
    assert allowed("git -c color.ui=always log", "git -c *")
    assert not allowed("git -c color.ui=always log", "git *")


_LETTERS = st.text(st.characters(categories=["Ll", "Lu"], max_codepoint=127), min_size=1, max_size=5)


@given(
    st.sampled_from(sorted(name for name, _ in forms(grammar_of("git") or Grammar(), "git") if name.count(" ") == 1)),
    _LETTERS,
    st.booleans(),
)
def test_no_bundle_of_letters_hides_a_file_from_a_call_that_is_known(form: str, letters: str, apart: bool):
    """A call whose options are all known shows every absolute path that one of them takes as a file."""
    text = f"{form} -{letters} /secret/file" if apart else f"{form} -{letters}/secret/file"
    found = parsed(text)
    taken = [each for each in found.arguments if "/secret/file" in each.word]
    if not found.unknown:
        assert all(each.kind.path or each.kind in (WordKind.TEXT, WordKind.PATTERN) for each in taken)
    if found.unknown:
        assert {each.option for each in taken} <= {GUESS, ""} or taken


def usage(subcommand: str) -> dict[str, str]:
    """The options that `git SUBCOMMAND -h` shows: "" without a value, "=" with one, "?" with an optional one."""
    shown = subprocess.run(["git", *subcommand.split(), "-h"], capture_output=True, text=True, check=False, timeout=20)
    found: dict[str, str] = {}
    for line in (shown.stdout + shown.stderr).splitlines():
        match = USAGE.match(line)
        if match is None or not (match[1] or match[2]):
            continue
        value = match[3] or ""
        arity = "?" if value.startswith("[") else "=" if value else ""
        found |= dict.fromkeys((name for name in (match[1], match[2]) if name), arity)
    return found


# Their value is the next word if there is one, else HEAD: as an operand it is a commit as well.
LAST = ("--contains", "--no-contains", "--merged", "--no-merged")
# Described in another way than the rest.
UNREADABLE = ("--diff-filter", "--fixup", "--branches", "--tags", "--remotes", "--exclude-hidden", "--glob")


def test_git_itself_gives_every_listed_option_a_value_where_the_grammar_does():
    grammar = grammar_of("git")
    assert grammar is not None
    wrong: list[str] = []
    compared = 0
    for verb, form in grammar.verbs.items():
        shown = usage(verb)
        for option, arity in shown.items():
            ours = (
                "="
                if option in form.values
                else "?"
                if option in form.optional
                else ""
                if option in form.flags
                else None
            )
            if ours is not None and option not in LAST and option not in UNREADABLE:
                compared += 1
                wrong += [f"git {verb} {option}: git says {arity!r}, the grammar {ours!r}"] if ours != arity else []
    assert not wrong, "\n".join(wrong)
    assert compared > 300


def test_a_form_has_the_options_of_the_sets_that_it_uses_unless_its_own_table_says_otherwise():
    shared = {
        "flags": "-a -b -y!", "text": "-c", "optional": "-d", "choices": {"-e": "x y"}, "attached": "-f",
    }  # fmt: skip
    own = {
        "use": "shared", "text": "-a -d", "read": "-r", "pairs": "--arg", "flags": "-c -x! -y", "unsure": "-u",
        "patternless": "-p", "optional_names": "-b", "attached": "-g! -r", "ends": "-m",
        "operands": "pattern read* write", "single": True, "numeric": True, "stop": False,
        "sub": {"flags": "-z", "raw": True}, "alias": {"like": "sub"},
    }  # fmt: skip
    sub = Grammar(flags=frozenset(("-z",)), single=True, raw=True)
    assert _form(own, {"shared": shared}) == Grammar(
        flags=frozenset(("-c", "-x", "-y", "-u", "-p")),
        values={"-e": TEXT, "-a": TEXT, "-d": TEXT, "-r": WordKind.READ, "--arg": TEXT},
        optional={"-f": TEXT, "-b": WordKind.NAME, "-g": TEXT},
        operands=(WordKind.PATTERN, WordKind.READ, WordKind.WRITE),
        repeated=1,
        verbs={"sub": sub, "alias": sub},
        choices={"-e": frozenset("xy")},
        asking=frozenset(("-x", "-g")),
        pairs=frozenset(("--arg",)),
        unsure=frozenset(("-u",)),
        patternless=frozenset(("-p",)),
        numeric=True,
        single=True,
        attached=frozenset(("-f", "-g", "-r")),
        ends=frozenset(("-m",)),
    )
