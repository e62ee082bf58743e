"""What a session may do by itself at its start, from all sources together."""

from acp_agent.config.conduct import conduct_at_start
from acp_agent.core.conduct import AutoApprove, Autonomy

SUGGEST, EDIT, FULL = AutoApprove.SUGGEST, AutoApprove.AUTO_EDIT, AutoApprove.FULL_AUTO


def test_a_session_starts_as_the_configuration_says(loading):
    def start(user: str, project: str = ""):
        conduct = conduct_at_start(loading(user, project))
        return conduct.auto_approve, conduct.readonly, conduct.autonomy

    full, supervised = "tools.autonomy_level = 'full'\n", "tools.autonomy_level = 'supervised'\n"
    assert start("") == (SUGGEST, False, Autonomy.SUPERVISED)
    assert start(full) == (FULL, False, Autonomy.FULL)
    assert start(full, supervised) == (SUGGEST, False, Autonomy.SUPERVISED)
    assert start(full, "acp.auto_approve = 'suggest'") == (SUGGEST, False, Autonomy.SUPERVISED)
    assert start(full + "acp.auto_approve = 'full-auto'", supervised) == (EDIT, False, Autonomy.SUPERVISED)
    assert start("acp.auto_approve = 'full-auto'") == (FULL, False, Autonomy.FULL)
    assert start("", full) == (SUGGEST, False, Autonomy.SUPERVISED)
    assert start(full, "tools.autonomy_level = 'readonly'") == (SUGGEST, True, Autonomy.READONLY)
    assert start("tools.autonomy_level = 'readonly'", full) == (SUGGEST, True, Autonomy.READONLY)
