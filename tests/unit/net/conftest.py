"""What the tests of GuardedWeb share: a certificate authority, a site, and an internet that leads to it."""

import ssl
from collections.abc import AsyncIterator

import pytest
import trustme

from tests.unit.net.tls_site import Site
from tests.unit.net.world import World


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trust(ca: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context


@pytest.fixture
async def world(ca: trustme.CA, trust: ssl.SSLContext) -> AsyncIterator[World]:
    async with Site(ca) as site:
        yield World(site, trust)
