"""Which providers have a key, and from where; `acp-agent logout`."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from acp_agent.config.files import Credential
from acp_agent.config.masking import one_line
from acp_agent.config.provider_settings import ProviderSettings, secret_parts
from acp_agent.core.errors import ConfigError
from acp_agent.store.credentials import CredentialStore

_AT_THE_DIALOG = 120.0  # seconds for the owner to unlock the keyring


def logout(args: argparse.Namespace) -> int:
    """Remove stored keys: of `args.provider`, or all. 0 when none is left. Raises ConfigError."""
    store = CredentialStore(os.environ, patience=_AT_THE_DIALOG)
    there = [credential.provider for credential in store.all()]
    if args.provider is not None and args.provider not in there:
        names = f"one with a stored key: {', '.join(there)}" if there else "a stored key; there is none"
        raise ConfigError("logout", "provider", args.provider, names)
    forgotten = store.forget(args.provider)
    for provider in forgotten.providers:
        print(f"Removed the key of {one_line(provider)}")
    if not forgotten.providers:
        print("No key is stored")
    if forgotten.remark:
        print(f"acp-agent: {forgotten.remark}", file=sys.stderr)
    return 1 if forgotten.remark else 0


def listed(
    providers: Mapping[str, ProviderSettings], stored: Sequence[Credential], environ: Mapping[str, str]
) -> list[str]:
    """A line for each provider: its key's source, the one in use first. Never a key."""
    lines: list[str] = []
    for name, provider in providers.items():
        sources = [f"env {provider.api_key_env}"] if provider.api_key(environ) else []
        sources += ["config (headers)"] if any(secret_parts(provider.headers or {}, environ)) else []
        sources += [_place(each) for each in stored if each.fits(name, provider.base_url or "")]
        lines.append(f"{name:<12} {', '.join(sources) or 'none'}")
    for each in stored:
        provider = providers.get(each.provider)
        if provider is None or not each.fits(provider.name, provider.base_url or ""):
            address = each.base_url or "the vendor's own address"
            lines.append(one_line(f"{each.provider:<12} {_place(each)}, not used: it is for {address}", longest=300))
    return lines


def _place(credential: Credential) -> str:
    return "keyring" if credential.mark else "file"
