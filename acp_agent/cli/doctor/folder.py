"""The data folder: there, ours alone, writable, on a disk of this machine, and its database one we can read."""

import os
import sqlite3
import stat
import tempfile
from collections.abc import Mapping
from contextlib import closing
from urllib.parse import quote

from acp_agent.cli.doctor.finding import Finding, Level
from acp_agent.config.files import DATA_VARIABLE, data_dir, database_file
from acp_agent.core.errors import ConfigError
from acp_agent.store.db_errors import cause
from acp_agent.store.schema import VERSION, version_of

_REMOTE = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.rclone", "fuse.s3")
_MOUNTS = "/proc/self/mounts"


def check_data_folder(environ: Mapping[str, str], mounts: str = _MOUNTS) -> list[Finding]:
    """Make it as the server would and try it. `mounts` is the kernel's table; where there is none, local is assumed."""
    elsewhere = f"choose another folder with {DATA_VARIABLE}"
    try:
        path = data_dir(environ)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"x")
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except ConfigError as error:
        return [Finding(Level.FAIL, "data", str(error), elsewhere)]
    except OSError as error:
        return [Finding(Level.FAIL, "data", f"cannot write in the folder: {error.strerror}", elsewhere)]
    if mode != 0o700:
        return [Finding(Level.FAIL, "data", f"{path} has mode {mode:04o}, not 0700", elsewhere)]
    if trouble := _database_trouble(database_file(environ)):
        return [Finding(Level.FAIL, "data", f"no conversation is kept or listed: {trouble}", elsewhere)]
    kind = file_system(path, mounts)
    if kind.startswith(_REMOTE):
        return [Finding(Level.WARN, "data", f"{path} is on a network file system ({kind})", elsewhere)]
    return [Finding(Level.OK, "data", f"{path} (mode 0700)")]


def _database_trouble(path: str) -> str:
    """Why the database there cannot be used; empty where it can, or none is there yet. Changes nothing in it."""
    if not os.path.lexists(path):
        return ""
    how = "mode=ro" if os.path.lexists(f"{path}-wal") else "mode=ro&immutable=1"  # or SQLite would make a log
    try:
        with closing(sqlite3.connect(f"file:{quote(os.fsencode(path))}?{how}", uri=True)) as connection:
            version = version_of(connection)
    except sqlite3.Error as error:
        return f"the database {path} cannot be used: {cause(error)}"
    if version <= VERSION:
        return ""
    return f"the database {path} has format {version}, of a newer acp-agent; this one knows formats up to {VERSION}"


def file_system(path: str, mounts: str) -> str:
    """The type of the file system a path is on, empty when this machine does not tell."""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            table = [line.split(" ")[:3] for line in file]
    except OSError:
        return ""
    real = os.path.realpath(path)
    places = [(point.replace("\\040", " "), kind) for _, point, kind in table]
    holding = [(len(point), kind) for point, kind in places if os.path.commonpath((point, real)) == point]
    return holding[[length for length, _ in holding].index(max(holding)[0])][1] if holding else ""
