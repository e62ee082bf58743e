"""`[mcp]`: MCP servers, which bring tools of their own.

A value of `env` or `headers` may hold `${NAME}`, which is replaced by that variable of the agent's own environment, so
secrets stay out of files. Nothing else is expanded, and nothing is expanded until a server is about to be started.
"""

import re
from collections.abc import Mapping
from typing import Annotated

from acp_agent.config.section import HIDDEN, OFF, Paths, PathText, Section, Words, is_http_address, without_nul
from acp_agent.core.errors import ConfigError
from acp_agent.core.mcp import HttpServer, McpOrigin, McpServer, StdioServer
from acp_agent.shape import AfterValidator, Field

SERVERS = "mcp.servers"
MOST_OF_A_PROJECT = 16
"""The most servers that a project's file may name, because one question shows all of them."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _url(value: str) -> str:
    if not is_http_address(value, query=True):
        raise ValueError(
            "an http:// or https:// address without user or password (secrets go into headers, as ${NAME})"
        )
    return value


def _variables(value: dict[str, str]) -> dict[str, str]:
    if any(not name or "=" in name or "\0" in name + text for name, text in value.items()):
        raise ValueError("names of variables without =, and text without NUL characters")
    return value


def _header_lines(value: dict[str, str]) -> dict[str, str]:
    names = all(re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) for name in value)
    if not names or any(not text.isprintable() for text in value.values()):
        raise ValueError("names of HTTP headers, and values on one line")
    odd = [name for name, text in value.items() if not text.isascii()]
    if odd:
        raise ValueError(f"ASCII values (the one of {', '.join(odd)} is not)")
    return value


Word = Annotated[str, Field(min_length=1), AfterValidator(without_nul)]
"""A program, which is not empty."""

Variables = Annotated[dict[str, str], AfterValidator(_variables)]
"""Variables of a program."""


def references(text: str) -> list[str]:
    """Return the names of the variables that a text refers to as `${NAME}`."""
    return _REFERENCE.findall(text)


def shown_variables(values: Mapping[str, str]) -> dict[str, str]:
    """Return variables or headers to be shown. Those that are not just `${NAME}` are hidden."""
    return {key: text if _REFERENCE.fullmatch(text) else HIDDEN for key, text in values.items()}


class McpServerSettings(Section):
    """One `[[mcp.servers]]` entry: a program to start, or an address to reach."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
            description="Unique name, which is part of its tools' names: mcp_NAME_TOOL.",
        ),
    ]
    command: Annotated[Word | None, Field(description="Program to start, which speaks MCP on stdin and stdout.")] = None
    args: Annotated[tuple[Annotated[str, AfterValidator(without_nul)], ...], Field(strict=False)] = ()
    env: Annotated[
        Variables,
        Field(
            description="Variables it gets besides the usual few. ${NAME} is replaced by your variable of that name."
        ),
    ] = Field(default_factory=dict[str, str])
    cwd: Annotated[
        PathText | None,
        Field(
            description="Folder in which it runs. Unset: your home folder, or the project's for a server of its file."
        ),
    ] = None
    url: Annotated[
        Annotated[str, AfterValidator(_url)] | None, Field(description="Address of a server over streamable HTTP.")
    ] = None
    headers: Annotated[
        dict[str, str],
        Field(description="Headers of every request. ${NAME} is replaced by your variable of that name."),
        AfterValidator(_header_lines),
    ] = Field(default_factory=dict[str, str])
    allow_private: Annotated[
        bool, Field(description="Whether the address may be on this machine or in a private network.")
    ] = False
    startup_timeout: Annotated[
        float, Field(gt=0, le=600, allow_inf_nan=False, description="Seconds until its tools must be known.")
    ] = 30.0
    tool_timeout: Annotated[
        float, Field(gt=0, le=3600, allow_inf_nan=False, description="Seconds one call may take.")
    ] = 60.0
    allow_tools: Annotated[Words, Field(description="The only tools of this server that are used. Empty: all.")] = ()
    deny_tools: Annotated[
        Words, Field(description="Tools of this server that are never used, even if allow_tools names them.")
    ] = ()
    read_only_tools: Annotated[
        Words,
        Field(description="Tools of this server that you declare to change nothing. They run without a question."),
    ] = ()
    allow_write: Annotated[
        Paths,
        Field(description="Files and folders that its program may change in its sandbox, besides the session's own."),
    ] = ()
    enabled: Annotated[bool, Field(description="Whether this server is started.")] = True

    def check(self) -> None:
        """Raise ValueError, with what is expected, if the values do not fit each other."""
        if (self.command is None) == (self.url is None):
            raise ValueError("either command or url")
        if self.command is None and (self.args or self.env or self.cwd or self.allow_write):
            raise ValueError("args, env, cwd and allow_write only together with command")
        if self.url is None and (self.headers or self.allow_private):
            raise ValueError("headers and allow_private only together with url")

    def server(self, origin: McpOrigin, environ: Mapping[str, str], folder: str) -> McpServer:
        """Return the server with every `${NAME}` replaced. Raises ConfigError if a variable is not set.

        folder   the folder in which the program runs if `cwd` is not set
        """
        where = f"[[{SERVERS}]] {self.name}"
        if self.url is None:
            variables = filled(where, "env", self.env, environ)
            allow_write = self.allow_write if origin is McpOrigin.CONFIG else ()
            reach = StdioServer(self.command or "", self.args, variables, self.cwd or folder, allow_write)
        else:
            headers = filled(where, "headers", self.headers, environ)
            for name, text in headers:
                if not (text.isascii() and text.isprintable()):
                    raise ConfigError(where, f"headers.{name}", HIDDEN, "ASCII on one line once it is filled in")
            reach = HttpServer(self.url, headers, self.allow_private)
        return McpServer(
            self.name,
            reach,
            origin,
            startup_timeout=self.startup_timeout,
            tool_timeout=self.tool_timeout,
            allow=self.allow_tools,
            deny=self.deny_tools,
            read_only=self.read_only_tools if origin is McpOrigin.CONFIG else (),
        )

    def shown(self) -> dict[str, object]:
        """Return the settings to be shown. Variables and headers are hidden unless they are `${NAME}`."""
        table = self.model_dump(exclude_defaults=True)
        for name, values in (("env", self.env), ("headers", self.headers)):
            if values:
                table[name] = shown_variables(values)
        return table

    def referred(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return the values of the variables that `${NAME}` refers to, so that they can be redacted."""
        texts = (*self.env.values(), *self.headers.values())
        return tuple(environ.get(name, "") for text in texts for name in references(text))


def filled(
    where: str, field: str, values: Mapping[str, str], environ: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return variables or headers with every `${NAME}` replaced. Raises ConfigError if a variable is not set."""
    for name, text in values.items():
        for variable in references(text):
            if variable not in environ:
                raise ConfigError(where, f"{field}.{name}", f"${{{variable}}}", f"the variable {variable} to be set")
    return tuple((name, _REFERENCE.sub(lambda found: environ[found[1]], text)) for name, text in values.items())


class McpSettings(Section):
    """`[mcp]`: MCP servers, which bring tools of their own."""

    enabled: Annotated[
        bool, Field(description="Whether MCP servers are used at all, including those that the editor names."), OFF
    ] = True
    unsandboxed: Annotated[
        Words,
        Field(
            description="Names of servers, of this file and of your editor, whose programs run without the sandbox.",
            examples=[["github"]],
        ),
    ] = ()
    servers: Annotated[
        tuple[McpServerSettings, ...],
        Field(
            strict=False,
            description="Servers that every session starts. A project's file may name more; you are asked before "
            "they start.",
            examples=[
                [
                    {
                        "name": "github",
                        "command": "github-mcp-server",
                        "args": ["stdio"],
                        "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "${GITHUB_TOKEN}"},
                        "read_only_tools": ["get_issue", "list_issues"],
                    }
                ]
            ],
        ),
    ] = ()
