"""How much an agent may do by itself when a session starts (A14, A15.8, S3.5)."""

from acp_agent.config.autonomy import level_at_start
from acp_agent.config.load import Loaded
from acp_agent.core.conduct import Autonomy, Conduct


def conduct_at_start(loaded: Loaded) -> Conduct:
    """Mode, approval level and whether it only reads, by the configuration in force."""
    acp, autonomy, said = loaded.settings.acp, loaded.settings.tools.autonomy_level, loaded.origins
    level = level_at_start(
        autonomy if "tools.autonomy_level" in said else None,
        acp.auto_approve if "acp.auto_approve" in said else None,
    )
    return Conduct(acp.mode, level, readonly=autonomy is Autonomy.READONLY)
