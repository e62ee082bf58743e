"""load_skill, invoke_skill and skill_search: skills that the user or a trusted project has. See docs/skills.md.

They are offered only if there are skills. A skill is text that the model follows, so its body is not fenced as data.
What it says to run or read runs through the gates, as if the model had thought of it.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from acp_agent.core.errors import ToolError
from acp_agent.core.ports import ToolContext
from acp_agent.core.services import Skills, SkillText
from acp_agent.core.types import Frame, ToolKind, ToolResult
from acp_agent.shape import Field
from acp_agent.text import title
from acp_agent.tools.tool import WHOLE, Name, P, Params, SessionTool, Text, Tool


class SkillTool(SessionTool[P]):
    """A tool that only reads what the session knows of skills. Their texts were read before, with consent."""

    mutates = False

    def __init__(self, skills: Skills) -> None:
        self._skills = skills

    def _loaded(self, name: str, arguments: str | None = None) -> ToolResult:
        found = self._skills.load(name, arguments)
        return ToolResult("", frame=Frame(head=found.text, headline=found.shown))


class LoadSkillParams(Params):
    """Read the instructions of a skill."""

    name: Name


class LoadSkill(SkillTool[LoadSkillParams]):
    """The tool that reads a skill."""

    name = "load_skill"
    kind = ToolKind.OTHER

    def title(self, params: LoadSkillParams) -> str:
        return title(f"Skill: {params.name}")

    async def run(self, params: LoadSkillParams, context: ToolContext) -> ToolResult:
        del context
        return self._loaded(params.name)


class InvokeSkillParams(Params):
    """Read a skill with arguments put in their places, to carry it out now."""

    name: Name
    arguments: Text


class InvokeSkill(SkillTool[InvokeSkillParams]):
    """The tool that reads a skill with arguments."""

    name = "invoke_skill"
    kind = ToolKind.OTHER

    def title(self, params: InvokeSkillParams) -> str:
        return title(f"Skill: {params.name} {params.arguments}")

    async def run(self, params: InvokeSkillParams, context: ToolContext) -> ToolResult:
        del context
        return self._loaded(params.name, params.arguments)


class SkillSearchParams(Params):
    """Find skills by words."""

    query: Text
    limit: Annotated[int, Field(ge=1, le=50), WHOLE] = 5


class SkillSearch(SkillTool[SkillSearchParams]):
    """The tool that finds skills where there are too many to list."""

    name = "skill_search"
    kind = ToolKind.SEARCH

    def title(self, params: SkillSearchParams) -> str:
        return title(f"Find skills: {params.query}")

    async def run(self, params: SkillSearchParams, context: ToolContext) -> ToolResult:
        del context
        found = self._skills.search(params.query, params.limit)
        if not found:
            return ToolResult("No skill fits these words")
        return ToolResult("\n".join(f"{name}: {description}" for name, description in found))


class NoSkills:
    """The skills of a session without any."""

    def load(self, name: str, arguments: str | None = None) -> SkillText:
        """Raise ToolError: there is no such skill."""
        del arguments
        raise ToolError.invalid(f"there is no skill {name[:80]!r}")

    def search(self, query: str, limit: int) -> Sequence[tuple[str, str]]:
        """Return nothing."""
        del query, limit
        return ()


def skill_tools(skills: Skills, *, searchable: bool) -> tuple[Tool[Any], ...]:
    """Return the tools for skills. `searchable` says whether there are so many that the model has to search them."""
    return (LoadSkill(skills), InvokeSkill(skills), *((SkillSearch(skills),) if searchable else ()))
