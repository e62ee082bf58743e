"""What the loop itself tells the user when it stops. Shown as the assistant's text, never kept as its words."""

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.messages import TURN_CUT_OFF

CANCELLED = f"[The user cancelled this turn here. {TURN_CUT_OFF}"
"""For the model: stands in the history where a turn was cancelled."""

TURN_ABOVE = "[The turn above "
"""How INTERRUPTED begins, also as it was worded before."""

INTERRUPTED = f"{TURN_ABOVE}broke off here, since the session ended. {TURN_CUT_OFF}"
"""For the model: stands where a turn was cut off that nobody cancelled: the process or the editor was gone."""

LOST = "[What was said here could not be read again.]"
"""For the model: stands where a part of a conversation that was kept is damaged."""

RAN = "[I ran this myself: "
"""For the model: how the user's words begin that tell of a command of his own."""

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
    """The user ran a command himself."""
    return f"{RAN}{command}]\n{output}\n"


def too_many_rounds(rounds: int) -> str:
    """The turn used up its tool iterations."""
    return f'I stopped after {rounds} rounds of tool calls (max_tool_iterations). Say "continue" to go on.'


def over_budget(used: int, budget: int, *, prompt_kept: bool) -> str:
    """The conversation has (nearly) filled the context; figures in tokens."""
    lost = "" if prompt_kept else " This prompt was not sent."
    return (
        f"I stopped: the conversation fills about {used:,} of {budget:,} tokens of context.{lost} "
        "Type /compact to have it summed up, or start a new session."
    )


def provider_failed(error: ProviderError, *, prompt_kept: bool) -> str:
    """A model call failed for good."""
    if not prompt_kept:
        advice = " This prompt is no longer part of the conversation."
    elif error.retryable or error.kind is ProviderErrorKind.PROTOCOL:
        advice = ' The conversation is kept: say "continue" to try again.'
    else:
        advice = ""
    return f"The model could not answer: {str(error).rstrip('.')}.{advice}"
