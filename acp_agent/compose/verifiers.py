"""The verifiers that are switched on (requirements S2)."""

from functools import partial

from acp_agent.config.limits_settings import VerifierSettings
from acp_agent.gates.verify.destructive import Destructive
from acp_agent.gates.verify.firewall import Firewall, Resolve
from acp_agent.gates.verify.injection import Injection
from acp_agent.gates.verify.url_grounding import UrlGrounding, UrlMemory
from acp_agent.gates.verify.verifier import Verifier
from acp_agent.workspace.roots import Roots
from acp_agent.workspace.secrets_below import SecretsBelow, real_path


def verifiers(on: VerifierSettings, resolve: Resolve, shell: Roots, urls: UrlMemory) -> tuple[Verifier, ...]:
    """`resolve` tells where a path of a tool leads, `shell` what commands touch, `urls` what the user has typed."""
    real, below = partial(real_path, folder=shell.cwd), SecretsBelow(shell)
    every: tuple[tuple[bool, Verifier], ...] = (
        (on.destructive, Destructive()),
        (on.injection, Injection()),
        (on.firewall, Firewall(resolve, real, below)),
        (on.url_grounding, UrlGrounding(urls)),
    )
    return tuple(verifier for wanted, verifier in every if wanted)
