"""When in a turn a call is made (requirements S7)."""

from enum import StrEnum


class Phase(StrEnum):
    """At which point of the work a call is made; said by whoever makes it, never guessed (S7).

    PLANNER      before the first inference of a turn
    EXECUTOR     what the model asks for
    VERIFIER     a look at what was done
    AUTONOMOUS   the agent's own housekeeping: bypasses the question to the user, no gate
    """

    PLANNER = "planner"
    EXECUTOR = "executor"
    VERIFIER = "verifier"
    AUTONOMOUS = "autonomous"
