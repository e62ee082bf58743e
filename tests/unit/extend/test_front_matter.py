"""Front matter of definitions: what is read, and what is said about the rest."""

import pytest

from acp_agent.extend.front_matter import MAX_FRONT, OTHERS_KEYS, DefinitionProblem, Fields, MarkdownFile, parse
from tests.rows import each_row


def parsed(front: str, body: str = "Do it.\n") -> MarkdownFile:
    found = parse(f"---\n{front}\n---\n{body}".encode(), "x.md")
    assert isinstance(found, MarkdownFile), str(found)
    return found


def problem(front: str) -> str:
    found = parse(f"---\n{front}\n---\n".encode(), "x.md")
    assert isinstance(found, DefinitionProblem), found
    return str(found)


def fields(front: str) -> Fields:
    found = parsed(front)
    return Fields(found.file, found.values, found.lines)


# ------------------------------------------------------------------------------------------- the text


def test_a_file_without_front_matter_is_all_body():
    assert parse(b"Do it.\n\n---\nand more\n", "x.md") == MarkdownFile("x.md", "Do it.\n\n---\nand more\n")
    assert parse(b"", "x.md") == MarkdownFile("x.md", "")


def test_a_rule_in_the_body_ends_nothing():
    found = parsed("name: a", "one\n---\ntwo\n")
    assert (found.values, found.body) == ({"name": "a"}, "one\n---\ntwo\n")


def test_a_byte_order_mark_and_crlf_make_no_difference():
    found = parse(b"\xef\xbb\xbf---\r\nname: a\r\n---\r\n\r\nDo it.\r\n", "x.md")
    assert found == MarkdownFile("x.md", "Do it.\n", {"name": "a"}, {"name": 2})


def test_empty_front_matter_has_no_values():
    assert parse(b"---\n---\nDo it.", "x.md") == MarkdownFile("x.md", "Do it.")


def test_an_unquoted_colon_is_part_of_the_text_as_in_files_of_the_wild():
    found = parsed("name: a\ndescription: Use this when: it's late # now\nmodel: opus")
    assert found.values == {"name": "a", "description": "Use this when: it's late # now", "model": "opus"}


def test_lines_that_are_not_indented_belong_to_the_text_before_them_as_in_files_of_the_wild():
    found = parsed(
        'name: a\ndescription: Use this when. Examples:\n\n<example>\nContext: it\'s \\n late\nuser: "x"\n</example>\n'
        "model: opus\ncolor: red"
    )
    text = 'Use this when. Examples:\n\n<example>\nContext: it\'s \\n late\nuser: "x"\n</example>'
    assert found.values == {"name": "a", "description": text, "model": "opus", "color": "red"}
    assert found.lines == {"name": 2, "description": 3, "model": 9, "color": 10}


def test_brackets_that_are_no_list_are_text():
    assert parsed("argument-hint: [file] [--all]\ntools: [a, b]").values == {
        "argument-hint": "[file] [--all]",
        "tools": ["a", "b"],
    }


def test_no_key_is_lost_in_a_text_before_it():
    front = "description: Use this: now\nand then\nuser: go\ndisallowedTools: [bash]\nanything-new: x\nmode: ask"
    assert [*parsed(front).values] == ["description", "disallowedTools", "anything-new", "mode"]
    assert problem("disallowedTools: [bash").startswith("x.md, line 2: expected YAML")


def test_only_decimal_numbers_are_numbers_and_dates_stay_text():
    found = parsed("a: 5\nb: 0x10\nc: 12:30\nd: 2024-01-01\ne: 1.5\nf: " + "9" * 5000)
    assert found.values == {"a": 5, "b": "0x10", "c": "12:30", "d": "2024-01-01", "e": 1.5, "f": "9" * 5000}


