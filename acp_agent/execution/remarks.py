"""What the inner links notice about a call while it is under way, kept until its record is written (L6.9, S8)."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Remark:
    """About one call.

    attempts    how often it was tried
    mended      whether its arguments were made to fit by a model
    suspected   whether it names what is not there and was never mentioned
    """

    attempts: int = 1
    mended: bool = False
    suspected: bool = False


class Remarks:
    """By call id. The audit takes each with the call's record, which is written however the call ends."""

    def __init__(self) -> None:
        self._of: dict[str, Remark] = {}

    def attempted(self, call_id: str, attempts: int) -> None:
        """A call was tried so often by now."""
        self._of[call_id] = replace(self._so_far(call_id), attempts=attempts)

    def mended(self, call_id: str) -> None:
        """Other arguments than the model's run."""
        self._of[call_id] = replace(self._so_far(call_id), mended=True)

    def suspected(self, call_id: str) -> None:
        """A call names something that may be made up."""
        self._of[call_id] = replace(self._so_far(call_id), suspected=True)

    def take(self, call_id: str) -> Remark:
        """What is known of a call that is over."""
        return self._of.pop(call_id, Remark())

    def _so_far(self, call_id: str) -> Remark:
        return self._of.get(call_id, Remark())
