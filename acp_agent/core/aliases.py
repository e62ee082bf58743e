"""Names of tools that models and users know from other agents. They are understood and never advertised."""

from collections.abc import Mapping
from types import MappingProxyType

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "shell": "bash",
        "sh": "bash",
        "exec": "bash",
        "execute": "bash",
        "execute_command": "bash",
        "run": "bash",
        "run_command": "bash",
        "run_shell_command": "bash",
        "run_terminal_cmd": "bash",
        "terminal": "bash",
        "read_file": "read",
        "view": "read",
        "cat": "read",
        "write_file": "write",
        "create_file": "write",
        "edit_file": "edit",
        "str_replace": "edit",
        "replace": "edit",
        "ls": "list_directory",
        "list": "list_directory",
        "list_dir": "list_directory",
        "list_files": "list_directory",
        "glob": "find_path",
        "find": "find_path",
        "find_files": "find_path",
        "file_search": "find_path",
        "search": "grep",
        "search_files": "grep",
        "grep_search": "grep",
        "rg": "grep",
        "ripgrep": "grep",
        "mkdir": "create_directory",
        "create_dir": "create_directory",
        "make_directory": "create_directory",
        "rm": "delete_path",
        "delete": "delete_path",
        "delete_file": "delete_path",
        "remove_file": "delete_path",
        "mv": "move_path",
        "move": "move_path",
        "move_file": "move_path",
        "rename": "move_path",
        "rename_file": "move_path",
        "cp": "copy_path",
        "remember": "memory_save",
        "save_memory": "memory_save",
        "recall": "memory_search",
        "search_memory": "memory_search",
        "copy": "copy_path",
        "copy_file": "copy_path",
        "webfetch": "fetch",
        "web_fetch": "fetch",
        "fetch_url": "fetch",
        "scrape": "web_scrape",
        "get_diagnostics": "diagnostics",
        "lint": "diagnostics",
    }
)
"""Each alias, in lower case, and the id of the tool that it means."""

_IDS = frozenset(ALIASES.values())


def tool_id(name: str) -> str:
    """Return the id of the tool that a name means in any case. An unknown name is returned as it is."""
    lowered = name.lower()
    return ALIASES.get(lowered, lowered if lowered in _IDS else name)
