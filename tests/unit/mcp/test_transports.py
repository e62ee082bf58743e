"""What a server's program sees of our environment."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.mcp import StdioServer
from acp_agent.workspace.processes.program import PipedProgram, ProgramStart, server_environment
from acp_agent.workspace.processes.table import MARK

SOURCE = {
    "PATH": "/bin",
    "HOME": "/home/fake",
    "LC_TIME": "C",
    "OPENAI_API_KEY": "fake",
    "LD_PRELOAD": "/x",
    "HTTP_PROXY": "x",
}
FORBIDDEN = (
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH", "DYLD_FRAMEWORK_PATH"),
    *("DYLD_FALLBACK_LIBRARY_PATH", "PATH", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "BASH_ENV", "ENV"),
    *("PYTHONPATH", "NODE_PATH", "RUBYLIB", MARK),
    *("NODE_OPTIONS", "PERL5OPT", "PERL5LIB", "PERL5DB", "PERLLIB", "RUBYOPT", "PYTHONHOME", "PYTHONSTARTUP"),
    *(
        "PYTHONBREAKPOINT",
        "PYTHONUSERBASE",
        "GEM_PATH",
        "GEM_HOME",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "CLASSPATH",
    ),
    *("_JAVA_OPTIONS", "DOTNET_STARTUP_HOOKS", "LUA_INIT", "LUA_PATH", "LUA_CPATH", "PHPRC", "PHP_INI_SCAN_DIR"),
    *("GIT_EXEC_PATH", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_EXTERNAL_DIFF"),
    *("GIT_ASKPASS", "GIT_PROXY_COMMAND", "GIT_PAGER", "GIT_EDITOR", "GIT_TEMPLATE_DIR", "GCONV_PATH", "SSH_ASKPASS"),
)


def test_a_few_plain_variables_are_passed_on_and_no_key():
    assert server_environment(SOURCE, ()) == ({"PATH": "/bin", "HOME": "/home/fake", "LC_TIME": "C"}, ())


def test_what_the_entry_adds_is_added():
    added = {"TOKEN": "fake", "HOME": "/srv", "ENVIRONMENT": "dev", "GIT_AUTHOR_NAME": "me", "PYTHONUNBUFFERED": "1"}
    environment, dropped = server_environment(SOURCE, added.items())
    assert dropped == ()
    assert {name: environment[name] for name in added} == added


@given(name=st.sampled_from(FORBIDDEN), case=st.lists(st.booleans(), min_size=30, max_size=30))
def test_a_name_that_changes_what_is_loaded_is_dropped_in_every_case(name, case):
    written = "".join(char.lower() if low else char for char, low in zip(name, case, strict=False))
    assert server_environment({}, ((written, "/evil"),)) == ({}, (written,))


def test_every_name_that_changes_what_is_loaded_is_dropped_as_it_is_and_in_other_cases():
    for name in FORBIDDEN:
        for written in (name, name.lower(), name.title(), name[:-1] + name[-1].lower()):
            assert server_environment({}, ((written, "/evil"),)) == ({}, (written,))


@pytest.mark.parametrize(("name", "value"), [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0y")])
def test_what_no_program_can_be_given_is_dropped(name, value):
    assert server_environment({}, ((name, value),)) == ({}, (name,))


@pytest.mark.anyio
async def test_the_end_of_a_program_is_told_by_its_code_or_its_signal():
    told: list[str] = []
    for line in ("exit 0", "exit 3", "kill -9 $$"):
        program = await PipedProgram.start(StdioServer("sh", ("-c", line)), ProgramStart({"PATH": os.defpath}))
        await program.exited()
        told.append(program.describe_exit())
        await program.end()
    assert told == ["ended with 0", "ended with 3", "ended with signal 9"]
