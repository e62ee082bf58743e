"""An agent whose internet is one site of the test: every host name leads there (`python -m ...`, forked)."""

import os
import ssl

from acp_agent.net.web import GuardedWeb
from tests.fakes.short_waits import set_default
from tests.unit.net.tls_site import Internet

PORT, AUTHORITY = "ACP_AGENT_TEST_SITE", "ACP_AGENT_TEST_AUTHORITY"
"""The environment variables with the port of the site, and with the file of the certificates to trust."""


def prepare() -> None:
    """Lead the requests of this process to the site. All checks of addresses stay in force."""
    internet = Internet(int(os.environ[PORT]))
    set_default(GuardedWeb.__init__, "resolve", internet.resolve)
    set_default(GuardedWeb.__init__, "dial", internet.dial)
    set_default(GuardedWeb.__init__, "ssl_context", ssl.create_default_context(cafile=os.environ[AUTHORITY]))
