"""Keys that `acp-agent login` stored: which providers have one, for which address, and where it is.

    [anthropic]
    base_url = ""                       # the vendor's own address
    key = "…"

    [openai]
    base_url = "https://llm.corp.example/v1"
    keyring = "5e884898da28…"           # in the keyring of the system; another mark after each login

A key belongs to one place: it is never sent to another address than the one it was stored for. The file is private
(0600) and small; the keyring is asked only for a provider that has a mark here. What is not understood is skipped.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from acp_agent.config.files import read_toml
from acp_agent.config.places import data_path


@dataclass(frozen=True, slots=True)
class Credential:
    """One stored key.

    base_url   the address it is for, without a slash at its end; empty for the vendor's own
    key        the key itself; empty where the keyring has it
    mark       what tells it from the provider's former ones in the keyring; empty where the file has it
    """

    provider: str
    base_url: str
    key: str = field(default="", repr=False)
    mark: str = ""

    def fits(self, provider: str, base_url: str) -> bool:
        """Whether it is for this provider at this address."""
        return (self.provider, self.base_url) == (provider, plain_address(base_url))


def plain_address(base_url: str | None) -> str:
    """An address as credentials name it."""
    return (base_url or "").strip().rstrip("/")


def credentials_file(environ: Mapping[str, str]) -> str:
    """Where they are, in the data folder. Raises ConfigError as `data_path` does."""
    return os.path.join(data_path(environ), "credentials.toml")


def read_credentials(path: str) -> tuple[Credential, ...]:
    """What the file says; nothing when there is none. Raises ConfigError for one that cannot be read."""
    return understood(read_toml(path) or {})


def understood(table: Mapping[str, object]) -> tuple[Credential, ...]:
    """The credentials of a parsed file."""
    found: list[Credential] = []
    for provider, entry in table.items():
        match entry:
            case {"base_url": str(base_url), "key": str(key)} if key:
                found.append(Credential(provider, base_url, key=key))
            case {"base_url": str(base_url), "keyring": str(mark)} if mark:
                found.append(Credential(provider, base_url, mark=mark))
            case _:
                pass
    return tuple(found)
