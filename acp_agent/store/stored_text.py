"""Texts in columns: as they are, and those with half surrogate pairs, which SQLite cannot hold, as bytes."""


def to_column(text: str) -> str | bytes:
    """The value for a column, and for what it is compared with."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def from_column(value: str | bytes) -> str:
    """The text in a column."""
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value
