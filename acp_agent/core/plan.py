"""What the model means to do, as the user is shown it (ACP "Agent Plan"; requirements A18.5)."""

from dataclasses import dataclass
from enum import StrEnum


class PlanStatus(StrEnum):
    """How far a step is."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class PlanPriority(StrEnum):
    """How much a step matters."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One step, in a few words."""

    content: str
    status: PlanStatus = PlanStatus.PENDING
    priority: PlanPriority = PlanPriority.MEDIUM
