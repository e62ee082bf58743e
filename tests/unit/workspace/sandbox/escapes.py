"""Attempts to get out of the walls, as a program that runs within them. Standard library only.

Usage: escapes.py WORLD, the description of what is outside as JSON. It prints a line of JSON for each row of INSIDE
that got what it wanted. Rows of OUTSIDE change something if they can; whoever started this program looks afterwards.
"""

import ctypes
import fcntl
import glob
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

CANARY = "canary-7f3a"
LIBC = ctypes.CDLL(None, use_errno=True)


class Stopped(Exception):
    """The attempt got nothing."""


def need(right: object) -> None:
    if not right:
        raise Stopped


def leak(text: object) -> None:
    need(CANARY in (text.decode(errors="replace") if isinstance(text, bytes) else str(text)))


def read(path: str, flags: int = os.O_RDONLY) -> bytes:
    fd = os.open(path, flags)
    try:
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)


def write(path: str, flags: int = os.O_WRONLY | os.O_APPEND, text: bytes = b"escaped") -> None:
    fd = os.open(path, flags, 0o755)
    os.write(fd, text)
    os.close(fd)


def sh(command: str) -> str:
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=10, check=False)
    need(done.returncode == 0)
    return done.stdout


def call(number: int, *arguments: object) -> int:
    result = LIBC.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def libc(name: str, *arguments: object) -> int:
    result = getattr(LIBC, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def socket_to(family: int, kind: int, address: object, data: bytes = b"escaped") -> None:
    with socket.socket(family, kind) as made:
        made.settimeout(2)
        made.connect(address)
        made.send(data)


def handle_of(path: str) -> int:
    buffer, mount = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128)), ctypes.c_int()
    libc("name_to_handle_at", -100, path.encode(), buffer, ctypes.byref(mount), 0)
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    return libc("open_by_handle_at", directory, buffer, os.O_RDONLY)


def memory_of(pid: int) -> bytes:
    target, buffer = ctypes.c_ulong(0x400000), ctypes.create_string_buffer(16)
    local = struct.pack("PN", ctypes.addressof(buffer), 16)
    remote = struct.pack("PN", target.value, 16)
    call(310, ctypes.c_int(pid), local, ctypes.c_ulong(1), remote, ctypes.c_ulong(1), ctypes.c_ulong(0))
    return buffer.raw


def swapped(w: SimpleNamespace, target: str, do: Callable[[str], object]) -> None:
    """Swap a link and a folder while another process uses the path."""
    place, spare = f"{w.src}/race", f"{w.src}/race2"
    os.makedirs(place, exist_ok=True)
    os.symlink(os.path.dirname(target), spare)
    name = os.path.basename(target)
    Path(place, name).touch()
    child = os.fork()
    if not child:
        while True:
            libc("renameat2", -100, place.encode(), -100, spare.encode(), 2)
    try:
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            try:
                do(f"{place}/{name}")
            except OSError:
                continue
    finally:
        os.kill(child, signal.SIGKILL)


def read_in_a_race(w: SimpleNamespace) -> None:
    found: list[bytes] = []
    swapped(w, w.secret, lambda path: found.append(read(path)))
    leak(b"".join(found))


def tied_to_a_signal(pid: int) -> None:
    """Let the kernel send SIGIO to another process when a pipe can be read."""
    reading, writing = os.pipe()
    libc("fcntl", reading, fcntl.F_SETOWN, pid)
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(writing, b"x")


def opened_for_writing(pattern: str) -> None:
    found = glob.glob(pattern)
    need(found)
    for path in found:
        try:
            os.close(os.open(path, os.O_WRONLY))
        except OSError:
            continue
        return
    raise Stopped


def opened_for_reading(pattern: str) -> None:
    need(any(_opens(path) for path in glob.glob(pattern)))


def _opens(path: str) -> bool:
    try:
        return bool(read(path))
    except OSError:
        return False


SI, SD = socket.SOCK_STREAM, socket.SOCK_DGRAM
U, I4, I6 = socket.AF_UNIX, socket.AF_INET, socket.AF_INET6

