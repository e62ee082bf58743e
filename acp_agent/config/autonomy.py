"""`tools.autonomy_level` (requirements S3.5) and how it meets `acp.auto_approve`."""

from typing import Annotated

from pydantic import Field

from acp_agent.config.tighter import no_looser
from acp_agent.core.conduct import AutoApprove, Autonomy

AutonomyLevel = Annotated[
    Autonomy,
    Field(
        strict=False,
        description="readonly (only tools that read, search and fetch), supervised (rules and questions decide) or "
        "full (nothing asks; deny rules and the blocklist hold). With acp.auto_approve set too, the tighter one holds.",
    ),
    no_looser(Autonomy.FULL, Autonomy.SUPERVISED, Autonomy.READONLY),
]
"""The type of the field `autonomy_level` of `[tools]`."""

_LOOSEST_FIRST = (AutoApprove.FULL_AUTO, AutoApprove.AUTO_EDIT, AutoApprove.SUGGEST)


def level_at_start(autonomy: Autonomy | None, auto_approve: AutoApprove | None) -> AutoApprove:
    """The approval level a session starts with. None is what no file, variable or flag has set.

    `full` is full-auto for whoever says nothing of `auto_approve`. Where both are set the tighter one holds:
    `supervised` and `readonly` allow no more than auto-edit, `full` no more than `auto_approve` does. A project's
    file may lower both and raise neither; the mode limits the tools on top of all this, in a gate of its own. What
    the user chooses later, in the editor, is his own last word (A15.7).
    """
    if auto_approve is None:
        return AutoApprove.FULL_AUTO if autonomy is Autonomy.FULL else AutoApprove.SUGGEST
    most = AutoApprove.FULL_AUTO if autonomy in (None, Autonomy.FULL) else AutoApprove.AUTO_EDIT
    return max(most, auto_approve, key=_LOOSEST_FIRST.index)
