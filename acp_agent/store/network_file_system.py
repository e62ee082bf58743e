"""Whether a folder lives on another computer."""

import os

_KINDS = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.glusterfs", "fuse.sshfs", "glusterfs", "gpfs", "lustre"),
        *("ncpfs", "nfs", "nfs4", "prl_fs", "smb3", "smbfs", "vboxsf", "vmhgfs"),
    }
)


def network_file_system(folder: str, mounts: str = "/proc/self/mountinfo") -> str | None:
    """The kind of network file system a folder is on, such as "nfs4"; None when it is on none, or nothing tells.

    Only Linux tells. Raises OSError when the folder is not there.
    """
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(mounts, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in lines:  # id parent major:minor root mount-point options [tags] - kind source options
        mount, _, kind = line.partition(" - ")
        if mount.split()[2:3] == [number] and kind.split()[:1] and kind.split()[0] in _KINDS:
            return kind.split()[0]
    return None
