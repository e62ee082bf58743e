"""Notes that the loop writes: to the user when a turn stops, and into the history when a turn was cut off.

A note to the user is shown as text of the assistant. It is not kept in the history.
"""

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.messages import TURN_CUT_OFF

CANCELLED = f"[The user cancelled this turn here. {TURN_CUT_OFF}"
"""For the model: stands in the history where the user cancelled a turn."""

TURN_ABOVE = "[The turn above "
"""The beginning of INTERRUPTED. Older versions of the note have the same beginning."""

INTERRUPTED = f"{TURN_ABOVE}broke off here, since the session ended. {TURN_CUT_OFF}"
"""For the model: stands where a turn broke off because the process or the editor ended."""

LOST = "[What was said here could not be read again.]"
"""For the model: stands where a stored conversation is damaged."""

RAN = "[I ran this myself: "
"""For the model: the beginning of a user message about a command that the user ran."""

EMPTY_PROMPT = "There was nothing in that prompt I can read."
EMPTY_ANSWER = "The model gave no answer. Try again, or say it in other words."
DOOM_LOOP = "I stopped: the last three rounds of tool calls gave the same output. Tell me what to try instead."
REFUSAL = "The model refused to go on. This prompt is no longer part of the conversation; try other words."
CUT_OFF = 'The answer reached the model\'s output limit and was cut off. Say "continue" to go on.'
CUT_OFF_IN_CALL = (
    "The answer reached the model's output limit in the middle of a tool call, which was not run. "
    'Say "continue", or ask for smaller steps.'
)


def ran(command: str, output: str) -> str:
    """Return the text for a command that the user ran."""
    return f"{RAN}{command}]\n{output}\n"


def too_many_rounds(rounds: int) -> str:
    """Return the note for a turn that used up its tool iterations."""
    return f'I stopped after {rounds} rounds of tool calls (max_tool_iterations). Say "continue" to go on.'


def over_budget(used: int, budget: int, *, prompt_kept: bool) -> str:
    """Return the note for a conversation that has filled its budget. Figures are in tokens."""
    lost = "" if prompt_kept else " This prompt was not sent."
    return (
        f"I stopped: the conversation fills about {used:,} of {budget:,} tokens of context.{lost} "
        "Type /compact to have it summed up, or start a new session."
    )


def provider_failed(error: ProviderError, *, prompt_kept: bool) -> str:
    """Return the note for a model call that failed for good."""
    if not prompt_kept:
        advice = " This prompt is no longer part of the conversation."
    elif error.retryable or error.kind is ProviderErrorKind.PROTOCOL:
        advice = ' The conversation is kept: say "continue" to try again.'
    else:
        advice = ""
    return f"The model could not answer: {str(error).rstrip('.')}.{advice}"
