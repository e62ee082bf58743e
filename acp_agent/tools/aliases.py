"""Names models know from other agents (requirements G27, section 4 row 1). Understood, never advertised."""

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
    }
)
"""Alias, in lower case, to the id of the tool it means."""
