"""acp-agent: a governed coding agent that editors drive over the Agent Client Protocol."""

import os

__version__ = "0.1.0"

path_limited = False
"""Whether the PATH that this process was started with had folders that depend on the current folder."""


def limit_path() -> None:
    """Leave out the folders of PATH that depend on the current folder: a project's own `git` would run from there."""
    global path_limited  # noqa: PLW0603 - the PATH is a property of the process
    folders = os.environ.get("PATH")
    if folders is not None:  # an empty PATH means the current folder
        os.environ["PATH"] = os.pathsep.join(filter(os.path.isabs, folders.split(os.pathsep))) or os.defpath
    path_limited = os.environ.get("PATH") != folders
