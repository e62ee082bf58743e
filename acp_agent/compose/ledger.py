"""What the model calls of a session took, and what they cost (requirements E6)."""

from collections.abc import Callable, Sequence

from acp_agent.core.errors import ConfigError
from acp_agent.core.messages import Usage
from acp_agent.core.sessions import UsageTotals
from acp_agent.llm.models import ModelRef, Price


class Ledger:
    """Added up call by call, each at the price of its own model; chores and summaries included.

    usage   tokens of all calls, as far as the servers said
    """

    def __init__(self) -> None:
        self.usage = Usage()
        self._cost = 0.0  # US dollars
        self._priced = False  # whether any call has a cost
        self._complete = True  # whether all have

    @property
    def cost(self) -> float | None:
        """US dollars of the calls whose price is known; None before the first of them."""
        return self._cost if self._priced else None

    @property
    def complete(self) -> bool:
        """Whether that is all of them."""
        return self._complete

    def restore(self, tally: UsageTotals) -> None:
        """Go on where a session that was kept had come to."""
        self.usage = tally.usage
        self._cost, self._priced = tally.cost or 0.0, tally.cost is not None
        self._complete = tally.complete

    def add(self, price: Callable[[ModelRef], Price | None], ref: ModelRef, usage: Usage | None) -> None:
        """Count one call; `usage` is None where nobody said what it took."""
        self.usage += usage or Usage()
        cost = _cost(price, ref, usage)
        if cost is None:
            self._complete = False
        else:
            self._cost += cost
            self._priced = True

    def status(self) -> Sequence[str]:
        """A line for /status, once there is anything to tell. Never a guess: what is not known makes it "at least"."""
        usage = self.usage
        if usage == Usage():
            return ()
        cached = f", {usage.cache_read:,} from the cache" if usage.cache_read else ""
        least = "" if self._complete else "at least "
        money = f"; {least}${self._cost:.4f}" if self._priced else ""
        read = usage.input + usage.cache_read + usage.cache_write
        return (f"Tokens: {read:,} read{cached}, {usage.output:,} written{money}",)


def _cost(price: Callable[[ModelRef], Price | None], ref: ModelRef, usage: Usage | None) -> float | None:
    if usage is None or usage == Usage():  # a server that does not count
        return None
    try:
        known = price(ref)
    except ConfigError:
        return None
    return None if known is None else known.cost(usage)
