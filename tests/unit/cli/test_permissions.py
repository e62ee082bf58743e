"""`acp-agent permissions`: the stored answers, listed and revoked."""

from pathlib import Path

import pytest

from acp_agent.cli.commands import main


def test_answers_are_listed_with_numbers_and_revoked_by_them(tmp_path: Path, monkeypatch, capsys):
    file, config = tmp_path / "grants.toml", tmp_path / "config.toml"
    config.write_text(f"acp.permission_file = '{file}'\n")
    monkeypatch.setenv("ACP_AGENT_CONFIG", str(config))
    assert main(["permissions", "list"]) == 0
    assert capsys.readouterr() == ("", 'No "always" answer is stored\n')
    file.write_text('[tools]\nwrite = "allow"\n[projects."/p".tools.bash.patterns]\n"git push" = "deny"\n')
    assert main(["permissions", "list"]) == 0
    assert capsys.readouterr().out == (
        "  1  always allow every use of write, everywhere\n  2  always reject git push …, in /p\n"
    )
    assert main(["permissions", "revoke", "2"]) == 0
    assert capsys.readouterr().out == "Revoked: always reject git push …, in /p\n"
    assert "git push" not in file.read_text()
    assert 'default = "allow"' in file.read_text()
    assert main(["permissions", "revoke", "2"]) == 1
    assert "there is no answer 2" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["permissions", "revoke", "x"])
