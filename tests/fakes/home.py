"""A user's folders, private to one test."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the fork server has no pytest
    import pytest


def move_in(monkeypatch: "pytest.MonkeyPatch", folder: Path, home: Path | None = None) -> None:
    """Let this process have its configuration and its data in a folder, and no other setting of the agent."""
    for name in [name for name in os.environ if name.startswith("ACP_AGENT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ACP_AGENT_CONFIG", str(folder.resolve() / "config.toml"))
    monkeypatch.setenv("ACP_AGENT_DATA_DIR", str(folder.resolve() / "data"))
    if home is not None:
        monkeypatch.setenv("HOME", str(home))


@dataclass
class Home:
    """A user's folders, private to one test: nothing of the machine's configuration, keys or history is seen."""

    root: Path
    extra: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def data(self) -> Path:
        return self.root / "data"

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.root),
            "XDG_CONFIG_HOME": str(self.root / "xdg-config"),
            "XDG_DATA_HOME": str(self.root / "xdg-data"),
            "XDG_CACHE_HOME": str(self.root / "xdg-cache"),
            "XDG_STATE_HOME": str(self.root / "xdg-state"),
            "ACP_AGENT_CONFIG": str(self.config),
            "ACP_AGENT_DATA_DIR": str(self.data),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYDANTIC_DISABLE_PLUGINS": "__all__",  # there are none, and looking for them takes each start 20 ms
            # No requests beside those a test is about.
            "ACP_AGENT_LLM__LIST_MODELS": "false",
            "ACP_AGENT_MEMORY__SESSIONS__TITLES": "prompt",
            # Not every machine can build a sandbox. The tests of it switch it on.
            "ACP_AGENT_TOOLS__SANDBOX__MODE": "off",
            **{name: os.environ[name] for name in ("ACP_AGENT_STRICT",) if name in os.environ},
            **self.extra,
        }
