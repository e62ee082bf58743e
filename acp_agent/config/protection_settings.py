"""What is kept from being planted or run: protected paths and named groups of commands (issue 4, requirements G3)."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from acp_agent.config.section import Section, Words
from acp_agent.config.tighter import ADDED


class DenyGroup(StrEnum):
    """The named groups of commands (`gates/deny_groups.toml` says what is in each)."""

    DESTRUCTIVE = "destructive"
    DISK = "disk"
    SYSTEM = "system"
    FORK_BOMB = "fork_bomb"
    REMOTE_EXEC = "remote_exec"
    REVERSE_SHELL = "reverse_shell"
    EVAL = "eval"
    DESTRUCTIVE_OPS = "destructive_ops"
    DATA_EXFILTRATION = "data_exfiltration"
    CODE_INJECTION = "code_injection"
    PRIVILEGE_ESCALATION = "privilege_escalation"
    DANGEROUS_PATHS = "dangerous_paths"
    ENV_INJECTION = "env_injection"
    CONTAINER_ESCAPE = "container_escape"
    CRYPTO_MINING = "crypto_mining"
    FILTER_BYPASS = "filter_bypass"
    NETWORK_RECON = "network_recon"
    PACKAGE_INSTALL = "package_install"
    PERSISTENCE = "persistence"
    PROCESS_CONTROL = "process_control"
    ENV_DUMP = "env_dump"


DEFAULT_GROUPS = (
    DenyGroup.DISK,
    DenyGroup.SYSTEM,
    DenyGroup.FORK_BOMB,
    DenyGroup.REMOTE_EXEC,
    DenyGroup.REVERSE_SHELL,
    DenyGroup.EVAL,
    DenyGroup.PRIVILEGE_ESCALATION,
    DenyGroup.CRYPTO_MINING,
)

BlockedGroups = Annotated[
    tuple[Annotated[DenyGroup, Field(strict=False)], ...],
    Field(
        strict=False,
        description="Named groups of commands that never run, besides the built-in list. destructive (any rm -rf), "
        "code_injection (python -c), env_dump, process_control and more are off, for everyday work needs them; "
        "package_install asks instead.",
        examples=[["remote_exec", "reverse_shell", "persistence"]],
    ),
    ADDED,
]
"""`tools.shell.blocked_groups`."""


class ProtectionSettings(Section):
    """`[tools.protection]`: files that somebody else runs or obeys later (security.md, threat 3)."""

    protected_paths: Annotated[
        Words,
        Field(
            description="Further files and folders that you are asked about before they change, at any approval level: "
            "absolute, ~/..., or names found anywhere. Git hooks, shell start-up files, editor tasks and the like are "
            "built in.",
            examples=[["deploy/*.sh", "Makefile"]],
        ),
        ADDED,
    ] = ()
    unprotected_paths: Annotated[
        Words,
        Field(
            description="Built-in ones you need not be asked about, written likewise. Git's hooks and configuration, "
            "shell start-up files, .ssh and the agent's own files stay protected.",
            examples=[[".vscode/settings.json", ".husky"]],
        ),
    ] = ()
