"""Custom tools: what is read of their files, and the commands that calls become."""

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolError
from acp_agent.extend.custom_tools import CustomTools, read_tool
from acp_agent.extend.sources import SourceFile, SourceKind
from acp_agent.session.toolset.extensions import reserved_tools
from acp_agent.tools.custom import CustomTool, check, example
from tests.rows import each_row

NAME = 'name = "deploy"\ndescription = "Deploy"\n'
ENV = '[parameters]\nrequired = ["env"]\nproperties.env = { type = "string", enum = ["staging", "live"] }\n'
TEXT = "[parameters.properties]\nx = { type = 'string' }\n"


def file(text: str, name: str = "deploy") -> SourceFile:
    return SourceFile(
        SourceKind.TOOLS, name, f"/home/me/tools/{name}.toml", f"~/tools/{name}.toml", text.encode(), name
    )


def tool(text: str) -> CustomTool:
    found, problems = read_tool(file(text))
    assert (found is not None, problems) == (True, ())
    assert found is not None
    return found


def template(command: str, schema: str = TEXT) -> CustomTool:
    return tool(f"{NAME}command = {command!r}\n{schema}")


def test_a_file_is_a_tool_with_its_schema_and_defaults():
    found = tool(f'{NAME}command = ["./deploy.sh", "--env={{{{env}}}}"]\nenv = ["TOKEN"]\n{ENV}')
    assert (found.name, found.timeout, found.env) == ("deploy", 60, ("TOKEN",))
    assert found.spec().parameters["properties"] == {"env": {"type": "string", "enum": ["staging", "live"]}}
    assert found.spec().commands
    assert found.rendered({"env": "live"}) == "./deploy.sh '--env=live'"


@each_row(
    "text, problem",
    [
        ("name = ", "expected TOML"),
        (f"{NAME}command = ['x']\ntimout = 3\n", "timout: unknown key; did you mean timeout?"),
        ("name = 'Deploy it'\ndescription = 'd'\ncommand = ['x']\n", "name: expected a-z, 0-9 and _"),
        ("name = 'mcp_x_y'\ndescription = 'd'\ncommand = ['x']\n", "name: expected a-z, 0-9 and _"),
        ("command = ['x']\n", "description: expected what the tool does"),
        (NAME, "command: expected a list of a program and its arguments, or a line of the shell, got nothing"),
        (f"{NAME}command = []\n", "command: expected a program and its arguments"),
        (f"{NAME}command = [1]\n", "command: expected a list of texts"),
        (f"{NAME}command = ['x']\ntimeout = 601\n", "timeout: expected a whole number from 1 to 600, got 601"),
        (f"{NAME}command = ['x']\nenv = ['A=b']\n", "env: expected names of variables, without values"),
        (f"{NAME}command = ['x']\nenabled = 'no'\n", "enabled: expected true or false"),
        (f"{NAME}command = ['x', '{{{{y}}}}']\n", "command: {{y}} is no parameter"),
        (f"{NAME}command = ['x']\n{TEXT}", "command: expected {{x}} in it, or no parameter of this name"),
        (f"{NAME}command = ['{{{{x}}}}']\n[parameters]\ntype = 'array'\n", 'parameters.type: expected "object"'),
        (f"{NAME}command = ['x']\n[parameters]\nallOf = []\n", "parameters.allOf: expected only type, properties"),
        (f"{NAME}command = ['x']\n[parameters]\nrequired = ['q']\n", "parameters.required: expected a list of names"),
        (
            f"{NAME}command = ['x']\n[parameters]\ndescription = 2026-11-24\n",
            "parameters.description: expected a text of at most 1,024 characters",
        ),
        (
            f"{NAME}command = ['{{{{x}}}}']\n[parameters]\nrequired = ['x', 'x']\n{TEXT}",
            "parameters.required: expected a list of names of parameters, each once",
        ),
        (
            f"{NAME}command = ['{{{{x}}}}']\n[parameters.properties]\nx = {{ type = 'string', minLength = 1.5 }}\n",
            "x.minLength: expected a whole number from 0 on",
        ),
        (
            f"{NAME}command = ['{{{{x}}}}']\n[parameters.properties]\nx = {{ type = 'array', maxItems = -1 }}\n",
            "x.maxItems: expected a whole number from 0 on",
        ),
        (
            f"{NAME}command = ['{{{{x}}}}']\n[parameters.properties]\nx = {{ type = 'null' }}\n",
            "x.type: expected one of",
        ),
        (
            f"{NAME}command = ['{{{{x}}}}']\n[parameters.properties]\nx = {{ type = 'string', format = 'uri' }}\n",
            "x.format: expected only type, description, enum, default, minLength, maxLength for string",
        ),
        (
            f"{NAME}command = ['{{{{x}}}}']\n[parameters.properties]\nx = {{ type = 'integer', default = 'a' }}\n",
            "x.default: expected a whole number",
        ),
        (
            f"{NAME}command = ['{{{{x}}}}']\n[parameters.properties]\nx = {{ type = 'integer', minimum = nan }}\n",
            "x.minimum: expected a number",
        ),
        (
            f"{NAME}command = ['{{{{x}}}}']\n[parameters.properties.x]\ntype = 'array'\nitems = {{ type = 'array' }}\n",
            "x.items.type: expected one of string, integer, number, boolean",
        ),
    ],
)
def test_what_is_wrong_is_named_with_file_key_and_reason_and_the_tool_is_not_used(text: str, problem: str):
    found, problems = read_tool(file(text))
    assert found is None
    assert any(problem in str(each) for each in problems), [*map(str, problems)]
    assert all(str(each).startswith("~/tools/deploy.toml: ") for each in problems)


