"""What a verifier is."""

from collections.abc import Sequence
from typing import ClassVar

from acp_agent.core.types import Allow, PathSubject, Verdict
from acp_agent.gates.paths.command_paths import Folders
from acp_agent.gates.shell.command import Command


class Verifier:
    """Looks at what a call touches, one thing at a time; has no objection to what it does not know.

    Deny is for what nobody can have meant, Ask for a weak signal. `name` starts the rule the audit reads.
    """

    name: ClassVar[str] = "verifier"

    def path(self, subject: PathSubject) -> Verdict:
        """The verdict on a path a tool itself touches."""
        del subject
        return Allow()

    def paths(self, subjects: Sequence[PathSubject]) -> Verdict:
        """Return the verdict on what a tool does with all its paths together."""
        del subjects
        return Allow()

    def command(self, command: Command, folders: Folders) -> Verdict:
        """The verdict on one simple command of a shell text, and where it may run; those it starts come apart."""
        del command, folders
        return Allow()

    def url(self, url: str) -> Verdict:
        """The verdict on a URL to be reached."""
        del url
        return Allow()
