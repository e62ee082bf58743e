"""`python -m tests.bench.pace`: how long each filter takes for a megabyte. The goal is 50 ms at p95."""

import re
import statistics
import time

from acp_agent.output.pipeline import shortened
from tests.bench.outputs import outputs, shown
from tests.bench.savings import every_rule

_AIM = 50.0  # ms
_NAMES = re.compile(r"\b(?!node_modules\b)[a-z]+(?:_[a-z]+)+\b|\b[a-z]{3,}(?=\.(?:py|rs|go|[jt]sx?|[ch])\b)")


def paces(size: int = 1_000_000, rounds: int = 5) -> dict[str, list[float]]:
    """CPU milliseconds a megabyte takes, by rules: each output over and over up to `size` characters.

    Names differ from copy to copy, as in a real output of that size: nothing is gained by knowing lines again.
    """
    by_rule: dict[str, list[float]] = {}
    with every_rule() as engine:
        for output in outputs():
            each = shown(output, engine)
            text = _copies(each.clean, max(1, size // len(each.clean)))
            for _ in range(rounds if each.rules else 0):
                begun = time.thread_time()
                shortened(text, output.run, engine)
                spent = time.thread_time() - begun
                by_rule.setdefault("+".join(each.rules), []).append(spent * 1e9 / len(text))
    return by_rule


def _copies(text: str, number: int) -> str:
    parts = [text]
    for copy in range(1, number):
        parts.append(_NAMES.sub(rf"\g<0>{copy}", text))
    return "".join(parts)


def p95(samples: list[float]) -> float:
    """The time 95 % of the samples stay under."""
    return statistics.quantiles(samples, n=20)[-1]


def measured(rounds: int = 5) -> list[tuple[str, str, float | None, list[float], list[float]]]:
    """Rows for `python -m tests.bench`: p95 over all outputs, and of the slowest rule."""
    by_rule = paces(rounds=rounds)
    everything = [sample for samples in by_rule.values() for sample in samples]
    slowest = max(by_rule, key=lambda rule: p95(by_rule[rule]))
    return [
        ("filters: p95 for 1 MB", "ms", _AIM, [p95(everything)], []),
        (f"filters: p95 for 1 MB, {slowest}", "ms", _AIM, [p95(by_rule[slowest])], []),
    ]


def main() -> None:
    by_rule = paces()
    everything = [sample for samples in by_rule.values() for sample in samples]
    for rule, samples in sorted((*by_rule.items(), ("all", everything)), key=lambda item: -p95(item[1])):
        print(
            f"{rule:24}{len(samples):5}  median {statistics.median(samples):6.1f} ms/MB  p95 {p95(samples):6.1f} ms/MB"
        )


if __name__ == "__main__":
    main()
