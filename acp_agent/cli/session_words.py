"""Texts and figures of a session, as a terminal and a page show them alike."""

from acp_agent.tools.visible import visible


def shown(value: str) -> str:
    """The text with what is invisible, or changes the direction of what follows, as its JSON escape.

    Line ends and tabs stay.
    """
    value = value.replace("\r\n", "\n")
    flat = value.replace("\n", " ").replace("\t", " ")
    if visible(flat) == flat:
        return value
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in value.split("\n"))


def clipped(value: str, limit: int) -> str:
    """At most about `limit` characters of a text: its beginning and its end, and how much is missing between."""
    if len(value) <= limit:
        return value
    head, tail = limit * 2 // 3, limit // 3
    return f"{value[:head]}\n… {len(value) - head - tail:,} characters left out …\n{value[-tail:]}"


def seconds(elapsed: float) -> str:
    """A duration, in two or three digits."""
    if elapsed < 0.9995:
        return f"{max(elapsed, 0) * 1000:.0f} ms"
    return f"{elapsed:.1f} s" if elapsed < 60 else f"{elapsed // 60:.0f} min {elapsed % 60:.0f} s"


def dollars(cost: float) -> str:
    """An amount, with as many digits as say something."""
    if cost == 0 or cost >= 1:
        return f"${cost:,.2f}"
    return f"${cost:.3f}".removesuffix("0") if cost >= 0.01 else f"${cost:.5f}".rstrip("0").rstrip(".")


def tokens(count: float) -> str:
    """A number of tokens, in three digits or so."""
    if count < 10_000:
        return f"{count:,.0f}"
    return f"{count / 1000:,.0f}k" if count < 1_000_000 else f"{count / 1e6:,.3g}M"


def counted(number: int, thing: str) -> str:
    """So many of a thing: "1 prompt", "2 prompts"."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
