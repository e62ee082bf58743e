"""What no session may touch, wherever it works."""

import pytest

from acp_agent.config.load import Flags, load
from acp_agent.core.errors import Refused
from acp_agent.core.types import Access
from acp_agent.session.toolset.settings import session_roots


@pytest.mark.parametrize("for_shell", [False, True])
def test_stored_keys_are_read_by_nobody_even_where_the_session_covers_them(tmp_path, monkeypatch, for_shell):
    monkeypatch.setenv("ACP_AGENT_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "credentials.toml").touch()
    (tmp_path / "config.toml").touch()
    loaded = load(Flags(config=str(tmp_path / "config.toml")), {})
    with session_roots(loaded, str(tmp_path), for_shell=for_shell) as roots:
        for name in ("credentials.toml", "credentials.toml.damaged-1", "acp-agent.db-wal", "sessions.lock"):
            with pytest.raises(Refused, match="the agent's own keys"):
                roots.resolve(f"data/{name}", Access.READ)
        assert roots.resolve("data/acp-permissions.toml", Access.READ)
