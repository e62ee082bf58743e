"""Modes and config options of a session (A14, A15). Options are the truth, modes mirror one of them."""

from acp_agent.core.conduct import AutoApprove, Autonomy, Conduct, Mode
from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol.errors import invalid_request

_MODES = {
    Mode.CODE: ("Code", "Reads, edits and runs commands"),
    Mode.ARCHITECT: ("Architect", "Reads and plans; changes nothing"),
    Mode.ASK: ("Ask", "Answers questions from what it can read"),
}
_LEVELS = {
    AutoApprove.SUGGEST: ("Suggest", "Asks before every edit and every command"),
    AutoApprove.AUTO_EDIT: ("Auto-edit", "Edits files without asking; asks before commands"),
    AutoApprove.FULL_AUTO: ("Full auto", "Asks nothing; blocked commands stay blocked"),
}

_AUTONOMY = {
    Autonomy.READONLY: ("Read only", "Reads, searches and fetches; nothing else is offered or runs"),
    Autonomy.SUPERVISED: ("Supervised", "Rules and questions decide"),
    Autonomy.FULL: ("Full", "Asks nothing, as full auto; blocked commands stay blocked"),
}


def modes(conduct: Conduct) -> JsonObject:
    """ACP `SessionModeState`."""
    available: list[Json] = [
        {"id": mode.value, "name": name, "description": description} for mode, (name, description) in _MODES.items()
    ]
    return {"currentModeId": conduct.mode.value, "availableModes": available}


def config_options(conduct: Conduct) -> list[Json]:
    """Every option, always the full set. Categories of our own start with `_` (A15.2)."""
    return [
        {
            "id": "mode",
            "name": "Mode",
            "description": "What the agent may do",
            "category": "mode",
            "type": "select",
            "currentValue": conduct.mode.value,
            "options": [
                {"value": mode.value, "name": name, "description": description}
                for mode, (name, description) in _MODES.items()
            ],
        },
        {
            "id": "auto_approve",
            "name": "Auto-approve",
            "description": "What runs without asking",
            "category": "_behavior",
            "type": "select",
            "currentValue": conduct.auto_approve.value,
            "options": [
                {"value": level.value, "name": name, "description": description}
                for level, (name, description) in _LEVELS.items()
            ],
        },
        {
            "id": "autonomy_level",
            "name": "Autonomy",
            "description": "How much the agent may do by itself; full and full auto are one thing",
            "category": "_behavior",
            "type": "select",
            "currentValue": conduct.autonomy.value,
            "options": [
                {"value": level.value, "name": name, "description": description}
                for level, (name, description) in _AUTONOMY.items()
            ],
        },
    ]


def set_mode(conduct: Conduct, mode_id: Json) -> None:
    """Raise RpcError on an unknown mode (A14.2)."""
    if not isinstance(mode_id, str) or mode_id not in set(Mode):
        raise invalid_request(f"unknown mode: {_shown(mode_id)}; expected one of {', '.join(Mode)}")
    conduct.mode = Mode(mode_id)


def set_option(conduct: Conduct, config_id: Json, value: Json) -> None:
    """Raise RpcError on an unknown option or value (A15.3)."""
    match config_id:
        case "mode":
            if not isinstance(value, str) or value not in set(Mode):
                raise invalid_request(f"unknown mode: {_shown(value)}; expected one of {', '.join(Mode)}")
            conduct.mode = Mode(value)
        case "auto_approve":
            if not isinstance(value, str) or value not in set(AutoApprove):
                raise invalid_request(f"unknown level: {_shown(value)}; expected one of {', '.join(AutoApprove)}")
            conduct.auto_approve = AutoApprove(value)
        case "autonomy_level":
            if not isinstance(value, str) or value not in set(Autonomy):
                raise invalid_request(f"unknown level: {_shown(value)}; expected one of {', '.join(Autonomy)}")
            conduct.take(Autonomy(value))
        case _:
            expected = "mode, auto_approve, autonomy_level"
            raise invalid_request(f"unknown config_id: {_shown(config_id)}; expected one of {expected}")


def _shown(value: Json) -> str:
    return repr(value)[:80]
