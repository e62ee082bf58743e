"""Names of tools in defaults and tables: each means a tool that there is."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import acp_agent
from acp_agent.config.settings import Settings
from acp_agent.core.types import ALIASES
from acp_agent.extend.skills import SkillLibrary
from acp_agent.gates.mode import READONLY_TOOLS
from acp_agent.gates.selection import GROUPS, PROFILES
from acp_agent.tools.agent import AgentAction, AgentTool, EvaluateTool, HandoffTool
from acp_agent.tools.board import Messages, Tasks
from acp_agent.tools.lsp import lsp_tools
from acp_agent.tools.registry import default_tools
from acp_agent.tools.scheduler import SchedulerTool
from acp_agent.tools.skills import skill_tools
from tests.rows import each_row
from tests.sources import tree_of

SOURCES = Path(acp_agent.__file__).parent
CATALOGUE = {
    tool.name
    for tool in (
        *default_tools(memory=True, compression=True, questions=True),
        AgentAction(),
        AgentTool(),
        EvaluateTool(),
        HandoffTool(),
        Tasks(),
        Messages(),
        SchedulerTool(),
        *skill_tools(SkillLibrary(str, tuple), searchable=True),
        *lsp_tools(lambda _: True),
    )
}
"""Every tool that a session may have, but those of MCP servers."""


def literals(file: Path) -> Iterator[tuple[int, set[str]]]:
    """Every collection of texts in a source, and the keys of every table, with its line; nothing without two names."""
    if len(CATALOGUE & set(re.findall(r"""["'](\w+)["']""", file.read_text(encoding="utf-8")))) < 2:
        return
    for node in ast.walk(tree_of(file)):
        match node:
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                pass
            case ast.Dict(keys=elements):
                pass
            case _:
                continue
        texts = {each.value for each in elements if isinstance(each, ast.Constant) and isinstance(each.value, str)}
        if texts and len(texts) == len(elements):
            yield node.lineno, texts


def test_every_name_in_a_table_of_tools_is_that_of_a_tool():
    assert SOURCES.is_dir()
    found = 0
    for file in SOURCES.rglob("*.py"):
        for line, texts in literals(file):
            known = texts & CATALOGUE
            if len(known) < 2 or len(known) * 2 < len(texts):
                continue  # no table of tools
            found += 1
            assert texts <= CATALOGUE | {f"group:{group}" for group in GROUPS}, f"{file}:{line}"
    assert found >= 5


@each_row(
    "names",
    [
        READONLY_TOOLS,
        set().union(*GROUPS.values()),
        {name for names in PROFILES.values() for name in names or () if not name.startswith("group:")},
        {*ALIASES.values()},
        {*Settings().agent.tool_filter.always_on},
        {*Settings().tools.utility.exempt_tools, *Settings().tools.adversarial_policy.exempt_tools},
        {*Settings().tools.dependencies.rules},
    ],
    ids=["readonly", "groups", "profiles", "aliases", "always_on", "exempt", "dependencies"],
)
def test_every_default_names_tools_that_there_are(names: set[str]):
    assert names <= CATALOGUE
