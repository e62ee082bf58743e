"""Who is on the other end and what it can do. Anything not offered is off (A3.1)."""

from dataclasses import dataclass

from acp_agent.core.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Client:
    """The editor, as `initialize` described it.

    display_terminals   it draws terminals that the agent runs itself (`_meta.terminal_output`; requirements 2.1)
    notices             it wants `notice` updates (ACP 1.25)
    """

    name: str = ""
    read_text_file: bool = False
    write_text_file: bool = False
    terminal: bool = False
    display_terminals: bool = False
    notices: bool = False

    @classmethod
    def from_initialize(cls, params: JsonObject) -> "Client":
        """Read the params of `initialize`; a malformed capability counts as absent."""
        capabilities = params.get("clientCapabilities")
        return cls(
            name=_text(params, "clientInfo", "name"),
            read_text_file=_is_true(capabilities, "fs", "readTextFile"),
            write_text_file=_is_true(capabilities, "fs", "writeTextFile"),
            terminal=_is_true(capabilities, "terminal"),
            display_terminals=_is_true(capabilities, "_meta", "terminal_output"),
            notices=isinstance(_at(capabilities, "session", "notices"), dict),
        )


def _at(value: Json, *path: str) -> Json:
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _is_true(value: Json, *path: str) -> bool:
    return _at(value, *path) is True


def _text(value: Json, *path: str) -> str:
    found = _at(value, *path)
    return found if isinstance(found, str) else ""
