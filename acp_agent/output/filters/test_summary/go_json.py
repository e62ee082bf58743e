"""`go test -json`: events, one a line; read as the `go test -v` they were made from."""

import json
from collections.abc import Iterator, Sequence
from typing import cast

from acp_agent.output.filters.test_summary.go_plain import GoPlain
from acp_agent.output.filters.test_summary.pieces import Format, Loose, Parsed


class GoJson:
    """Puts each package's output together again, so that packages tested side by side do not mix."""

    def parse(self, lines: Sequence[str]) -> Parsed | None:
        packages: dict[str, list[str]] = {}
        rest: list[str] = []
        for line in lines:
            event = _event(line)
            if event is None:
                rest.append(line)
            elif output := event.get("Output"):
                name = event.get("Package") or event.get("ImportPath", "").partition(" ")[0]
                packages.setdefault(name, []).append(output)
        if not packages:
            return None
        found = GoPlain().parse(list(_plain(packages)))
        if found is None:
            return None
        if any(line.strip() for line in rest):
            found.pieces.append(Loose(rest))
        return found


def _plain(packages: dict[str, list[str]]) -> Iterator[str]:
    for outputs in packages.values():
        yield from "".join(outputs).removesuffix("\n").split("\n")


def _event(line: str) -> dict[str, str] | None:
    """The string members of an event, or None for a line that is none."""
    if not line.startswith("{") or '"Action":' not in line:
        return None
    try:
        event: object = json.loads(line)
    except ValueError:
        return None
    if not isinstance(event, dict):
        return None
    members = cast("dict[str, object]", event)
    return {name: value for name, value in members.items() if isinstance(value, str)}


FORMAT = Format(words=("-json",), signs=('"Action":',), parser=GoJson)
