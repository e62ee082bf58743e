"""`[memory]` and `[agent.instructions]`: notes of earlier sessions, titles of sessions, and instruction files."""

import os
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from acp_agent.config.provider_settings import OptionalModel
from acp_agent.config.section import OFF, SMALLER, SUBSET, Section

NOTE_FILES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md", ".cursorrules")
"""The usual names of instruction files, in order of preference. Only the first that a folder has is read."""


class TitleSource(StrEnum):
    """The source of a session's title."""

    MODEL = "model"
    PROMPT = "prompt"


class TitleSettings(Section):
    """The keys of `[memory.sessions]` for titles."""

    titles: Annotated[
        TitleSource,
        Field(
            strict=False,
            description="Source of a session's title: model (one small request after the first prompt) or prompt (its "
            "first words).",
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
    """`[memory.sessions]`: stored conversations."""


class MemorySettings(Section):
    """`[memory]`: notes that the model saves for later sessions.

    They are shared by all projects, so a project's file may only switch them off.
    """

    enabled: Annotated[
        bool, Field(description="Whether the model may save notes for later sessions and search them."), OFF
    ] = True
    max_notes: Annotated[
        int,
        Field(
            ge=1,
            le=5000,
            description="Notes that are kept. The one that was unused for the longest time is deleted first.",
        ),
    ] = 1000
    sessions: SessionsSettings = SessionsSettings()
    max_note_bytes: Annotated[int, Field(ge=100, le=64 * 1024, description="Bytes one note may have.")] = 8 * 1024


def _below(value: str) -> str:
    parts = value.split("/")
    if os.path.isabs(value) or not value.isprintable() or any(part in ("", ".", "..", "~") for part in parts):
        raise ValueError("a path below a folder, such as AGENTS.md or .github/copilot-instructions.md")
    return value


class InstructionSettings(Section):
    """`[agent.instructions]`: files in which a project or the user tells agents how to work."""

    enabled: Annotated[
        bool,
        Field(
            description="Whether the model reads instruction files: those in the session's folder and in the folders "
            "above it, up to the repository's, and AGENTS.md in this file's folder."
        ),
        OFF,
    ] = True
    files: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_below)], ...],
        Field(
            strict=False,
            max_length=20,
            description="Names of instruction files, below a folder. The first that a folder has is read.",
        ),
        SUBSET,
    ] = NOTE_FILES
    max_chars: Annotated[
        int,
        Field(
            ge=0,
            le=200_000,
            description="Characters the model is shown of all instruction files together, and half as many of each.",
        ),
        SMALLER,
    ] = 16_384