# What a row of INSIDE wanted, it has if it ends without an exception.
INSIDE: dict[str, Callable[[SimpleNamespace], object]] = {
    # files
    "read a file outside": lambda w: leak(read(w.secret)),
    "read a file outside by dots": lambda w: leak(read(f"{w.root}/../outside/secret")),
    "read a file outside through a link": lambda w: (os.symlink(w.secret, f"{w.src}/l1"), leak(read(f"{w.src}/l1"))),
    "read a file outside through a folder's link": lambda w: (
        os.symlink(w.outside, f"{w.src}/l2"),
        leak(read(f"{w.src}/l2/secret")),
    ),
    "read a file outside by a hard link": lambda w: (os.link(w.secret, f"{w.src}/h1"), leak(read(f"{w.src}/h1"))),
    "read a file outside by the descriptor of its folder": lambda w: leak(
        os.read(os.open("secret", os.O_RDONLY, dir_fd=os.open(w.outside, os.O_PATH)), 99)
    ),
    "read a file outside by opening a path descriptor anew": lambda w: leak(
        read(f"/proc/self/fd/{os.open(w.secret, os.O_PATH)}")
    ),
    "read a file outside by its handle": lambda w: leak(os.read(handle_of(w.secret), 99)),
    "read a file outside by cp": lambda w: leak(sh(f"cp {w.secret} {w.src}/c1 && cat {w.src}/c1")),
    "read a file outside by tar": lambda w: leak(sh(f"tar cf - {w.secret}")),
    "read a file outside by git": lambda w: leak(sh(f"git diff --no-index /dev/null {w.secret} || true")),
    "run a program outside": lambda w: leak(sh(f"{w.outside}/program")),
    "list a folder outside": lambda w: leak(os.listdir(w.outside)),
    "read while a link is swapped in": read_in_a_race,
    # secrets
    "read a key of ssh": lambda w: leak(read(f"{w.home}/.ssh/id_rsa")),
    "read a login of a cloud": lambda w: leak(read(f"{w.home}/.aws/credentials")),
    "read .netrc": lambda w: leak(read(f"{w.home}/.netrc")),
    "read a login in a toolchain": lambda w: leak(read(f"{w.home}/.cargo/credentials.toml")),
    "read a login in a toolchain through the private home": lambda w: leak(
        read(os.path.expanduser("~/.cargo/credentials.toml"))
    ),
    "read a login in a toolchain by a hard link": lambda w: (
        os.link(f"{w.home}/.cargo/credentials.toml", f"{w.src}/h2"),
        leak(read(f"{w.src}/h2")),
    ),
    "read .env": lambda w: leak(read(f"{w.root}/.env")),
    "read .env under another name": lambda w: (
        os.rename(f"{w.root}/.env", f"{w.root}/e1"),
        leak(read(f"{w.root}/e1")),
    ),
    "read .env in another folder": lambda w: (os.rename(f"{w.root}/.env", f"{w.src}/e2"), leak(read(f"{w.src}/e2"))),
    "read .env by a hard link": lambda w: (os.link(f"{w.root}/.env", f"{w.src}/e3"), leak(read(f"{w.src}/e3"))),
    "read .env by exchange": lambda w: (
        Path(w.src, "e4").touch(),
        libc("renameat2", -100, f"{w.root}/.env".encode(), -100, f"{w.src}/e4".encode(), 2),
        leak(read(f"{w.src}/e4")),
    ),
    "read .env in a folder that was renamed": lambda w: (
        os.rename(f"{w.root}/pkg", f"{w.root}/pkg2"),
        leak(read(f"{w.root}/pkg2/.env")),
    ),
    "read .env by grep": lambda w: leak(sh(f"grep -r TOKEN {w.root}")),
    "read a file of the agent": lambda w: leak(read(f"{w.data}/credentials.toml")),
    "read the passwords of the system": lambda _: need(b"root:" in read("/etc/shadow")),
    "read the agent's variables in the own environment": lambda _: leak(os.environ),
    "read the disk": lambda _: opened_for_reading("/dev/[svx]d[a-z]*"),
    "read another user's home": lambda w: leak(sh(f"cat {w.home}/.bashrc")),
    # other processes
    "read the agent's variables": lambda w: leak(read(f"/proc/{w.agent}/environ")),
    "read the agent's memory map": lambda w: need(read(f"/proc/{w.agent}/maps")),
    "read another process's variables": lambda w: leak(read(f"/proc/{w.victim}/environ")),
    "read another process's arguments": lambda w: leak(read(f"/proc/{w.victim}/cmdline")),
    "read another process's memory": lambda w: need(read(f"/proc/{w.victim}/mem")),
    "read another process's open file": lambda w: leak(read(f"/proc/{w.victim}/fd/0")),
    "read below another process's folder": lambda w: leak(read(f"/proc/{w.victim}/cwd/secret")),
    "read below another process's root": lambda w: leak(read(f"/proc/{w.victim}/root{w.secret}")),
    "read below the root of process 1": lambda w: leak(read(f"/proc/1/root{w.secret}")),
    "read below the own root": lambda w: leak(read(f"/proc/self/root{w.secret}")),
    "read any process's variables": lambda _: leak(sh("cat /proc/[0-9]*/environ; true")),
    "read any process's arguments": lambda _: leak(sh("cat /proc/[0-9]*/cmdline; true")),
    "copy another process's memory": lambda w: memory_of(w.victim),
    "trace another process": lambda w: libc("ptrace", 16, w.victim, 0, 0),
    "seize another process": lambda w: libc("ptrace", 0x4206, w.victim, 0, 0),
    "take a descriptor of another process": lambda w: call(438, os.pidfd_open(w.victim), 0, 0),
    "compare with another process": lambda w: call(312, w.victim, os.getpid(), 0, 0, 0),
    # signals
    "signal the agent": lambda w: os.kill(w.agent, 0),
    "signal another process": lambda w: os.kill(w.victim, 0),
    "signal another group": lambda w: os.killpg(w.victim, 0),
    "signal a thread of another process": lambda w: call(234, w.victim, w.victim, 0),
    "signal another process by its descriptor": lambda w: signal.pidfd_send_signal(os.pidfd_open(w.victim), 0),
    "queue a signal for another process": lambda w: call(129, w.victim, 0, bytes(128)),
    # limits of other processes
    "set another process's limits": lambda w: __import__("resource").prlimit(w.victim, 7, (20, 20)),
    "set another process's priority": lambda w: os.setpriority(os.PRIO_PROCESS, w.victim, 19),
    "set another process's processors": lambda w: os.sched_setaffinity(w.victim, {0}),
    "set another process's scheduler": lambda w: os.sched_setscheduler(w.victim, os.SCHED_BATCH, os.sched_param(0)),
    "set another process's disk priority": lambda w: call(251, 1, w.victim, (3 << 13)),
    # network
    "reach a server by address": lambda w: socket_to(I4, SI, ("127.0.0.1", w.tcp)),
    "reach a server by IPv6": lambda w: socket_to(I6, SI, ("::1", w.tcp6)),
    "reach a server by name": lambda w: socket.create_connection(("localhost", w.tcp), 2),
    "reach a server by an address of IPv4 in IPv6": lambda w: socket_to(I6, SI, ("::ffff:127.0.0.1", w.tcp)),
    "reach a server by address 0": lambda w: socket_to(I4, SI, ("0.0.0.0", w.tcp)),
    "reach a server by the shell": lambda w: sh(f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{w.tcp}'"),
    "reach a server with data in the first packet": lambda w: socket.socket(I4, SI).sendto(
        b"escaped", 0x20000000, ("127.0.0.1", w.tcp)
    ),
    "reach a server by another protocol of TCP": lambda w: socket.socket(I4, SI, 262).connect(("127.0.0.1", w.tcp)),
    "reach a host outside": lambda _: socket_to(I4, SI, ("192.0.2.1", 80)),
    "send a packet to a host outside": lambda _: socket.socket(I4, SD).sendto(b"x", ("192.0.2.1", 53)),
    "send a packet of IPv6 to a host outside": lambda _: socket.socket(I6, SD).sendto(b"x", ("2001:db8::1", 53)),
    "send to all hosts of the network": lambda _: socket.socket(I4, SD).sendto(b"x", ("224.0.0.251", 5353)),
    "look up a name": lambda _: socket.getaddrinfo("escape.example.com", 80),
    "make a raw socket": lambda _: socket.socket(I4, socket.SOCK_RAW, 1),
    "make a socket of packets": lambda _: socket.socket(17, socket.SOCK_RAW),
    "make a socket for echo requests": lambda _: socket.socket(I4, SD, 1).sendto(b"\x08\0\0\0", ("192.0.2.1", 0)),
    "make a socket to the hypervisor": lambda _: socket.socket(40, SI),
    "make a socket of the kernel's ciphers": lambda _: socket.socket(38, 5),
    "make a socket of another protocol": lambda _: socket.socket(I4, 5, 132).connect(("127.0.0.1", 9)),
    "use a proxy": lambda w: sh(
        f"https_proxy=http://127.0.0.1:{w.tcp} curl -sm2 -x http://127.0.0.1:{w.tcp} a.example"
    ),
    "add an address to the network": lambda _: sh("ip addr add 192.0.2.9/32 dev lo"),
    # local sockets
    "connect to a server's socket": lambda w: socket_to(U, SI, w.unix),
    "connect to a server's socket through a link": lambda w: (
        os.symlink(w.unix, f"{w.src}/s1"),
        socket_to(U, SI, f"{w.src}/s1"),
    ),
    "connect to a server's socket without a path": lambda w: socket_to(U, SI, w.abstract),
    "send to a socket from one of a pair": lambda w: socket.socketpair(U, SD)[0].sendto(b"escaped", w.datagram),
    "send to a socket": lambda w: socket.socket(U, SD).sendto(b"escaped", w.datagram),
    # shared memory
    "read memory that others share by name": lambda w: leak(read(w.shared)),
    "attach memory that others share by number": lambda w: need(libc("shmat", w.segment, None, 0o10000) or 1),
    "open a message queue": lambda w: libc("mq_open", w.queue.encode(), os.O_RDONLY),
    "open a terminal of another": lambda w: os.open(w.terminal, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK),
    # the kernel
    "mount": lambda w: libc("mount", b"none", w.src.encode(), b"tmpfs", 0, None),
    "bind a folder": lambda w: libc("mount", w.outside.encode(), w.src.encode(), None, 4096, None),
    "make the system writable again": lambda _: libc("mount", None, b"/", None, 32 | 4096, None),
    "unmount": lambda _: libc("umount2", b"/proc", 2),
    "change the root": lambda w: os.chroot(w.src),
    "swap the root": lambda w: call(155, w.src.encode(), w.src.encode()),
    "make a namespace of users": lambda _: libc("unshare", 0x10000000),
    "make a namespace of mounts": lambda _: libc("unshare", 0x00020000),
    "make a namespace in a new process": lambda _: call(56, ctypes.c_ulong(0x10000000 | 17), None, None, None, None),
    "make a namespace by the newer call": lambda _: call(435, struct.pack("11Q", 0x10000000, *[0] * 10), 88),
    "enter another process's namespace": lambda w: libc("setns", os.pidfd_open(w.victim), 0x10000000),
    "open a tree of mounts": lambda _: call(428, -100, b"/", 1),
    "open a file system": lambda _: call(430, b"tmpfs", 0),
    "add a key": lambda _: call(248, b"user", b"acp-agent", b"x", 1, -3),
    "read keys": lambda _: call(250, 0, -3, 0),
    "load a program for the kernel": lambda _: call(321, 0, bytes(64), 64),
    "measure the kernel": lambda _: call(298, struct.pack("II", 1, 112) + bytes(104), 0, -1, -1, 0),
    "catch page faults": lambda _: call(323, 1),
    "queue calls for the kernel": lambda _: call(425, 4, bytes(120)),
    "load a module": lambda _: call(175, b"", 0, b""),
    "load another kernel": lambda _: call(246, 0, 0, None, 0),
    "name the host": lambda _: libc("sethostname", b"escaped", 7),
    "set the clock": lambda _: libc("settimeofday", struct.pack("qq", int(time.time()), 0), None),
    "read the log of the kernel": lambda _: need(libc("klogctl", 3, ctypes.create_string_buffer(4096), 4096)),
    "reach the ports of the machine": lambda _: call(172, 3),
    "use calls with short pointers": lambda _: call(0x40000000 + 39),
    "be given capabilities": lambda _: libc("capset", struct.pack("Ii", 0x20080522, 0), b"\xff" * 8 + bytes(16)),
    "become root": lambda _: need(sh("su -c 'cat /etc/shadow' root </dev/null || sudo -n cat /etc/shadow")),
    "change another user's id": lambda _: need(os.setuid(12345) or os.getuid() == 12345),
    "write to the settings of the kernel": lambda _: opened_for_writing("/proc/sys/kernel/core_pattern"),
    "write to the keys of the console": lambda _: opened_for_writing("/proc/sysrq-trigger"),
    "write to groups of processes": lambda _: opened_for_writing("/sys/fs/cgroup/cgroup.procs"),
    "write to devices": lambda _: opened_for_writing("/sys/power/state"),
    "write to the score of another process": lambda w: opened_for_writing(f"/proc/{w.victim}/oom_score_adj"),
    "open the memory of the machine": lambda _: opened_for_reading("/dev/mem"),
    "open the kernel's image": lambda _: opened_for_reading("/proc/kcore"),
    "open a device that makes others": lambda _: opened_for_writing("/dev/[fuk][uiv][sm]*"),
}


def changes(w: SimpleNamespace, t: str) -> dict[str, Callable[[], object]]:
    """Return attempts to change the file `t` outside, or what stands below its folder."""
    near = os.path.dirname(t)
    return {
        "append": lambda: write(t),
        "overwrite": lambda: write(t, os.O_WRONLY | os.O_TRUNC),
        "empty by its path": lambda: os.truncate(t, 0),
        "empty while it is opened for reading": lambda: os.open(t, os.O_RDONLY | os.O_TRUNC),
        "empty by its descriptor": lambda: os.ftruncate(os.open(t, os.O_RDONLY), 0),
        "delete": lambda: os.unlink(t),
        "rename": lambda: os.rename(t, t + "x"),
        "rename into the roots": lambda: os.rename(t, f"{w.src}/taken"),
        "replace by a rename": lambda: (Path(w.src, "new").write_text("x"), os.rename(f"{w.src}/new", t)),
        "exchange": lambda: libc("renameat2", -100, t.encode(), -100, f"{w.src}/escapes.py".encode(), 2),
        "write through a link": lambda: (os.symlink(t, f"{w.src}/w1"), write(f"{w.src}/w1")),
        "write by a hard link": lambda: (os.link(t, f"{w.src}/w2"), write(f"{w.src}/w2")),
        "write below the own root": lambda: write(f"/proc/self/root{t}"),
        "write by opening a path descriptor anew": lambda: write(f"/proc/self/fd/{os.open(t, os.O_PATH)}"),
        "write by opening a descriptor anew": lambda: write(f"/proc/self/fd/{os.open(t, os.O_RDONLY)}"),
        "write to its pages": lambda: mmap.mmap(os.open(t, os.O_RDONLY), 4).write(b"esc"),
        "change its mode": lambda: os.chmod(t, 0o777),
        "change its mode by its descriptor": lambda: os.fchmod(os.open(t, os.O_RDONLY), 0o777),
        "change its mode through its folder": lambda: os.chmod("target", 0o777, dir_fd=os.open(near, os.O_PATH)),
        "change its mode through a link": lambda: (os.symlink(t, f"{w.src}/m1"), os.chmod(f"{w.src}/m1", 0o777)),
        "change its mode by a descriptor's name": lambda: os.chmod(f"/proc/self/fd/{os.open(t, os.O_PATH)}", 0o777),
        "change its mode by the newer call": lambda: call(452, -100, t.encode(), 0o777, 0),
        "change its times": lambda: os.utime(t, (1, 1)),
        "change its times by its descriptor": lambda: os.utime(os.open(t, os.O_RDONLY), (1, 1)),
        "change its times by the oldest call": lambda: call(132, t.encode(), struct.pack("qq", 1, 1)),
        "change its owner": lambda: os.chown(t, 12345, 12345),
        "change its owner by its descriptor": lambda: os.fchown(os.open(t, os.O_RDONLY), 12345, 12345),
        "change its owner by a link's call": lambda: os.lchown(t, 12345, 12345),
        "add an attribute": lambda: os.setxattr(t, "user.escaped", b"x"),
        "add an attribute by its descriptor": lambda: os.setxattr(os.open(t, os.O_RDONLY), "user.escaped", b"x"),
        "change its flags": lambda: fcntl.ioctl(os.open(t, os.O_RDONLY), 0x40086602, struct.pack("l", 0x10)),
        "make a file beside it": lambda: write(f"{near}/made", os.O_WRONLY | os.O_CREAT),
        "make a folder beside it": lambda: os.mkdir(f"{near}/folder"),
        "make a device beside it": lambda: os.mknod(f"{near}/device", 0o020666, os.makedev(1, 3)),
        "make a pipe beside it": lambda: os.mkfifo(f"{near}/pipe"),
        "make a link beside it": lambda: os.symlink("/", f"{near}/link"),
        "make a socket beside it": lambda: socket.socket(U, SI).bind(f"{near}/socket"),
        "link a file of the roots beside it": lambda: os.link(f"{w.src}/escapes.py", f"{near}/linked"),
        "name an unnamed file beside it": lambda: os.open(near, os.O_TMPFILE | os.O_WRONLY),
        "delete its folder": lambda: sh(f"rm -rf {near}"),
        "rename its folder": lambda: os.rename(near, near + "x"),
        "edit with sed": lambda: sh(f"sed -i s/a/b/ {t}"),
        "unpack over it": lambda: sh(
            f"cd {w.src} && echo x > ..x && tar cf a.tar ..x && tar xPf a.tar --transform 's,.*,{t},'"
        ),
        "copy with dd": lambda: sh(f"dd if=/dev/zero of={t} bs=1 count=4 conv=notrunc"),
        "write while a link is swapped in": lambda: swapped(w, t, write),
        "write by a rule of make": lambda: sh(f"cd {w.src} && printf 'all:\\n\\techo x >> {t}\\n' > Makefile && make"),
        "write by a hook of git": lambda: sh(
            f"cd {w.src} && git init -q r && cd r && printf '#!/bin/sh\\necho x >> {t}\\n' > .git/hooks/pre-commit && "
            "chmod +x .git/hooks/pre-commit && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"
        ),
        "write by a job for later": lambda: sh(f"echo 'echo x >> {t}' | at now"),
        "write by a unit of the system": lambda: sh(f"systemd-run --user --wait sh -c 'echo x >> {t}'"),
        "write by a daemon that is left behind": lambda: sh(
            f"setsid sh -c '(sleep 0.1; echo x >> {t}) &' >/dev/null 2>&1"
        ),
    }


SLOW = ("become root",)
"""Those of INSIDE that do little but wait: `su` answers a wrong password after a second. They run beside the others."""


# What is tried in the roots: nothing of it may be there afterwards.
PROTECTED: dict[str, Callable[[SimpleNamespace], object]] = {
    "make a hook": lambda w: write(f"{w.git}/hooks/pre-commit", os.O_WRONLY | os.O_CREAT),
    "write to a hook": lambda w: write(f"{w.git}/hooks/post-commit"),
    "make a hook runnable": lambda w: os.chmod(f"{w.git}/hooks/post-commit", 0o777),
    "replace a hook": lambda w: (Path(w.src, "k1").touch(), os.rename(f"{w.src}/k1", f"{w.git}/hooks/post-commit")),
    "write to a hook by a hard link": lambda w: (
        os.link(f"{w.git}/hooks/post-commit", f"{w.src}/k2"),
        write(f"{w.src}/k2"),
    ),
    "write to a hook through a link": lambda w: (
        os.symlink(f"{w.git}/hooks", f"{w.src}/k3"),
        write(f"{w.src}/k3/post-commit"),
    ),
    "rename the hooks": lambda w: os.rename(f"{w.git}/hooks", f"{w.git}/old-hooks"),
    "move the hooks away": lambda w: os.rename(f"{w.git}/hooks", f"{w.src}/old-hooks"),
    "exchange the hooks": lambda w: (
        os.mkdir(f"{w.src}/k4"),
        libc("renameat2", -100, f"{w.git}/hooks".encode(), -100, f"{w.src}/k4".encode(), 2),
    ),
    "delete the hooks": lambda w: sh(f"rm -rf {w.git}/hooks"),
    "write to the settings of git": lambda w: write(f"{w.git}/config"),
    "set a monitor for git": lambda w: sh(f"git -C {w.root} config core.fsmonitor ./x"),
    "set where hooks are": lambda w: sh(f"git -C {w.root} config core.hooksPath src"),
    "rename .git and build another": lambda w: sh(
        f"cd {w.root} && mv .git g && mkdir -p .git/hooks && echo x > .git/hooks/a"
    ),
    "move .git away": lambda w: os.rename(w.git, f"{w.src}/g"),
    "delete .git": lambda w: sh(f"rm -rf {w.git}"),
    "write to a hook of a submodule": lambda w: write(f"{w.git}/modules/a/hooks/post-commit"),
    "write to the settings of a submodule": lambda w: write(f"{w.git}/modules/a/config"),
    "rename a submodule's folder": lambda w: os.rename(f"{w.git}/modules", f"{w.git}/modules2"),
    "write to an editor's tasks": lambda w: write(f"{w.root}/.vscode/tasks.json"),
    "replace an editor's tasks": lambda w: sh(f"cd {w.root} && echo x > src/k5 && mv src/k5 .vscode/tasks.json"),
    "rename an editor's folder": lambda w: os.rename(f"{w.root}/.vscode", f"{w.root}/v"),
    "write to an editor's tasks in a lower folder": lambda w: write(f"{w.root}/pkg/.vscode/tasks.json"),
    "rename the folder above an editor's tasks": lambda w: os.rename(f"{w.root}/pkg", f"{w.root}/pkg3"),
    "write to what a shell runs on entering": lambda w: write(f"{w.root}/.envrc"),
    "write to a start file of a shell": lambda w: write(f"{w.home}/.bashrc"),
    "write a key that may log in": lambda w: write(f"{w.home}/.ssh/authorized_keys", os.O_WRONLY | os.O_CREAT),
    "write what starts with the desktop": lambda w: write(
        f"{w.home}/.config/autostart/a.desktop", os.O_WRONLY | os.O_CREAT
    ),
    "write to the settings of a toolchain": lambda w: write(f"{w.home}/.cargo/config.toml", os.O_WRONLY | os.O_CREAT),
    "write a program on the path": lambda w: write(f"{w.home}/.cargo/bin/escaped", os.O_WRONLY | os.O_CREAT),
    "write a job of the system": lambda _: write("/etc/cron.d/escaped", os.O_WRONLY | os.O_CREAT),
    "write what every program loads": lambda _: write("/etc/ld.so.preload", os.O_WRONLY | os.O_CREAT),
    "write a program of the system": lambda _: write("/usr/bin/escaped", os.O_WRONLY | os.O_CREAT),
    "write a job of a user": lambda _: sh("echo '* * * * * true' | crontab -"),
    "write by a script of a package": lambda w: (
        Path(w.src, "package.json").write_text(json.dumps({"scripts": {"x": f"echo x >> {w.home}/.bashrc"}})),
        sh(f"cd {w.src} && npm run --silent x"),
    ),
    # processes, sockets and terminals, which whoever looks afterwards has watched
    "end another process": lambda w: os.kill(w.victim, signal.SIGKILL),
    "end another process by the kernel's hand": lambda w: tied_to_a_signal(w.victim),
    "send a packet to a server": lambda w: socket.socket(I4, SD).sendto(b"escaped", ("127.0.0.1", w.udp)),
    "write to another's terminal": lambda w: write(w.terminal, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK),
    "type into another's terminal": lambda w: fcntl.ioctl(os.open(w.terminal, os.O_RDWR | os.O_NOCTTY), 0x5412, b"x"),
    "type into the own terminal": lambda _: fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), 0x5412, b"x"),
    "make memory that all share": lambda w: libc("shmget", w.key, 4096, 0o1666),
    "rename the folder above the roots": lambda w: os.rename(w.world, w.world + "x"),
    "write to memory that others share": lambda w: write(w.shared, os.O_WRONLY),
}