@each_row(
    "command",
    [
        "echo '{{x}}'",
        'echo "{{x}}"',
        'echo "a $(cat {{x}})"',
        "echo `cat {{x}}`",
        "echo $(( {{x}} ))",
        "[[ {{x}} -eq 1 ]]",
        "echo ${y:-{{x}}}",
        "cat <<END\n{{x}}\nEND",
        "ls # {{x}}",
        "ls;# {{x}}",
        "echo \\{{x}}",
        "echo ${{x}}",
        "a[{{x}}]=1",
        "echo $'a' {{x}}",
        "echo 'open {{x}}",
    ],
)
def test_a_placeholder_where_quotes_mean_something_else_is_an_error(command: str):
    found, problems = read_tool(file(f"{NAME}command = '''{command}'''\n{TEXT}"))
    assert found is None
    assert [each.key for each in problems] == ["command"], [*map(str, problems)]


SHELLS = (
    "printf '%s\\n' {{x}} # no".removesuffix(" # no"),
    "printf '%s\\n' a{{x}}b",
    "true && printf '%s\\n' {{x}} | cat",
    "(printf '%s\\n' {{x}})",
    "for i in {{x}}; do printf '%s\\n' $(printf %s end) $i; done",
    'X={{x}} sh -c \'printf "%s\\\\n" "$X"\'',
)


@each_row("command", SHELLS)
def test_no_value_of_a_template_runs_anything(command: str, tmp_path: Path):
    made = tool(f"{NAME}command = '''{command}'''\n{TEXT}")
    evil = "'; touch x; '\"$(touch x)`touch x`\n touch x #\\\n& touch x |$HOME*?~{a,b}!!"
    subprocess.run(["bash", "-c", made.rendered({"x": evil})], cwd=tmp_path, check=False, capture_output=True)
    assert [*tmp_path.iterdir()] == []


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
def test_each_value_is_one_word_of_the_command(value: str):
    schema = "[parameters.properties]\nx = { type = 'string' }\ny = { type = 'array' }\n"
    for made in (
        template("run {{x}} -- {{y}} end", schema),
        tool(f"{NAME}command = ['run', '{{{{x}}}}', '--', '{{{{y}}}}', 'end']\n{schema}"),
    ):
        assert shlex.split(made.rendered({"x": value, "y": [value, "b"]})) == ["run", value, "--", value, "b", "end"]


@each_row(
    "arguments, command",
    [
        ({}, "run"),
        ({"n": 3}, "run '-n3'"),
        ({"n": 3.0}, "run '-n3'"),
        ({"files": ["a b", "c"]}, "run '--file=a b' '--file=c'"),
        ({"n": 1, "files": [], "flag": True}, "run '-n1' 'true'"),
        ({"n": 1, "flag": "{{n}}"}, "run '-n1' '{{n}}'"),
    ],
)
def test_an_argument_whose_parameter_is_not_given_is_left_out(arguments: dict[str, Any], command: str):
    made = tool(
        f"{NAME}command = ['run', '-n{{{{n}}}}', '--file={{{{files}}}}', '{{{{flag}}}}']\n[parameters.properties]\n"
        "n = { type = 'integer' }\nfiles = { type = 'array' }\nflag = { type = 'boolean' }\n"
    )
    assert made.rendered(arguments) == command


