"""`[acp.lsp]`: its defaults, and that a project can only ask for less."""

import pytest
from pydantic import ValidationError

from acp_agent.config.section import OFF, SMALLER
from acp_agent.config.settings import LspSettings


def test_everything_is_on_and_bounded_when_nobody_sets_anything():
    assert LspSettings().model_dump() == {
        "enabled": True,
        "auto_diagnostics_on_save": True,
        "max_diagnostics_per_file": 20,
        "max_diagnostic_files": 5,
        "max_references": 100,
        "max_workspace_symbols": 50,
        "request_timeout_secs": 10.0,
    }


def test_a_project_may_only_tighten():
    for name, field in LspSettings.model_fields.items():
        assert (OFF if field.annotation is bool else SMALLER) in field.metadata, name


@pytest.mark.parametrize(
    "table", [{"max_references": 0}, {"request_timeout_secs": 0}, {"request_timeout_secs": float("inf")}, {"on": True}]
)
def test_what_cannot_be_meant_is_refused(table):
    with pytest.raises(ValidationError):
        LspSettings.model_validate(table)
