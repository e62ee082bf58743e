"""What goes to the editor stays small: TypeScript clients close the connection on a line over 32 MiB (acp.md 8.16)."""

from dataclasses import replace

from acp_agent.core.types import Diff, Json, JsonObject

DIFF_LIMIT = 256 * 1024
"""Characters of both sides of a diff that are sent whole."""
STRING_LIMIT = 16 * 1024
"""Characters of a string in rawInput; a diff or terminal beside it shows the rest."""
_CONTEXT = 3


def bounded_diff(diff: Diff, limit: int = DIFF_LIMIT) -> Diff | None:
    """Return the diff, of a big file only the changed lines and a little around them.

    None when even these have more characters than `limit`.
    """
    if _size(diff) <= DIFF_LIMIT:
        return diff
    region = _changed_region(diff)
    return region if _size(region) <= limit else None


def bounded_input(arguments: JsonObject) -> JsonObject:
    """Tool arguments with their long strings cut in the middle."""
    return {key: _bounded(value) for key, value in arguments.items()}


def _bounded(value: Json) -> Json:
    match value:
        case str() if len(value) > STRING_LIMIT:
            half = STRING_LIMIT // 2
            return f"{value[:half]}\n… {len(value) - 2 * half} characters left out …\n{value[-half:]}"
        case list():
            return [_bounded(item) for item in value]
        case dict():
            return bounded_input(value)
        case _:
            return value


def _size(diff: Diff) -> int:
    return len(diff.old_text or "") + len(diff.new_text)


def _changed_region(diff: Diff) -> Diff:
    old, new = (diff.old_text or "").split("\n"), diff.new_text.split("\n")
    same = min(len(old), len(new))
    start = next((at for at in range(same) if old[at] != new[at]), same)
    end = next((at for at in range(same - start) if old[-1 - at] != new[-1 - at]), same - start)
    first, kept = max(start - _CONTEXT, 0), max(end - _CONTEXT, 0)
    return replace(
        diff,
        old_text=None if diff.old_text is None else "\n".join(old[first : len(old) - kept]),
        new_text="\n".join(new[first : len(new) - kept]),
    )
