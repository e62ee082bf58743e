"""The base of the verifiers."""

from collections.abc import Sequence
from typing import ClassVar

from acp_agent.core.types import Allow, PathSubject, Verdict
from acp_agent.gates.paths.command_paths import Folders
from acp_agent.gates.shell.command import Command


class Verifier:
    """Judges the subjects of a call one by one. It allows what it does not know.

    Deny is for a call that nobody can have intended, Ask for a weak signal.

    name   begins the rule in the audit
    """

    name: ClassVar[str] = "verifier"

    def path(self, subject: PathSubject) -> Verdict:
        """Return the verdict on a path that a tool itself touches."""
        del subject
        return Allow()

    def paths(self, subjects: Sequence[PathSubject]) -> Verdict:
        """Return the verdict on what a tool does with all its paths together."""
        del subjects
        return Allow()

    def command(self, command: Command, folders: Folders) -> Verdict:
        """Return the verdict on one simple command in its possible folders. Those that it starts are judged apart."""
        del command, folders
        return Allow()

    def url(self, url: str) -> Verdict:
        """Return the verdict on a URL that a call reaches."""
        del url
        return Allow()
