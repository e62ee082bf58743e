"""`acp-agent setup EDITOR`: print the settings that start this agent, merge them into a file, or remove them.

A settings file is replaced in one step, and a copy of what was there before is kept. A link stays a link: its target is
replaced. The mode of the file stays.
"""

import argparse
import contextlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files

from acp_agent.cli.setup.editors import AgentCommand, EditorSetup, editor_setup, effect, this_installation
from acp_agent.cli.setup.jsonc import JsoncFault
from acp_agent.config.section import one_line
from acp_agent.core.errors import AgentError
from acp_agent.core.new_file import NewFile, open_folder
from acp_agent.text import visible

_VSIX = "acp-agent.vsix"  # our extension, where this installation carries it
EXTENSION = "acp-agent.acp-agent"
_CODE_SECONDS = 120


def setup(args: argparse.Namespace) -> int:
    """Print, write or remove the settings of one editor. Raises AgentError if the file cannot be edited."""
    editor = editor_setup(args.editor, os.environ, args.file and os.path.abspath(os.path.expanduser(args.file)))
    launch = this_installation()
    try:
        if args.remove:
            _remove(editor)
        elif args.write:
            _write(editor, launch, chosen=args.file is not None)
        else:
            _show(editor, launch)
    except JsoncFault as fault:
        raise AgentError(f"{editor.file}, {fault}; nothing was changed") from fault
    if args.editor == "vscode" and (args.write or args.remove):
        _extension(remove=args.remove)
    return 0


def _show(editor: EditorSetup, launch: AgentCommand) -> None:
    print(editor.shown(launch), end="")
    if editor.file:
        print(f"\nThis belongs in {visible(editor.file)}; --write merges it in.", file=sys.stderr)
    if remaining := editor.remaining(launch):
        print(f"Then {remaining}.", file=sys.stderr)


def _write(editor: EditorSetup, launch: AgentCommand, *, chosen: bool) -> None:
    if not editor.file:
        editor.applied(None, launch)
    if not chosen and not is_installed(editor, os.environ):
        looked = " or ".join(visible(each) for each in editor.evidence)
        raise AgentError(
            f"{editor.title} was not found: there is no {looked}. Nothing was written; "
            f"install it first, or name its settings file with --file"
        )
    text = read_settings(editor.file)
    before = editor.launch_in(text) if text else None
    new = editor.applied(text, launch)
    if new == text:
        print(f"{editor.title} is set up already: {visible(editor.file)} {visible(effect(editor, launch))}.")
    else:
        if text is not None and (before is None or not os.path.exists(backup_of(editor.file))):
            keep_backup(editor.file, text)
        replace_settings(editor.file, new)
        print(f"{visible(editor.file)} {visible(effect(editor, launch))}.")
        if before is not None and before.words != launch.words:
            print(f"It started {one_line(' '.join(before.words))} before.")
        if text is not None:
            print(_kept(editor))
    if re.search(r"/archive-v\d+/", launch.command):  # in uv's cache
        print("uvx made this installation for one run. Run this again after `pip install` or `uv tool install`.")
    if remaining := editor.remaining(launch):
        print(f"Now {remaining}.")


def _remove(editor: EditorSetup) -> None:
    text = read_settings(editor.file) if editor.file else editor.withdrawn("", None)
    launch = editor.launch_in(text) if text else None
    if text is None or launch is None:
        print(f"There is nothing to remove: {visible(editor.file)} does not start acp-agent.")
        return
    backup = backup_of(editor.file)
    before = read_settings(backup)
    if before is not None and _is_made_of(editor, before, launch, text):
        replace_settings(editor.file, before)
        remove_settings(backup)
        print(f"{visible(editor.file)} is as it was before.")
        return
    if not _is_made_of(editor, None, launch, text):
        keep_backup(editor.file, text)
        new = editor.withdrawn(text, before)
        if new is not None:
            replace_settings(editor.file, new)
            print(f"{visible(editor.file)} does not start acp-agent any more. {_kept(editor)}")
            return
        print(_kept(editor))
    remove_settings(editor.file)
    print(f"{visible(editor.file)} is removed: nothing else was in it.")


def _is_made_of(editor: EditorSetup, before: str | None, launch: AgentCommand, text: str) -> bool:
    """Return whether `text` is `before` with our settings in it, and with no other change."""
    try:
        return editor.applied(before, launch) == text != before
    except (AgentError, JsoncFault):
        return False


def _kept(editor: EditorSetup) -> str:
    return f"The file as it was is {visible(backup_of(editor.file))}."


def is_installed(editor: EditorSetup, environ: Mapping[str, str]) -> bool:
    """Return whether a program or a folder of the editor is on this machine."""
    path = environ.get("PATH")
    return any(os.path.exists(each) if os.sep in each else shutil.which(each, path=path) for each in editor.evidence)


def _extension(*, remove: bool) -> None:
    """Install or remove our extension with VS Code's own program, and say what was not possible."""
    package = files("acp_agent.cli.setup") / _VSIX
    if not remove and not package.is_file():
        print("This installation carries no extension. Install ACP Client (formulahendry.acp-client) in VS Code.")
        return
    what = ["--uninstall-extension", EXTENSION] if remove else ["--install-extension", str(package)]
    if shutil.which("code") is None:
        print(f"There is no `code` on PATH. To finish, run: code {shlex.join(what)}")
        return
    done = run_code(*what)
    if done.returncode and not (remove and "not installed" in done.stderr):
        raise AgentError(f"`code {what[0]}` failed: {one_line(done.stderr or done.stdout)}")
    print("The extension acp-agent is " + ("removed from" if remove else "installed in") + " VS Code.")


def run_code(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run VS Code's program, which is on PATH, and return its result. Raises AgentError."""
    try:
        return subprocess.run(["code", *arguments], capture_output=True, text=True, timeout=_CODE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AgentError(f"`code {arguments[0]}` failed: {error}") from error


_LONGEST_FILE = 16 * 1024 * 1024  # bytes of a settings file
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
        # A pipe must not wait for its writer.
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise AgentError(f"{path} is not a regular file")
            data = file.read(_LONGEST_FILE + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AgentError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > _LONGEST_FILE:
        raise AgentError(f"{path} is larger than {_LONGEST_FILE} bytes")
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
        with open_folder(folder) as directory, contextlib.closing(NewFile(directory, _NEW_MODE)) as new:
            new.write(text.encode())
            if like is not None:
                with contextlib.suppress(PermissionError):
                    os.fchown(new.fd, like.st_uid, like.st_gid)
                os.fchmod(new.fd, stat.S_IMODE(like.st_mode))
            os.fsync(new.fd)
            new.replace(name)
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
