"""The strategy that shows once what a log says over and over (requirements O2, `dedup`)."""

import re

from acp_agent.core.types import Confidence
from acp_agent.output.filters.run import CommandRun
from acp_agent.output.filters.strategy import Applied

MAX_PATTERNS = 10_000
"""Different lines that are remembered; what is new after them stays as it is (O2)."""

_FEWEST_LINES = 3
_ANY = "\0"  # stands for what varies; sanitized text has none of its own

# One leading class, so that the search runs at memory speed; the character before the digit is looked at behind it.
_VARYING = re.compile(
    r"""[0-9](?:
        (?<=[^\w.]\d)(?:
            \d{3}[-/]\d\d[-/]\d\d(?:[T\x20]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|\x20?[+-]\d\d:?\d\d)?)?  # ISO 8601
          | \d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d(?:\x20[+-]\d{4})?                                    # web servers
          | \d?\x20\d\d:\d\d:\d\d(?:[.,]\d{1,9})?                                                      # syslog's day
          | \d:\d\d:\d\d(?:[.,]\d{1,9})?
          | \d{9}(?:\d{3})?(?:\.\d{1,9})?(?![\w.])                                            # seconds since 1970
          | \d{0,2}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?::\d{1,5})?(?![\w.])                          # IPv4, and its port
        )
      | (?:(?<=[oO][rR][tT][\x20=:].)|(?<=[pP][iI][dD][\x20=:].)|(?<=(?:[oO][rR][tT]|[pP][iI][dD]):\x20.))\d*
      | (?<=\w\[.)\d*(?=\])                                                                   # sshd[4711]
    )""",
    re.VERBOSE,
)
_UUID_FROM_9 = re.compile(r"-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_UUID_UP_TO_8 = 8


class Dedup:
    """Lines that are equal but for times, UUIDs, IP addresses, ports and process ids become the first of them."""

    def apply(self, text: str, run: CommandRun) -> Applied:
        """Each line once, with " (xN)" behind it, and how many there were. Fallback if nothing was said twice.

        Full if all that went was repeated word for word, Partial if it differed in what does not matter.
        """
        del run
        lines = text.removesuffix("\n").split("\n")
        if len(lines) < _FEWEST_LINES:
            return Applied(text, Confidence.FALLBACK)
        patterns = normalised(text.removesuffix("\n")).split("\n")
        first: list[str] = []
        counts: list[int] = []
        place: dict[str, int] = {}
        for line, pattern in zip(lines, patterns, strict=True):
            at = place.get(pattern)
            if at is not None:
                counts[at] += 1
                continue
            if len(place) < MAX_PATTERNS:
                place[pattern] = len(first)
            first.append(line)
            counts.append(1)
        if len(first) == len(lines):
            return Applied(text, Confidence.FALLBACK)
        shown = [f"{line} (x{count})" if count > 1 else line for line, count in zip(first, counts, strict=True)]
        total = f"{len(first)} unique patterns ({len(lines)} total lines)\n"
        exact = len(set(lines)) == len(first)
        return Applied("\n".join((*shown, total)), Confidence.FULL if exact else Confidence.PARTIAL)


def normalised(text: str) -> str:
    """The text with one sign in place of each time, UUID, IPv4 address, port and process id; lines stay lines."""
    *before, last = _UUID_FROM_9.split(text)
    heads = (part[:-_UUID_UP_TO_8] if part[-_UUID_UP_TO_8:].isalnum() else part for part in before)
    return _VARYING.sub(_ANY, f"\n{_ANY.join((*heads, last))}")[1:]