def begin(attempt: Callable[[], object]) -> int:
    """Run an attempt in a process of its own, for at most 5 seconds. Return its id."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(5)
            attempt()
            code = 0
        except BaseException:  # noqa: BLE001 - whatever stopped it
            code = 1
        finally:
            os._exit(code)
    return child


def succeeds(child: int) -> bool:
    """Wait for the process of an attempt. Return whether it got what it wanted."""
    return os.waitpid(child, 0)[1] == 0


def apart(attempt: Callable[[], object]) -> bool:
    """Run an attempt in a process of its own. Return whether it got what it wanted."""
    return succeeds(begin(attempt))


def main() -> None:
    w = SimpleNamespace(**json.loads(sys.argv[1]))
    slow = {name: begin(lambda attempt=INSIDE[name]: attempt(w)) for name in SLOW}
    for name, attempt in INSIDE.items():
        if name not in SLOW and apart(lambda attempt=attempt: attempt(w)):
            print(json.dumps(name), flush=True)
    for number, name in enumerate(changes(w, "")):
        apart(changes(w, f"{w.targets}/{number}/target")[name])
    for number, name in enumerate(changes(w, "")):
        apart(changes(w, f"{w.home}/.cargo/targets/{number}/target")[name])
    changed = time.monotonic()
    for attempt in PROTECTED.values():
        apart(lambda attempt=attempt: attempt(w))
    for name, child in slow.items():
        if succeeds(child):
            print(json.dumps(name), flush=True)
    time.sleep(max(0.0, changed + 0.3 - time.monotonic()))  # for the daemon


if __name__ == "__main__":
    main()
