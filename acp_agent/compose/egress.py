"""What leaves this machine for the web."""

from acp_agent.core.web import Egress
from acp_agent.log import Log

_log = Log(__name__)


def log_egress(egress: Egress) -> None:
    """Note a request that was made, or kept from being made (T5.11)."""
    _log.info(
        "egress",
        tool=egress.caller.tool,
        call_id=egress.caller.call_id,
        url=egress.url,
        host=egress.host,
        hop=egress.hop,
        address=egress.address,
        status=egress.status,
        duration_ms=round(egress.duration * 1000),
        response_bytes=egress.response_bytes,
        blocked=egress.block_reason is not None,
        block_reason=egress.block_reason and egress.block_reason.value,
    )