def test_lists_with_more_combinations_than_a_command_can_have_are_refused():
    made = tool(
        f"{NAME}command = ['run', '{{{{a}}}}={{{{b}}}}']\n[parameters.properties]\n"
        "a = { type = 'array' }\nb = { type = 'array' }\n"
    )
    assert made.rendered({"a": ["1", "2"], "b": ["3"]}) == "run '1=3' '2=3'"
    with pytest.raises(ToolError, match="make more than 10,000 words"):
        made.rendered({"a": ["1"] * 50_000, "b": ["2"] * 50_000})


@each_row(
    "arguments, problem",
    [
        ({}, "env is missing (expected one of staging, live)"),
        ({"env": "prod"}, 'env = "prod" (expected one of staging, live)'),
        ({"env": 3}, "env = 3 (expected one of staging, live)"),
        ({"env": "live", "more": 1}, 'unknown key "more" (known keys: env, n, xs)'),
        ({"env": "live", "n": True}, "n = true (expected a whole number from 1 to 9)"),
        ({"env": "live", "n": 10}, "n = 10 (expected at most 9)"),
        ({"env": "live", "n": 1.5}, "n = 1.5 (expected a whole number from 1 to 9)"),
        ({"env": "live", "n": float("nan")}, "(expected a whole number from 1 to 9)"),
        ({"env": "live", "xs": ["\0"]}, "contains a NUL character"),
        ({"env": "live", "xs": [1]}, "expected a string"),
        ({"env": "live", "xs": ["a", "b", "c"]}, "expected at most 2 items"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: dict[str, Any], problem: str):
    made = tool(
        f"{NAME}command = 'x {{{{env}}}} {{{{n}}}} {{{{xs}}}}'\n{ENV}"
        "properties.n = { type = 'integer', minimum = 1, maximum = 9 }\n"
        "properties.xs = { type = 'array', items = { type = 'string' }, maxItems = 2 }\n"
    )
    with pytest.raises(ToolError) as caught:
        check(made, arguments)
    assert problem in str(caught.value)
    check(made, example(made))


def test_names_of_other_tools_are_refused_and_the_rest_works():
    tools = CustomTools(reserved_tools(), str)
    named = ("bash", "glob", "agent", "load_skill", "lsp_hover", "ask_user")
    taken = [file(f"description = 'd'\ncommand = ['x']\nname = '{name}'\n", name) for name in named]
    twice = [file(f"{NAME}command = ['a']\n", "one"), file(f"{NAME}command = ['b']\n", "two")]
    off = file("description = 'd'\ncommand = ['x']\nenabled = false\n", "off")
    tools.read((*taken, *twice, off))
    assert [(each.name, each.rendered({})) for each in tools.all] == [("deploy", "a")]
    assert [str(each) for each in tools.problems] == [
        *(f"~/tools/{n}.toml: name: '{n}' is a tool of the agent itself; this one is not used" for n in named),
        "~/tools/two.toml: name: 'deploy' is already defined in ~/tools/one.toml; this one is not used",
    ]
    assert tools.status() == ("Custom tools: deploy",)


def test_the_examples_of_the_page_are_tools_and_do_what_it_says(tmp_path: Path):
    page = (Path(__file__).parents[3] / "docs" / "custom-tools.md").read_text()
    deploy, count = (tool(part.partition("\n```")[0]) for part in page.split("```toml\n")[1:])
    command = deploy.rendered({"env": "staging", "pages": ["a b.html"]})
    assert f"\n```\n{command}\n```\n" in page
    assert f"asked      {deploy.rendered({'env': 'live'})}\n" in page
    (tmp_path / "it's.txt").write_text("it's\nso\n")
    (tmp_path / "no.txt").write_text("not\n")
    line = count.rendered({"text": "it's"})
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert line == "grep -rlZF -e 'it'\"'\"'s' '.' | xargs -0 wc -l"
    assert done.stdout.strip() == "2 ./it's.txt"
