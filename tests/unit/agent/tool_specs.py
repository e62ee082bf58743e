"""Tools of a made-up session: the coding tools in short, and those of two MCP servers."""

from collections.abc import Sequence

from acp_agent.core.types import JsonObject, ToolKind, ToolSpec


def built_in(name: str, description: str = "", *parameters: str) -> ToolSpec:
    return ToolSpec(name, description or f"The {name} tool.", _schema(parameters), ToolKind.OTHER, mutates=False)


def of_server(server: str, name: str, description: str, *parameters: str) -> ToolSpec:
    full = f"mcp_{server}_{name}"
    return ToolSpec(full, description, _schema(parameters), ToolKind.OTHER, True, external=True, server=server)


def names(specs: Sequence[ToolSpec]) -> list[str]:
    return [spec.name for spec in specs]


def _schema(parameters: Sequence[str]) -> JsonObject:
    return {"type": "object", "properties": {name: {"type": "string"} for name in parameters}}


READ = built_in("read", "Read a text file.", "path")
EDIT = built_in("edit", "Replace text in a file.", "path")
BASH = built_in("bash", "Run a command line.", "command")
SCRAPE = built_in("web_scrape", "Get the parts of a web page that match a CSS selector.", "url", "select")
ISSUE = of_server("github", "create_issue", "Open a new issue in a repository.", "title", "body")
PULL = of_server("github", "merge_pull_request", "Merge a pull request in a repository.", "number")
QUERY = of_server("postgres", "query", "Run a read-only SQL query against the database.", "sql")
WEATHER = of_server("weather", "forecast", "Weather forecast for a city, up to ten days.", "city")
TERSE = of_server("weather", "now", "Weather.")

ALL = (READ, EDIT, BASH, SCRAPE, ISSUE, PULL, QUERY, WEATHER, TERSE)
