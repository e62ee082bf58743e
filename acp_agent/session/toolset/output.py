"""The redaction and the output filters of a session, built from the configuration."""

import os
from collections.abc import Iterable, Mapping

from anyio import to_thread

from acp_agent.config import Loaded, ProviderSettings, secret_values
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.redaction import Redact, placeholders
from acp_agent.core.services import Memories, Remembered
from acp_agent.output.filters.engine import FilterEngine, RuleSource
from acp_agent.output.pipeline import Pipeline, Sizes
from acp_agent.output.redaction.redactor import Redactor, compile_extra
from acp_agent.output.redaction.rules import KnownSecrets
from acp_agent.session.toolset.gate_settings import Warn

_PREVIEW = 5_000
"""Characters that the model sees of a text that is stored whole. With the notes around them they are under 6 KB."""


def known_secrets(environ: Mapping[str, str], providers: Iterable[ProviderSettings] = ()) -> KnownSecrets:
    """Return the keys of the providers, and the values of all variables whose names mean a secret.

    MCP servers add their secrets later, and a CredentialStore adds the stored keys.
    """
    known = KnownSecrets()
    known.add((*secret_values(environ), *(secret for each in providers for secret in each.secrets(environ))))
    return known


def redactor(loaded: Loaded, known: KnownSecrets, warn: Warn) -> Redactor:
    """Return the redactor. It removes known values even if its rules are switched off."""
    security = loaded.settings.tools.filters.security
    for problem in compile_extra(security.extra_patterns)[1]:
        warn(f"tools.filters.security.extra_patterns: {problem}")
    return Redactor(known, extra_patterns=security.extra_patterns, enabled=security.enabled)


def filter_engine(loaded: Loaded) -> FilterEngine | None:
    """Return the filters of the user's file, or the built-in ones; None if they are switched off.

    The problems of the file are in `warnings`.
    """
    filters = loaded.settings.tools.filters
    if not filters.enabled:
        return None
    beside = os.path.join(os.path.dirname(loaded.file), "filters.toml") if loaded.file else ""
    return FilterEngine(RuleSource(filters.filters_path or beside, required=filters.filters_path is not None))


def pipeline(loaded: Loaded, redact: Redactor, filters: FilterEngine | None) -> Pipeline:
    """Return the whole pipeline."""
    threshold = loaded.settings.tools.overflow.threshold
    return Pipeline(Sizes(threshold, min(_PREVIEW, threshold)), redact, filters)


class RedactedMemories:
    """Memories that redact every text before they pass it on."""

    def __init__(self, memories: Memories, redact: Redact) -> None:
        self._memories = memories
        self._redact = redact

    @property
    def method(self) -> str:
        """The method by which searches find notes."""
        return self._memories.method

    async def save(self, content: str) -> tuple[Remembered, bool]:
        """Store a note without its secrets. Raises ToolError (invalid_parameters) if it contains only a secret."""
        text = await self._redacted(content)
        words = text
        for mark in placeholders(text):
            words = words.replace(mark, "")
        if text.strip() and not words.strip():
            raise ToolError(
                ToolErrorCategory.INVALID_PARAMETERS,
                "the note is nothing but a secret, and secrets are not remembered",
                "Save where the secret is found instead, such as the name of its variable.",
            )
        return await self._memories.save(text)

    async def search(self, query: str, limit: int) -> tuple[Remembered, ...]:
        """Return the notes that match a query. Its secrets are removed, because no note contains any."""
        return await self._memories.search(await self._redacted(query), limit)

    async def _redacted(self, text: str) -> str:
        return await to_thread.run_sync(self._redact, text, abandon_on_cancel=True)
