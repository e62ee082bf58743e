"""The user's settings files: read whole, replaced in one step, with a copy of what was there before.

A link stays a link: its target is replaced. The mode of the file stays.
"""

import contextlib
import os
import stat

from acp_agent.core.errors import AgentError
from acp_agent.core.new_file import NewFile

_LONGEST = 16 * 1024 * 1024  # bytes of a settings file
_NEW_MODE = 0o644  # before the umask


def backup_of(path: str) -> str:
    """Return the path of the copy that is kept of a file, beside the file itself."""
    return f"{os.path.realpath(path)}.before-acp-agent"


def read_settings(path: str) -> str | None:
    """Return the text of a file with its line ends as they are, or None if there is no file.

    Raises:
        AgentError: It cannot be read, or it is no text in UTF-8.

    """
    try:
        with open(path, "rb", opener=_opener) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise AgentError(f"{path} is not a regular file")
            data = file.read(_LONGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AgentError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > _LONGEST:
        raise AgentError(f"{path} is larger than {_LONGEST} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise AgentError(f"{path} is not UTF-8: byte {error.start} cannot be read; nothing was changed") from error


def keep_backup(path: str, text: str) -> None:
    """Write the copy of a file, with the file's mode and owner. Raises AgentError, also if the file is read-only."""
    status = _writable(os.path.realpath(path))
    _replace(backup_of(path), text, status)


def replace_settings(path: str, text: str) -> None:
    """Replace a file, or the target of a link, in one step. Missing folders are made.

    Raises:
        AgentError: The file is read-only, or it cannot be written. It is then as it was.

    """
    target = os.path.realpath(path)
    _replace(target, text, _writable(target))


def remove_settings(path: str) -> None:
    """Remove a file, not a link to it. Raises AgentError if it cannot be removed."""
    try:
        os.unlink(os.path.realpath(path))
    except OSError as error:
        raise AgentError(f"{path} cannot be removed: {error.strerror}") from error


def _replace(target: str, text: str, like: os.stat_result | None) -> None:
    """Replace a file. It gets the mode and the owner of `like`."""
    folder, name = os.path.split(target)
    try:
        os.makedirs(folder, exist_ok=True)
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with contextlib.closing(NewFile(directory, _NEW_MODE)) as new:
                with open(new.fd, "wb", closefd=False) as file:
                    file.write(text.encode())
                if like is not None:
                    with contextlib.suppress(PermissionError):
                        os.fchown(new.fd, like.st_uid, like.st_gid)
                    os.fchmod(new.fd, stat.S_IMODE(like.st_mode))
                os.fsync(new.fd)
                os.replace(new.temporary_name(), name, src_dir_fd=directory, dst_dir_fd=directory)
                new.renamed()
        finally:
            os.close(directory)
    except OSError as error:
        raise AgentError(f"{target} cannot be written: {error.strerror}; nothing was changed") from error


def _writable(target: str) -> os.stat_result | None:
    """Return the status of a file, or None if there is none. Raises AgentError if nobody may write it."""
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AgentError(f"{target} cannot be written: {error.strerror}; nothing was changed") from error
    if not status.st_mode & 0o222 or not os.access(target, os.W_OK):
        raise AgentError(f"{target} is read-only, so nothing was changed; `setup` without --write prints what to add")
    return status


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not wait for its writer