@each_row(
    "front, said",
    [
        ("a: &x [1]\nb: *x", "x.md, line 2: expected plain values, without anchors (&) and aliases (*)"),
        ("a: 1\nb: 2\na: 3", "x.md, line 4: a: expected each key once"),
        ("t:\n  a: 1\n  a: 3", "x.md, line 4: a: expected each key once"),
        (
            "a: !!python/object:os.system x",
            "x.md, line 2: expected plain values, got the tag 'python/object:os.system'",
        ),
        ("- a\n- b", "x.md, line 2: expected keys with values, such as `name: text`"),
        ("? [a, b]\n: c", "x.md, line 2: expected a text as key"),
        ("a: 'x", "x.md, line 2: expected YAML: found unexpected end of stream"),
        ("a: b\n\tc: d", "x.md, line 3: expected YAML: found character '\\t' that cannot start any token"),
        ("a: " + "[" * 9000, "x.md, line 2: expected values nested at most 8 deep"),
        ("a: " + "{a: " * 4000, "x.md, line 2: expected values nested at most 8 deep"),
        ("a: [" + "x," * 8000 + "]", "x.md, line 2: expected at most 500 keys and values"),
        ("a: [" + "[],{}," * 2000 + "]", "x.md, line 2: expected at most 500 keys and values"),
        ("a: " + "b" * MAX_FRONT, "x.md, line 1: expected at most 16,384 characters of front matter, got 16,387"),
        ('a: "\u202eb', "x.md, line 2: expected YAML"),
    ],
)
def test_what_is_not_plain_is_named_with_its_line(front: str, said: str):
    told = problem(front)
    assert told.startswith(said)
    assert told.isprintable()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"---\nname: a\n", "x.md, line 1: expected a line --- that ends the front matter"),
        (b"---\nname: \xff\n---\n", "x.md, line 2: expected text in UTF-8, but byte 10 is not"),
        (b"---\nname: a\n---\nb\0", "x.md, line 4: expected text, got a NUL character"),
        (b"x" * (256 * 1024 + 1), "x.md: expected at most 256 KiB, got 262,145 bytes"),
    ],
)
def test_what_is_no_text_is_a_problem(data: bytes, said: str):
    assert str(parse(data, "x.md")) == said


# ------------------------------------------------------------------------------------------- the keys


def test_known_keys_are_read_and_others_named():
    read = fields(
        "name: a\nversion: 1.2\nturns: 5\nquiet: true\ntools: [read, grep]\n"
        "env: {A: B}\ncolor: red\nmetadata: {x: 1}\nturn: 1\nother: 1"
    )
    assert (read.text("name"), read.text("version"), read.text("absent", "-")) == ("a", "1.2", "-")
    assert (read.number("turns", 20, 1, 100), read.number("absent", 20, 1, 100)) == (5, 20)
    assert (read.flag("quiet"), read.flag("absent")) == (True, False)
    assert (read.texts("tools"), read.texts("absent")) == (("read", "grep"), ())
    assert (read.table("env"), read.table("absent")) == ({"A": "B"}, {})
    assert read.problems == []
    read.note_unknown(OTHERS_KEYS)
    assert [(*map(str, (each,)), each.minor) for each in read.problems] == [
        ("x.md, line 8: color: a key of other agents, which has no effect here", True),
        ("x.md, line 10: turn: unknown key; did you mean turns?", False),
        ("x.md, line 11: other: unknown key (known keys: name, version, absent, turns, quiet, tools, env)", False),
    ]


def test_a_list_may_be_one_text_with_commas_as_claude_code_has_it():
    read = fields(
        "tools: Read, Bash(git add:*, git log) ,Grep,\nglobs: src/**/*.{ts,tsx}, lib/a b\nallowed: Bash(a b) Read, Grep"
    )
    assert read.texts("tools") == ("Read", "Bash(git add:*, git log)", "Grep")
    assert read.texts("globs") == ("src/**/*.{ts,tsx}", "lib/a b")
    assert read.texts("allowed", blanks=True) == ("Bash(a b)", "Read", "Grep")


def test_a_value_of_another_type_is_a_problem_and_the_rest_works():
    read = fields("name: [a]\nturns: many\nquiet: 1\ntools: {a: 1}\nenv: b\nmax: true\nlong: " + "x" * 3000)
    assert (read.text("name", "-"), read.number("turns", 20, 1, 100), read.flag("quiet", True)) == ("-", 20, True)
    assert (read.texts("tools"), read.table("env")) == ((), {})
    assert (read.number("max", 3, 1, 5), read.text("long", "-")) == (3, "-")
    assert [*map(str, read.problems)] == [
        'x.md, line 2: name: expected a text of at most 2,000 characters, got ["a"]',
        "x.md, line 3: turns: expected a whole number from 1 to 100, got 'many'",
        "x.md, line 4: quiet: expected true or false, got 1",
        'x.md, line 5: tools: expected a list of texts, got {"a": 1}',
        "x.md, line 6: env: expected a table, got 'b'",
        "x.md, line 7: max: expected a whole number from 1 to 5, got true",
        f"x.md, line 8: long: expected a text of at most 2,000 characters, got '{'x' * 60}…'",
    ]
