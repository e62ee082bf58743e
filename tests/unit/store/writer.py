"""A process that writes the audit, to be run beside others, killed, or kept from writing.

python -m tests.unit.store.writer append PATH COUNT      appends so many records
python -m tests.unit.store.writer kills PATH COUNT       starts so many writers and kills each with SIGKILL
python -m tests.unit.store.writer full PATH BYTES        writes until a file may be no larger, then goes on
"""

import os
import random
import resource
import signal
import sys

from acp_agent.store.audit import AuditLog
from acp_agent.store.audit_record import Success, ToolRecord


def record(number: int) -> ToolRecord:
    return ToolRecord(
        tool="bash",
        call={"command": "x" * (number % 700)},
        result=Success(),
        correlation_id=f"{os.getpid()}-{number}",
        duration_ms=1,
    )


def append(path: str, count: int) -> None:
    log = AuditLog(path, print)
    for number in range(count):
        assert log.append(record(number))


def kills(path: str, count: int) -> None:
    """Prints how many records the killed writers were told are written."""
    chance, acknowledged = random.Random(count), 0
    for _ in range(count):
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            log, number = AuditLog(path, print), 0
            while log.append(record(number)):
                os.write(tell, b"x")
                number += 1
            os._exit(1)
        os.close(tell)
        for _ in range(chance.randrange(1, 40)):
            acknowledged += len(os.read(told, 1))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        while more := os.read(told, 4096):
            acknowledged += len(more)
        os.close(told)
    print(acknowledged)


def full(path: str, size: int) -> None:
    """Prints how many records were written, and what the log said of it."""
    warnings: list[str] = []
    log = AuditLog(path, warnings.append)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    written = 0
    while log.append(record(300)):
        written += 1
    assert not log.append(record(300))
    assert log.trouble(), "nothing may change while nothing can be written"
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert not log.trouble()
    assert log.append(record(1))
    print(written, *warnings, sep="\n")


if __name__ == "__main__":
    {"append": append, "kills": kills, "full": full}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
