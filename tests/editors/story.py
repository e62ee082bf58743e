"""The conversation that every client holds with the agent: the project, the prompts, and the scripted model."""

import json
from pathlib import Path

from tests.fakes.model_script import Step, says, uses

FILES = {
    "shop.py": "APPLES = 12\nPRICE = 350\n\n\ndef total():\n    return APPLES * PRICE\n",
    "check.py": "print('CHECK', 7000 + 431, 'OK')\n",
    "wait.py": (
        "import time\nopen('waiting', 'w').close()\nprint('WAITING', 8000 + 642, flush=True)\ntime.sleep(600)\n"
    ),
}

HELLO = "Say hello, please."
LOOK = "Look at the shop, please."
RUN = "Run the check, please."
REJECTED_EDIT = "Try another price, please."
EDIT = "Change the price, please."
WAIT = "Run the long check, please."
AGAIN = "Say goodbye, please."

SAID = {
    HELLO: "Hello from the script.",
    LOOK: "The shop sells apples.",
    RUN: "The check has passed.",
    REJECTED_EDIT: "The price stays.",
    EDIT: "The price is new.",
    AGAIN: "Goodbye from the script.",
}
OUTPUT = "CHECK 7431 OK"
"""What the command prints. It stands neither in the command nor in a file, so who shows it has it from the command."""
WAITING = "WAITING 8642"
NEW_LINE = "PRICE = 475"


def _price(new: str) -> Step:
    return uses(("edit", {"path": "shop.py", "old_string": "PRICE = 350", "new_string": new}))


_SCRIPT: dict[str, list[Step]] = {
    AGAIN: [says(SAID[AGAIN])],  # first: CodeCompanion sends the past of a loaded session with the first prompt
    HELLO: [says("Hello ", "from the ", "script.")],
    LOOK: [uses(("read", {"path": "shop.py"})), says(SAID[LOOK])],
    RUN: [uses(("bash", {"command": "python3 check.py"})), says(SAID[RUN])],
    REJECTED_EDIT: [_price("PRICE = 999"), says(SAID[REJECTED_EDIT])],
    EDIT: [_price(NEW_LINE), says(SAID[EDIT])],
    WAIT: [uses(("bash", {"command": "python3 wait.py"})), says("The long check has passed.")],
}


def write_model(file: Path) -> str:
    """Write the model's script. Return the value of `ACP_AGENT_MODEL` that plays it."""
    turns = [{"when": prompt, "steps": steps} for prompt, steps in _SCRIPT.items()]
    file.write_text(json.dumps({"turns": [*turns, {"steps": [says("Nothing is scripted here.")]}]}))
    return f"scripted:{file}"


def write_project(folder: Path) -> None:
    """Write the project that the conversation is about."""
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
