"""What clients are installed into: a folder outside the checkout that keeps pinned versions from drive to drive."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

CACHE = Path(os.environ.get("ACP_EDITORS_CACHE") or Path.home() / ".cache" / "acp-agent-editors")


class NotHereError(Exception):
    """A client cannot be had on this machine; the text says why."""


def program(name: str, hint: str) -> str:
    """Return the path of a program of the machine. Raises NotHereError."""
    found = shutil.which(name)
    if found is None:
        raise NotHereError(f"{name} is not installed ({hint})")
    return found


def run(words: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a command of the set-up and return what it printed. Raises NotHereError with its last line."""
    try:
        done = subprocess.run(
            [str(each) for each in words],
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
            env={**os.environ, **env} if env else None,
            stdin=subprocess.DEVNULL,
            timeout=900,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHereError(str(error)) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise NotHereError(f"{Path(str(words[0])).name}: {said[-1][:200]}")
    return done.stdout


def npm(name: str, *packages: str) -> Path:
    """Return a folder `node_modules` with these packages (`name@version`)."""
    program("node", "version 20 or later")
    folder = CACHE / "npm" / name
    done = folder / ".done"
    if not done.is_file() or done.read_text() != " ".join(packages):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true, "type": "module"}')
        install = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--save-exact", *packages]
        run(install, cwd=folder)
        done.write_text(" ".join(packages))
    return folder / "node_modules"


def venv(name: str, *packages: str) -> Path:
    """Return the folder `bin` of a virtual environment with these packages (`name==version`)."""
    folder = CACHE / "venv" / name
    done = folder / ".done"
    if not done.is_file() or done.read_text() != " ".join(packages):
        run([sys.executable, "-m", "venv", "--clear", folder])
        run([folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
        done.write_text(" ".join(packages))
    return folder / "bin"


def plugin(name: str, url: str, commit: str) -> Path:
    """Return a checkout of an editor's plugin at `commit`.

    A folder CACHE/plugins/NAME that is there already is taken as it is: put one there where the network does not reach
    the repository.
    """
    folder = CACHE / "plugins" / name
    if not folder.is_dir():
        fresh = folder.with_name(f"{name}.part")
        shutil.rmtree(fresh, ignore_errors=True)
        run(["git", "init", "-q", fresh])
        try:
            run(["git", "-C", fresh, "fetch", "-q", "--depth", "1", url, commit], env={"GIT_TERMINAL_PROMPT": "0"})
        except NotHereError as error:
            shutil.rmtree(fresh)
            raise NotHereError(f"{name} could not be fetched ({error}); or put a checkout into {folder}") from error
        run(["git", "-C", fresh, "checkout", "-q", "FETCH_HEAD"])
        fresh.rename(folder)
    return folder


def write_script(file: Path, body: str) -> Path:
    """Write a shell script that can be run."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return file


# ------------------------------------------------------------------------------------------- newer programs

_SUITE = "forky"
_PACKAGES = ("neovim", "emacs-nox", "python3.14")
_EMACS = "30.2"


def newer(name: str) -> Path:
    """Return `nvim`, `emacs` or `python3.14` out of a newer Debian.

    Its packages are unpacked into the cache, and its own loader starts the program from there: nothing is installed.
    Raises NotHereError, also on a machine that is not Debian's amd64.
    """
    root = CACHE / _SUITE
    if not root.is_dir():
        if not Path("/etc/debian_version").exists() or platform.machine() != "x86_64":
            raise NotHereError(f"{name} is too old here, and this is no Debian on amd64 to take a newer one from")
        program("mmdebstrap", "apt install mmdebstrap")
        part = root.with_name(f"{_SUITE}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        command = ["mmdebstrap", "--variant=extract", "--skip=check/qemu"]
        stale = ["--aptopt=Acquire::Check-Valid-Until false"]  # mirrors that stand still are signed all the same
        run([*command, *stale, f"--include={','.join(_PACKAGES)}", _SUITE, part])
        part.rename(root)
    return _starter(root, name)


def _starter(root: Path, name: str) -> Path:
    usr = root / "usr"
    libraries = usr / "lib" / "x86_64-linux-gnu"
    start = f"{libraries}/ld-linux-x86-64.so.2 --library-path {libraries}"
    emacs = usr / "share" / "emacs" / _EMACS
    lib_exec = usr / "libexec" / "emacs" / _EMACS / "x86_64-linux-gnu"
    dump = next(lib_exec.glob("emacs-*.pdmp"), lib_exec)
    bodies = {
        "nvim": (  # a plain start starts itself a second time, by a path that is the loader's here
            f"export VIMRUNTIME={usr}/share/nvim/runtime\n"
            f'nvim() {{ {start} {usr}/bin/nvim --cmd "set rtp+={usr}/lib/nvim" "$@"; }}\n'
            'socket=$(mktemp -u)\nnvim --headless --listen "$socket" "$@" </dev/null >/dev/null 2>&1 & server=$!\n'
            'until [ -S "$socket" ]; do sleep 0.1; done\nnvim --server "$socket" --remote-ui\nkill $server'
        ),
        "emacs": (
            f"export EMACSDATA={emacs}/etc EMACSDOC={emacs}/etc EMACSPATH={lib_exec} EMACSLOADPATH=:{emacs}/lisp\n"
            f'exec {start} {usr}/bin/emacs-nox --dump-file={dump} "$@"'
        ),
        "python3.14": f'exec {start} {usr}/bin/python3.14 "$@"',
    }
    return write_script(root.parent / "bin" / name, bodies[name])


def version_of(words: Sequence[str | Path]) -> tuple[int, ...]:
    """Return the version that a program prints first, as numbers; () if it cannot be run."""
    try:
        said = run(words)
    except NotHereError:
        return ()
    digits = "".join(each if each.isdigit() else " " for each in said.splitlines()[0].partition(".")[0][-3:])
    major = digits.split()[-1] if digits.split() else "0"
    rest = said.splitlines()[0].partition(".")[2]
    minor = "".join(each if each.isdigit() else " " for each in rest).split()
    return (int(major), int(minor[0]) if minor else 0)
