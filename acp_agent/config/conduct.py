"""How much an agent may do by itself when a session starts, or is taken up again (A14, A15.8, A7.5, S3.5)."""

from collections.abc import Iterator
from dataclasses import replace

from acp_agent.config.files import PROJECT_FILE
from acp_agent.config.load import LEVEL_FLAG, Loaded
from acp_agent.core.conduct import AutoApprove, Autonomy, Conduct, Mode, tighter


def conduct_at_start(loaded: Loaded) -> Conduct:
    """Mode, approval level and whether it only reads, by the configuration in force."""
    acp, autonomy, said = loaded.settings.acp, loaded.settings.tools.autonomy_level, loaded.origins
    level = acp.auto_approve
    if not _is_on_the_command_line(loaded):
        level = level_at_start(
            autonomy if "tools.autonomy_level" in said else None,
            level if "acp.auto_approve" in said else None,
        )
    return Conduct(acp.mode, level, readonly=autonomy is Autonomy.READONLY)


def conduct_opened(loaded: Loaded, saved: Conduct) -> tuple[Conduct, str]:
    """Return what `conduct_taken_up` does for a session that this process has not had open before.

    A level of the command line counts for it instead of what the user chose in it before, and is not kept with it.
    """
    if _is_on_the_command_line(loaded):
        saved = replace(saved, chosen=tuple(name for name in saved.chosen if name != "auto_approve"))
    return conduct_taken_up(loaded, saved)


def conduct_taken_up(loaded: Loaded, saved: Conduct) -> tuple[Conduct, str]:
    """The conduct of a session that goes on under the configuration in force, and a line for the user, or "".

    It is that of a new session, but for what the user has chosen in it. His choice is no leave for what the
    configuration forbids: `readonly` holds whoever configured it, and of a mode or a level that the project's file sets
    the tighter one. What he chooses from now on is his last word again (A15.7).
    """
    start = conduct_at_start(loaded)
    conduct = saved.taken_up(start, _most(loaded, start))
    tightened = ", ".join(_tightened(saved, conduct))
    return conduct, tightened and f"by the configuration of now this session may do less than before: {tightened}"


def _most(loaded: Loaded, start: Conduct) -> Conduct:
    """The loosest leave the configuration lets the user have chosen before."""
    mode = start.mode if _is_projects(loaded, "acp.mode") else Mode.CODE
    sets_level = _is_projects(loaded, "acp.auto_approve") or _is_projects(loaded, "tools.autonomy_level")
    return Conduct(mode, start.auto_approve if sets_level else AutoApprove.FULL_AUTO, readonly=start.readonly)


def _is_on_the_command_line(loaded: Loaded) -> bool:
    return loaded.origins.get("acp.auto_approve") == LEVEL_FLAG


def _is_projects(loaded: Loaded, name: str) -> bool:
    """Whether the project's file has made a setting what it is (config/project.py)."""
    return f"{PROJECT_FILE} over " in loaded.origins.get(name, "")


def _tightened(before: Conduct, now: Conduct) -> Iterator[str]:
    """In words what allows less than before."""
    if now.mode is not before.mode and tighter(now.mode, before.mode) is now.mode:
        yield f"mode {now.mode} instead of {before.mode}"
    level = now.auto_approve
    if level is not before.auto_approve and tighter(level, before.auto_approve) is level:
        yield f"approval {level} instead of {before.auto_approve}"
    if now.readonly and not before.readonly:
        yield "it only reads"


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
