"""Keys somebody wrote into the file of answers that no call will ever have (requirements A20.4, A20.7)."""

from acp_agent.gates.command import Command
from acp_agent.gates.program_table import program_table
from acp_agent.gates.programs import Programs
from acp_agent.gates.site import site

_WILD = frozenset("*?")  # these keys are no globs


def expected_key(tool: str, key: str, *, allowed: bool) -> str:
    """What should stand in the place of a key of `[tools.TOOL.patterns]`; empty when calls may have that key.

    A denial is looked up by the program, too; an approval only by what "always" keeps, which `git` alone is not.
    """
    match tool:
        case "bash" if allowed:
            words = Programs(program_table()).prefix(_command(key))
            return "" if words and " ".join(words) == key else "what 'always' keeps, such as 'git status'"
        case "bash":
            found = key in Programs(program_table()).denials(_command(key))
            return "" if found and _WILD.isdisjoint(key) else "a program, or what 'always' keeps, such as 'git status'"
        case "fetch" | "web_scrape":
            return "" if site(key) == key != "" else "a site, such as 'https://example.com/'"
        case _:
            return ""


def _command(key: str) -> Command:
    return Command(tuple(key.split(" ")))
