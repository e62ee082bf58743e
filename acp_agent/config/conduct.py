"""The mode, the approval level and the autonomy of a session when it starts, and when it is opened again."""

from collections.abc import Iterator
from dataclasses import replace

from acp_agent.config.files import PROJECT_FILE
from acp_agent.config.load import LEVEL_FLAG, Loaded
from acp_agent.core.conduct import AutoApprove, Autonomy, Mode, SessionOptions, tighter


def conduct_at_start(loaded: Loaded) -> SessionOptions:
    """Return the mode, the approval level and the read-only state of a new session under this configuration."""
    acp, autonomy, said = loaded.settings.acp, loaded.settings.tools.autonomy_level, loaded.origins
    level = acp.auto_approve
    if not _is_on_the_command_line(loaded):
        level = level_at_start(
            autonomy if "tools.autonomy_level" in said else None,
            level if "acp.auto_approve" in said else None,
        )
    return SessionOptions(acp.mode, level, readonly=autonomy is Autonomy.READONLY)


def conduct_opened(loaded: Loaded, saved: SessionOptions) -> tuple[SessionOptions, str]:
    """Return the same as `conduct_taken_up`, for a session that this process opens for the first time.

    An approval level on the command line replaces the level that the user chose in the session, and is not stored.
    """
    if _is_on_the_command_line(loaded):
        saved = replace(saved, chosen=tuple(name for name in saved.chosen if name != "auto_approve"))
    return conduct_taken_up(loaded, saved)


def conduct_taken_up(loaded: Loaded, saved: SessionOptions) -> tuple[SessionOptions, str]:
    """Return the conduct of a session that continues under this configuration, and a message for the user or "".

    It equals the conduct of a new session, except for what the user chose in this session. A choice does not lift what
    the configuration forbids now: `readonly` always holds, and of a mode or level that the project's file sets, the
    stricter one holds. What the user chooses afterwards is not limited by this.
    """
    start = conduct_at_start(loaded)
    conduct = saved.taken_up(start, _most(loaded, start))
    tightened = ", ".join(_tightened(saved, conduct))
    return (
        conduct,
        tightened and f"The configuration is stricter now, so this session may do less than before: {tightened}",
    )


def _most(loaded: Loaded, start: SessionOptions) -> SessionOptions:
    """Return the loosest conduct that a choice of the user may still have under this configuration."""
    mode = start.mode if _is_projects(loaded, "acp.mode") else Mode.CODE
    sets_level = _is_projects(loaded, "acp.auto_approve") or _is_projects(loaded, "tools.autonomy_level")
    return SessionOptions(mode, start.auto_approve if sets_level else AutoApprove.FULL_AUTO, readonly=start.readonly)


def _is_on_the_command_line(loaded: Loaded) -> bool:
    return loaded.origins.get("acp.auto_approve") == LEVEL_FLAG


def _is_projects(loaded: Loaded, name: str) -> bool:
    """Return True if the project's file set this value. `config.project.tighten` writes such origins."""
    return f"{PROJECT_FILE} over " in loaded.origins.get(name, "")


def _tightened(before: SessionOptions, now: SessionOptions) -> Iterator[str]:
    """Yield a phrase for each part of the conduct that became stricter."""
    if now.mode is not before.mode and tighter(now.mode, before.mode) is now.mode:
        yield f"mode {now.mode} instead of {before.mode}"
    level = now.auto_approve
    if level is not before.auto_approve and tighter(level, before.auto_approve) is level:
        yield f"approval {level} instead of {before.auto_approve}"
    if now.readonly and not before.readonly:
        yield "read-only"


_LOOSEST_FIRST = (AutoApprove.FULL_AUTO, AutoApprove.AUTO_EDIT, AutoApprove.SUGGEST)


def level_at_start(autonomy: Autonomy | None, auto_approve: AutoApprove | None) -> AutoApprove:
    """Return the approval level a session starts with. An argument is None if no file, variable or flag sets it.

    The autonomy `full` means full-auto if `auto_approve` is not set. If both are set, the stricter one holds:
    `supervised` and `readonly` allow at most auto-edit, and `full` allows what `auto_approve` allows. A project's file
    can lower both and raise neither. The mode limits the tools in a gate of its own. The user may choose another level
    in the editor later.
    """
    if auto_approve is None:
        return AutoApprove.FULL_AUTO if autonomy is Autonomy.FULL else AutoApprove.SUGGEST
    most = AutoApprove.FULL_AUTO if autonomy in (None, Autonomy.FULL) else AutoApprove.AUTO_EDIT
    return max(most, auto_approve, key=_LOOSEST_FIRST.index)
