"""The scripted model's lines, as a test writes them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Step = dict[str, Any]
Script = Sequence[Step] | dict[str, Sequence[Step]]
"""The model's answers, one a step; with several kinds of prompts, by a pattern of the prompt."""


def says(*pieces: str) -> Step:
    """The model answers in these pieces."""
    return {"text": list(pieces)}


def uses(*calls: tuple[str, dict[str, Any]], text: str = "") -> Step:
    """The model calls tools, all in one answer."""
    step: Step = {"tools": [{"name": name, "arguments": arguments} for name, arguments in calls]}
    return {"text": text, **step} if text else step


def write_script(folder: Path, script: Script) -> str:
    """The script as a file; the value of `[llm] model` that plays it."""
    turns = script if isinstance(script, dict) else {"": script}
    path = folder / "script.json"
    document = {"turns": [{"when": when, "steps": list(steps)} for when, steps in turns.items()]}
    path.write_text(json.dumps(document))
    return f"scripted:{path}"
