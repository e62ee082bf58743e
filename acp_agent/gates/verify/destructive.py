"""Refuse commands that wipe a system, and ask about those that erase something for good.

`gates/shell/danger.py` knows the commands that wipe a system. Commands that erase for good may be intended; they are
asked about even if a rule allows the program.
"""

import posixpath
import re

from acp_agent.core.types import Allow, Ask, Deny, Verdict
from acp_agent.gates.paths.command_paths import Folders
from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.danger import destructive
from acp_agent.gates.shell.options import has_option, operands
from acp_agent.gates.shell.tables import tables
from acp_agent.gates.verify.verifier import Verifier

_OPEN_TO_ALL = re.compile(r"[0-7]{0,4}[2367]|[ug]*[oa][ugoa]*[+=][rxXst]*w[rwxXst]*")
_WHOLE = (".", "..", "*", ".*", ".git", "$PWD")


class Destructive(Verifier):
    """Judges single commands. The blocklist judges what is no single command, such as a fork bomb."""

    name = "destructive"

    def command(self, command: Command, folders: Folders) -> Verdict:
        known = ("", *(folder for folder in folders.possible if folder.startswith(("/", "~"))))
        pattern = next(filter(None, (destructive(command, folder) for folder in known)), "") or _maker(command)
        if pattern:
            return Deny(f"the command destroys what cannot be got back ('{pattern}')", rule=f"destructive: {pattern}")
        whole = _whole(command)
        if whole:  # it takes git's hooks and settings too, so full-auto does not answer the question
            return Ask(f"deletes the whole folder or its history: rm -r {whole}", firm=True)
        reason = _doubt(command)
        return Ask(reason) if reason else Allow()


def _maker(command: Command) -> str:
    stem = command.name.casefold().partition(".")[0]
    return stem if stem in tables().danger["disk_makers"] else ""


def _whole(command: Command) -> str:
    """Return the operand of a recursive rm that means the whole folder or its history; empty for other commands."""
    args = command.argv[1:]
    if command.name.casefold() != "rm" or not has_option(args, "rR", "--recursive"):
        return ""
    return next((path for path in operands(args) if posixpath.normpath(path) in _WHOLE), "")


def _doubt(command: Command) -> str:
    """Return why a command is asked about; empty if it is not."""
    name, args = command.name.casefold(), command.argv[1:]
    recursive = has_option(args, "R", "--recursive")
    match name:
        case "chmod" if recursive and any(map(_open_to_all, operands(args)[:1])):
            return "lets everybody change whole folders"
        case "chown" | "chgrp" if recursive:
            return "gives whole folders to another owner"
        case "truncate":
            return ""  # for a file it does the same as `>`
        case _ if name in tables().danger["disk_tools"] and not has_option(args, "l", "--list", "--version", "--help"):
            return f"{name} may erase for good"
        case _:
            return ""


def _open_to_all(mode: str) -> bool:
    return any(_OPEN_TO_ALL.fullmatch(clause) for clause in mode.split(","))
