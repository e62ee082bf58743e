"""A session worth looking at, and what tests need to make others."""

import base64
import itertools
import struct
import zlib
from collections.abc import AsyncIterator, Iterable
from functools import cache

from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import (
    PlanChanged,
    PlanEntry,
    PlanStatus,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
    TranscriptEvent,
    UsageChanged,
    UserMessage,
)
from acp_agent.core.messages import LinkPart, Message, ResourcePart, Role, TextPart, Usage
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import HistoryState, SessionRecord, SessionSnapshot, StoredEvent, UsageTotals
from acp_agent.core.types import Diff, ImagePart, JsonObject, ToolKind, ToolResult

BEGUN = 1_763_709_000_000  # 21 November 2025
ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"

OLD = '''"""Prices in a shop."""

from decimal import Decimal


def total(prices, discount=0):
    """Sum of all prices, less a discount in percent."""
    result = 0
    for price in prices:
        result += price
    return result - result * discount / 100


def formatted(amount):
    return f"{amount:.2f} EUR"
'''
NEW = OLD.replace("prices, discount=0", "prices: Iterable[Decimal], discount: int = 0").replace(
    """    result = 0
    for price in prices:
        result += price
    return result - result * discount / 100
""",
    """    whole = sum(prices, start=Decimal(0))
    return (whole * (100 - discount) / 100).quantize(CENT, ROUND_HALF_EVEN)
""",
)
PYTEST = """\x1b[1m============================= test session starts ==============================\x1b[0m
collected 14 items

tests/test_prices.py \x1b[32m..........\x1b[0m\x1b[31mF\x1b[0m\x1b[32m...\x1b[0m                    [100%]

>       assert total([Decimal("0.10")] * 3) == Decimal("0.30")
E       AssertionError: assert 0.30000000000000004 == Decimal('0.30')

\x1b[31m========================= 1 failed, 13 passed in 0.09s =========================\x1b[0m
"""
ANSWER = """The total was computed with **binary floats**, so three times ten cents came out as `0.30000000000000004`.

### What I changed

1. `total` now sums `Decimal` values and rounds *once*, at the end.
2. The discount is applied before rounding:
   - whole percents only
   - [banker's rounding](https://docs.python.org/3/library/decimal.html#rounding-modes), as the invoice module does

| case | before | now |
|---|---|---|
| 3 × 0.10 | `0.30000000000000004` | `0.30` |
| 10 % of 9.99 | `8.991` | `8.99` |

```python
CENT = Decimal("0.01")

def total(prices: Iterable[Decimal], discount: int = 0) -> Decimal:
    whole = sum(prices, start=Decimal(0))
    return (whole * (100 - discount) / 100).quantize(CENT, ROUND_HALF_EVEN)
```

> Callers that pass floats now get a `TypeError`. There are none in this repository, but if you publish the package
> this wants a line in the changelog.
"""


