"""The outputs of test runners that are understood, the narrower ones first."""

from acp_agent.output.filters.test_summary import (
    cargo,
    go_json,
    go_plain,
    javascript,
    nextest,
    pytest_output,
    unittest_output,
)
from acp_agent.output.filters.test_summary.pieces import Format

FORMATS: tuple[Format, ...] = (
    nextest.FORMAT,  # its output holds that of cargo's own harness
    cargo.FORMAT,
    pytest_output.FORMAT,
    go_json.FORMAT,
    go_plain.FORMAT,
    unittest_output.FORMAT,
    javascript.FORMAT,
)
