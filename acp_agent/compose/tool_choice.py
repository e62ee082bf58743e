"""The choice of tools the configuration and the session make (requirements G6)."""

from acp_agent.config import Loaded
from acp_agent.gates.selection import ModelChoice, ToolChoice, for_model


def tool_choice(loaded: Loaded, session: tuple[str, ...] | None) -> ToolChoice:
    """For the model in force. `session`: the list of session/new, None when none was sent."""
    tools = loaded.settings.tools
    general = ToolChoice(tools.profile.value, tools.allow, tools.deny, tools.also_allow, session)
    models = (
        ModelChoice(glob, each.profile and each.profile.value, each.allow, each.deny, each.also_allow)
        for glob, each in tools.by_model.items()
    )
    return for_model(general, models, loaded.settings.llm.model or "")
