"""What sub-agents cost a session that has none."""

import subprocess
import sys


def test_a_session_loads_neither_their_package_nor_their_board_nor_yaml():
    code = (
        "import sys, acp_agent.session.processes; "
        "print([m for m in sys.modules if m.startswith('acp_agent.subagents') "
        "or m in ('acp_agent.tools.board', 'yaml')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
