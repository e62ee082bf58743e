"""`[memory]` and `[agent.instructions]`: what the model knows from before and from the project (E2, L1)."""

import os
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from acp_agent.config.provider_settings import OptionalModel
from acp_agent.config.section import OFF, SMALLER, SUBSET, Section

NOTE_FILES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md", ".cursorrules")
"""The names agents agree on, best first: of several in one folder the first is read, the others mostly repeat it."""


class TitleSource(StrEnum):
    """Where the title of a session comes from."""

    MODEL = "model"
    PROMPT = "prompt"


class TitleSettings(Section):
    """Keys that `[memory.sessions]` takes over."""

    titles: Annotated[
        TitleSource,
        Field(
            strict=False,
            description="Where a session's title comes from: model (one small request after the first prompt) or "
            "prompt (its first words).",
        ),
    ] = TitleSource.MODEL
    title_max_chars: Annotated[int, Field(ge=10, le=500, description="Characters a title may have.")] = 60
    title_provider: Annotated[
        OptionalModel,
        Field(
            description='Model that writes titles, "PROVIDER:MODEL". Empty: the model of the conversation.',
            examples=["ollama:qwen3:8b"],
        ),
    ] = ""


class SessionsSettings(TitleSettings):
    """`[memory.sessions]`: what is kept of conversations."""


class MemorySettings(Section):
    """`[memory]`: notes of all sessions.

    They belong to all projects, so a project's file may only do without.
    """

    enabled: Annotated[
        bool, Field(description="Whether the model may save notes for later sessions and search them."), OFF
    ] = True
    max_notes: Annotated[
        int, Field(ge=1, le=5000, description="Notes that are kept; the one unused for the longest time makes room.")
    ] = 1000
    sessions: SessionsSettings = SessionsSettings()
    max_note_bytes: Annotated[int, Field(ge=100, le=64 * 1024, description="Bytes one note may have.")] = 8 * 1024


def _below(value: str) -> str:
    parts = value.split("/")
    if os.path.isabs(value) or not value.isprintable() or any(part in ("", ".", "..", "~") for part in parts):
        raise ValueError("a path below a folder, such as AGENTS.md or .github/copilot-instructions.md")
    return value


class InstructionSettings(Section):
    """`[agent.instructions]`: files in which a project, or you, tell agents how to work (L1)."""

    enabled: Annotated[
        bool,
        Field(
            description="Whether the model reads them: those of the session's folder and of the folders above it, up "
            "to the repository's, and AGENTS.md beside this file."
        ),
        OFF,
    ] = True
    files: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_below)], ...],
        Field(
            strict=False,
            max_length=20,
            description="Their names, below a folder; the first that a folder has is read.",
        ),
        SUBSET,
    ] = NOTE_FILES
    max_chars: Annotated[
        int,
        Field(
            ge=0,
            le=200_000,
            description="Characters the model is shown of all of them together, and half as many of each.",
        ),
        SMALLER,
    ] = 16_384
