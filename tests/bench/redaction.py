"""Redaction: what taking secrets out of text costs, and how that grows."""

import hashlib
import time
from collections.abc import Callable

from acp_agent.output.redaction.redactor import Redactor
from acp_agent.output.redaction.rules import KnownSecrets

Sample = tuple[str, str, float | None, list[float], list[float]]
"""What was measured, its unit, the median we aim for, our samples, and those of a floor (none)."""

MEGABYTE = 10**6
_LINE = "2026-05-01 12:00:{:02} INFO  server.worker request handled path=/api/v1/items/{} status=200 in 12.5ms {}\n"


def rows(rounds: int = 5) -> list[Sample]:
    """Milliseconds, of CPU time so that neighbours do not count, a megabyte or for all of it."""
    redact = Redactor()
    few, many = (_knowing(count) for count in (10, 300))
    plain = log(10 * MEGABYTE, lambda _number: "user=alice")
    cases = [
        ("redact 10 MB of log, ASCII", redact, plain, 200.0),
        ("  1 line in 50 with non-ASCII", redact, log(10 * MEGABYTE, _accented), 200.0),
        ("  with 10 known values", few, plain, 240.0),
        ("  with 300 known values", many, plain, 240.0),
        ("  1 line in 100 with a secret", redact, log(10 * MEGABYTE, _seldom_secret), 500.0),
        ("redact 1 MB, keywords in every line", redact, log(MEGABYTE, _keywords), 200.0),
        ("  a secret in every line", redact, log(MEGABYTE, _secret), None),
        ("  a JSON line each, half with a token", redact, log(MEGABYTE, _json), 100.0),
        ("  tokens counted in every line", redact, log(MEGABYTE, _usage), 100.0),
        ("  hex keys of an environment", redact, log(MEGABYTE, _key), 200.0),
        ("  on a single line", redact, log(MEGABYTE, _keywords).replace("\n", " "), 200.0),
    ]
    return [(what, "ms", aim, _milliseconds(one, text, rounds), []) for what, one, text, aim in cases]


def _knowing(count: int) -> Redactor:
    known = KnownSecrets()
    known.add(f"obviously-fake-{number:08}-value" for number in range(count))
    return Redactor(known)


def log(size: int, tail: Callable[[int], str]) -> str:
    """About so many characters of log lines, `tail(number)` at the end of each."""
    count = size // len(_LINE.format(0, 10_000, tail(1)))
    return "".join(_LINE.format(number % 60, number, tail(number)) for number in range(count))


def _accented(number: int) -> str:
    return "user=Zoë ✓" if number % 50 == 0 else "user=alice"


def _keywords(number: int) -> str:
    return f"max_tokens=4096 token_count: {number} password=none"


def _secret(number: int) -> str:
    return f"password=obviously-fake-{number}"


def _seldom_secret(number: int) -> str:
    return _secret(number) if number % 100 == 0 else "user=alice"


def _json(number: int) -> str:
    key = "access_token" if number % 2 else "id"
    return f'{{"level":"info","msg":"request done","user":{number},"{key}":"{_random(number)}","status":200}}'


def _usage(number: int) -> str:
    return (
        f"prompt_tokens={number % 4000} completion_tokens={number % 900} total_tokens={number % 5000} max_tokens=4096"
    )


def _key(number: int) -> str:
    return f"SERVICE_{number}_API_KEY={_random(number)}"


def _random(seed: int) -> str:
    return hashlib.sha256(str(seed).encode()).hexdigest()[:40]


def _milliseconds(redact: Redactor, text: str, rounds: int) -> list[float]:
    """The first round warms up: expressions are compiled when they are first needed."""
    samples = list[float]()
    for _ in range(rounds + 1):
        started = time.process_time()
        redact.redact(text)
        samples.append((time.process_time() - started) * 1000)
    return samples[1:]