@cache
def picture(width: int = 320, height: int = 120) -> ImagePart:
    """A small PNG: bars on a pale ground."""
    rows = b"".join(
        b"\0"
        + b"".join(
            b"\x0c\x6a\x61" if (x // 24) % 2 and height - y < 20 + (x * 7 // 24) % 90 else b"\xee\xeb\xe2"
            for x in range(width)
        )
        for y in range(height)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return ImagePart(base64.b64encode(data).decode(), "image/png")


def call(
    name: str, title: str, kind: ToolKind, raw_input: JsonObject, result: ToolResult, elapsed: float
) -> tuple[TranscriptEvent, TranscriptEvent]:
    """A whole call: two events."""
    number = f"call-{name}-{title}"
    return ToolStarted(number, name, title, kind, raw_input), ToolFinished(number, name, result, elapsed)


def events() -> list[TranscriptEvent]:
    """Two turns, with one of everything."""
    plan = ("Find where the total is computed", "Use decimals", "Run the tests")

    def steps(*states: PlanStatus) -> PlanChanged:
        return PlanChanged(tuple(PlanEntry(what, state) for what, state in zip(plan, states, strict=True)))

    todo, doing, done = PlanStatus.PENDING, PlanStatus.IN_PROGRESS, PlanStatus.COMPLETED
    edit = Diff("/projects/shop/shop/prices.py", OLD, NEW)
    new = Diff("/projects/shop/tests/test_rounding.py", None, "from decimal import Decimal\n\nfrom shop import total\n")
    failed = ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, "/projects/shop/prices.py: there is no such file")
    return [
        UserMessage(
            (
                TextPart(
                    "The checkout shows 0.30000000000000004 EUR for three stickers at ten cents. "
                    "Please mend the total, with tests.\n\nThe picture is what a customer sent us."
                ),
                LinkPart("file:///projects/shop/shop/prices.py", "prices.py"),
                ResourcePart("file:///projects/shop/notes/rounding.md", "Invoices round half to even.\n"),
                picture(),
            ),
            "u1",
        ),
        ThoughtDelta("The user sees a float artefact. ", "t1"),
        ThoughtDelta("I should look at `total` first, then at who calls it.", "t1"),
        TextDelta("I'll look at how the total is ", "m1"),
        TextDelta("computed, and at what the tests say today.", "m1"),
        UsageChanged(9_200, 64_000, 0.021),
        steps(doing, todo, todo),
        *call("read", "prices.py", ToolKind.READ, {"path": "prices.py"}, ToolResult.failed(failed), 0.004),
        *call("read", "shop/prices.py", ToolKind.READ, {"path": "shop/prices.py"}, ToolResult(OLD), 0.011),
        *call(
            "grep",
            "total( in shop",
            ToolKind.SEARCH,
            {"pattern": r"total\(", "path": "shop", "ignore_case": False},
            ToolResult(
                "shop/basket.py:41:        return total(self.prices, self.discount)\nshop/prices.py:6:def total("
            ),
            0.038,
        ),
        UsageChanged(14_900, 64_000, 0.034),
        *call(
            "bash",
            "python -m pytest -q",
            ToolKind.EXECUTE,
            {"command": "python -m pytest -q", "timeout": 120},
            ToolResult(PYTEST, envelope={"exit_code": 1}),
            1.84,
        ),
        UsageChanged(18_300, 64_000, 0.041),
        steps(done, doing, todo),
        *call(
            "edit",
            "shop/prices.py",
            ToolKind.EDIT,
            {"path": "shop/prices.py", "old_text": OLD, "new_text": NEW},
            ToolResult("edited", diffs=(edit,)),
            4.2,
        ),
        *call(
            "write",
            "tests/test_rounding.py",
            ToolKind.EDIT,
            {"path": "tests/test_rounding.py", "content": "…"},
            ToolResult("written", diffs=(new,)),
            75.0,
        ),
        UsageChanged(24_750, 64_000, 0.068),
        *call(
            "bash",
            "python -m pytest -q",
            ToolKind.EXECUTE,
            {"command": "python -m pytest -q"},
            ToolResult(
                "................                                      [100%]\n16 passed in 0.08s",
                envelope={"exit_code": 0},
            ),
            1.61,
        ),
        UsageChanged(27_100, 64_000, 0.079),
        steps(done, done, done),
        TextDelta(ANSWER, "m2"),
        UserMessage((TextPart("Good. Is there anything else in the shop that adds up floats?"),), "u2"),
        UsageChanged(31_800, 64_000, 0.094),
        ToolStarted("open", "bash", "rg 'float|round' shop", ToolKind.EXECUTE, {"command": "rg -n 'float|round' shop"}),
        UserMessage((TextPart("Sorry, my laptop went to sleep. Go on?"),), "u3"),
        TextDelta(
            "One more: `shop/shipping.py` multiplies a **weight** by a rate. It is a float on purpose, and rounded "
            "where it becomes money, so I left it.\n",
            "m3",
        ),
        UsageChanged(33_050, 64_000, 0.101),
    ]


def saved(title: str = "Mend the rounding of the total", **record: object) -> SessionSnapshot:
    """All but the events."""
    values = {
        "id": ID,
        "cwd": "/projects/shop",
        "title": title,
        "created_at": BEGUN,
        "updated_at": BEGUN + 2_040_000,
        "prompts": 3,
        "model": "anthropic:claude-sonnet-4-5",
    } | record
    return SessionSnapshot(
        SessionRecord(**values),
        SessionOptions(),
        UsageTotals(
            used=33_050, size=64_000, usage=Usage(12_400, 4_310, 118_000, 29_000), cost=0.101, calls=7, batches=5
        ),
        HistoryState((Message(Role.USER, (TextPart("Please mend the total"),)),), tokens=33_050),
    )


def at(told: Iterable[TranscriptEvent]) -> list[StoredEvent]:
    """Events with their numbers and times, four seconds from one to the next."""
    return [StoredEvent(n, BEGUN + 4_000 * n, event) for n, event in zip(itertools.count(1), told, strict=False)]


async def telling(told: Iterable[StoredEvent]) -> AsyncIterator[StoredEvent]:
    """The events as a store gives them."""
    for one in told:
        yield one
