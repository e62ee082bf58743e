"""/cost: what the model calls of a session took, by kind (E6)."""

from collections.abc import Sequence

from acp_agent.core.messages import Usage


def spent(usage: Usage, cost: float | None, *, complete: bool) -> Sequence[str]:
    """Lines; none before the first answer.

    cost       US dollars of the calls whose price is known; None where none is
    complete   whether that is all of them. Where it is not, the price is never a guess: it is said what is missing
    """
    if usage == Usage() and cost is None:
        return () if complete else ("The model's server does not say what its answers take.",)
    kinds = (
        ("sent", usage.input),
        ("sent and kept in the cache", usage.cache_write),
        ("read from the cache", usage.cache_read),
        ("written by the model", usage.output),
    )
    return (
        *(f"{count:,} tokens {kind}" for kind, count in kinds if count),
        _price(cost, complete=complete),
    )


def _price(cost: float | None, *, complete: bool) -> str:
    if cost is None:
        return "Price: not known for this model"
    return f"Price: ${cost:.4f}" if complete else f"Price: at least ${cost:.4f}; that of some calls is not known"
