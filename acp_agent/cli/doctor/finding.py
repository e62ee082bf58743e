"""What a check found."""

from dataclasses import dataclass
from enum import StrEnum

from acp_agent.config.masking import one_line


class Level(StrEnum):
    """How bad it is. Only FAIL makes the doctor's exit code 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `advice` says what to do, for all that is not OK."""

    level: Level
    subject: str
    text: str
    advice: str = ""

    def line(self) -> str:
        """As it is printed: safe whatever a path or a server put into it."""
        advice = f" -> {self.advice}" if self.advice else ""
        return f"{self.level:<5} {self.subject:<9} {one_line(self.text + advice, longest=500)}"
