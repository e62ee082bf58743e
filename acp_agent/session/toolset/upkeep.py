"""Links around a call that keep it going or spare it, and what /status says of them (L6, L10, S8)."""

from functools import partial

from acp_agent.config import Settings
from acp_agent.config.limits_settings import RetrySettings, UtilitySettings
from acp_agent.execution.audit import Auditor
from acp_agent.execution.chain import Link, absent
from acp_agent.execution.retry import RetryExecutor, ToolRetries
from acp_agent.gates.utility import TurnCalls, UtilityGate
from acp_agent.session.toolset.gate_memory import GateMemory


def retrying(settings: RetrySettings, auditor: Auditor | None) -> Link:
    """What tries calls again."""
    retries = ToolRetries(settings.max_attempts, settings.base_ms / 1000, settings.max_ms / 1000, settings.budget_secs)
    if auditor is None:
        return partial(RetryExecutor, retries=retries)
    return partial(RetryExecutor, retries=retries, attempted=auditor.remarks.attempted)


def utility(settings: UtilitySettings, turn: TurnCalls) -> Link:
    """What skips calls that promise too little, where that is wanted."""
    if not settings.enabled:
        return absent
    return partial(UtilityGate, turn=turn, threshold=settings.threshold, exempt=settings.exempt_tools)


def unmarked(call_id: str) -> None:
    """Nobody records what is noticed about a call."""
    del call_id


def status(settings: Settings, memory: GateMemory) -> tuple[str, ...]:
    """Lines for /status; none about what is switched off."""
    weighs, watches = settings.tools.utility, settings.agent.hallucination_detection
    return (
        *(memory.turn.status(weighs.threshold, weighs.exempt_tools) if weighs.enabled else ()),
        *(memory.mentioned.status() if watches else ()),
    )
