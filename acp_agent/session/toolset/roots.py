"""The roots of a session, its protected paths, and the project's patterns that cannot be used.

If a pattern in the user's own file cannot be understood, nothing runs. A project's file comes with the repository, and
its author could disable every tool with one malformed pattern. A project's pattern only forbids more than the user
does, so a malformed one is left out and the user is told.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

from acp_agent.config import Loaded, data_path
from acp_agent.config.files import credentials_file, database_file, session_locks_file
from acp_agent.config.section import Section
from acp_agent.config.tool_settings import ReadRule
from acp_agent.core.errors import ConfigError
from acp_agent.workspace.protected_paths import ProtectedPaths
from acp_agent.workspace.read_policy import OwnFiles, ReadPolicy, all_of
from acp_agent.workspace.roots import Root, Roots

_Words: TypeAlias = tuple[str, ...]

_BUILD: Mapping[str, Callable[[Sequence[str], Sequence[str]], object]] = {
    "tools.file.deny_read": lambda patterns, folders: ReadPolicy(patterns, folders=folders),
    "tools.protection.protected_paths": lambda patterns, _: ProtectedPaths(patterns),
}
"""Compiles the patterns of a setting to which a project may add. Raises ConfigError."""


def without_faulty_patterns(loaded: Loaded, folders: Sequence[str]) -> tuple[Loaded, tuple[ConfigError, ...]]:
    """Return the configuration without the project's unusable patterns, and their problems.

    An unusable pattern of the user stays and raises ConfigError where it is used.
    """
    faults: list[ConfigError] = []
    for key in (key for key in _BUILD if key in loaded.untightened):
        _, section, field = key.split(".")
        tools = loaded.settings.tools
        settings = cast("Section", getattr(tools, section))
        patterns = cast("_Words", getattr(settings, field))
        users = cast("_Words", loaded.untightened[key])
        kept = _usable(key, patterns, users, folders, faults)
        if kept != patterns:
            tools = tools.model_copy(update={section: settings.model_copy(update={field: kept})})
            loaded = replace(loaded, settings=loaded.settings.model_copy(update={"tools": tools}))
    origins = loaded.origins
    told = (ConfigError(origins[each.key], each.key, each.value, f"{each.expected} (ignored)") for each in faults)
    return replace(loaded, untightened={}), tuple(told)


def _usable(key: str, patterns: _Words, users: _Words, folders: Sequence[str], faults: list[ConfigError]) -> _Words:
    """Return all usable patterns, or only the user's if even those cannot be compiled together."""
    build = _BUILD[key]
    try:
        build(patterns, folders)
    except ConfigError as error:
        too_much = error
    else:
        return patterns
    try:
        build(users, folders)
    except ConfigError:
        return patterns

    def good() -> Iterator[str]:
        for pattern in patterns:
            try:
                build((pattern,), folders)
            except ConfigError as error:
                faults.append(error)
            else:
                yield pattern

    kept = tuple(good())
    try:
        build(kept, folders)
    except ConfigError:
        faults.append(too_much)
        return users
    return kept


def session_roots(
    loaded: Loaded,
    cwd: str,
    additional: Sequence[str] = (),
    *,
    for_shell: bool = False,
    open_root: Callable[[str], Root] | None = None,
) -> Roots:
    """Return the roots of a session, with the paths below them that file tools and commands may use.

    Raises ConfigError if a folder cannot be opened, or if a pattern for denied paths is malformed.
    """
    if loaded.fault is not None:
        raise loaded.fault
    tools = loaded.settings.tools
    allowed = tools.shell.allowed_paths if for_shell else tools.file.allowed_paths
    folders = (cwd, *additional, *filter(os.path.isdir, allowed))
    loaded, _ = without_faulty_patterns(loaded, folders)
    own = OwnFiles(_own_files(loaded, cwd), _closed_files())
    reading = _read_policy(loaded, folders, for_shell=for_shell)
    return Roots(cwd, folders[1:], policy=all_of(own, protected_paths(loaded, cwd), reading), open_root=open_root)


def protected_paths(loaded: Loaded, cwd: str) -> ProtectedPaths:
    """Return the protected paths: those that must not be changed without the user's knowledge. Raises ConfigError."""
    loaded, _ = without_faulty_patterns(loaded, (cwd,))
    protection = loaded.settings.tools.protection
    own, obeyed = _own_files(loaded, cwd), loaded.settings.agent.instructions.files
    return ProtectedPaths(protection.protected_paths, protection.unprotected_paths, own, obeyed)


def _own_files(loaded: Loaded, cwd: str) -> tuple[str, ...]:
    return data_path(os.environ), loaded.file, *_placed_elsewhere(loaded, cwd)


def _closed_files() -> tuple[str, ...]:
    """Return the policy for our own files: tools may neither read the credentials nor delete the locks."""
    return credentials_file(os.environ), database_file(os.environ), session_locks_file(os.environ)


def _placed_elsewhere(loaded: Loaded, cwd: str) -> Iterator[str]:
    """Yield our own files that the user keeps outside the data folder."""
    settings = loaded.settings
    if settings.acp.permission_file:
        yield settings.acp.permission_file
    if settings.audit.file:
        yield from (settings.audit.file, f"{settings.audit.file}.head")
    if settings.tools.policy.policy_file:
        yield os.path.join(cwd, settings.tools.policy.policy_file)


def _read_policy(loaded: Loaded, folders: Sequence[str], *, for_shell: bool) -> ReadPolicy:
    """Return the policy for reading. Raises ConfigError for a malformed pattern, because it may be meant to deny."""
    file = loaded.settings.tools.file
    carve_out = file.read_policy is ReadRule.CARVE_OUT
    # Any word of a command may be a path, so a list of allowed files would make every command ask.
    allow = file.allow_read if carve_out or not for_shell else ()
    try:
        return ReadPolicy(file.deny_read, allow, carve_out=carve_out, folders=folders)
    except ConfigError as error:
        where = loaded.origins.get(error.key, error.where)
        raise ConfigError(where, error.key, error.value, error.expected) from error
