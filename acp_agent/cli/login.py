"""`acp-agent login` and `acp-agent logout`: store, list and remove the API keys of providers.

Editors run `login` in a terminal of their own. Its exit code 0 tells them that a key is stored (ACP "Terminal
authentication").
"""

import argparse
import getpass
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

import anyio

from acp_agent.cli.config import warn
from acp_agent.config.files import Credential
from acp_agent.config.llm_settings import ProviderSettings, ProviderType, secret_parts
from acp_agent.config.load import Flags, Loaded, load
from acp_agent.config.section import HIDDEN, one_line
from acp_agent.config.vendors import VENDORS, model_advice
from acp_agent.core.errors import ConfigError, ProviderError, ProviderErrorKind
from acp_agent.llm.catalog import Catalog
from acp_agent.llm.provider_config import ProviderConfig
from acp_agent.store.credentials import CredentialStore
from acp_agent.text import counted

_KEYRING_PATIENCE = 120.0  # seconds for the owner to unlock the keyring


def logout(args: argparse.Namespace) -> int:
    """Remove the stored key of `args.provider`, or all. Return 0 if all of them are removed. Raises ConfigError."""
    store = CredentialStore(os.environ, patience=_KEYRING_PATIENCE)
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
        warn(forgotten.remark)
    return 1 if forgotten.remark else 0


def key_lines(
    providers: Mapping[str, ProviderSettings], stored: Sequence[Credential], environ: Mapping[str, str]
) -> list[str]:
    """Return a line for each provider with the sources of its key, the one in use first. No line holds a key."""
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
    return "file" if credential.key else "keyring"


_PATIENCE = 20.0  # seconds for the server to list its models
_LONGEST_KEY = 4096  # characters


def login(args: argparse.Namespace) -> int:
    """Ask for a key, check it and store it; or list the keys. Return 1 if no key was stored. Raises ConfigError."""
    store = CredentialStore(os.environ, patience=_KEYRING_PATIENCE)
    providers = _providers_with_keys(load(Flags(config=args.config), os.environ))
    if args.list:
        print("\n".join(key_lines(providers, store.all(), os.environ)))
        return 0
    provider = _provider(args.provider, providers)
    key = _key(provider, from_stdin=args.stdin)
    if not args.no_check and not _accepted(provider, key):
        return 1
    kept = store.keep(provider.name, provider.base_url, key)
    if kept.remark:
        warn(kept.remark)
    print(f"Stored the key of {provider.name} in {kept.where}")
    _hint(provider, load(Flags(config=args.config), os.environ))
    return 0


def _providers_with_keys(loaded: Loaded) -> dict[str, ProviderSettings]:
    """Return the configured providers, and the vendors that need a key, by name."""
    configured = {each.name: each for each in loaded.settings.llm.providers if each.type is not ProviderType.SCRIPTED}
    vendors = (
        ProviderSettings(name=kind.value, type=kind, api_key_env=vendor.key)
        for kind, vendor in VENDORS.items()
        if vendor.key is not None
    )
    return configured | {vendor.name: vendor for vendor in vendors if vendor.name not in configured}


def _provider(wanted: str | None, providers: Mapping[str, ProviderSettings]) -> ProviderSettings:
    """Return the provider that is named, or that the user chooses from a list. Raises ConfigError."""
    if wanted is None:
        if not sys.stdin.isatty():
            names = ", ".join(providers)
            raise ConfigError("login", "--provider", "", f"a provider, as there is no terminal to ask on ({names})")
        wanted = _chosen(list(providers.values()))
    if wanted not in providers:
        raise ConfigError("login", "--provider", wanted, f"one of {', '.join(providers)}")
    return providers[wanted]


def _chosen(providers: Sequence[ProviderSettings]) -> str:
    print("Whose key is it?")
    for number, provider in enumerate(providers, 1):
        print(f"  {number}  {provider.name:<12} {provider.base_url or provider.type.value}")
    try:
        answer = input("Number or name: ").strip()
    except EOFError:
        raise ConfigError("login", "", "", "expected an answer") from None
    if answer.isascii() and answer.isdigit() and 1 <= int(answer[:4]) <= len(providers):
        return providers[int(answer) - 1].name
    return answer


def _key(provider: ProviderSettings, *, from_stdin: bool) -> str:
    """Read the key without showing it. Raises ConfigError if it is empty or cannot be in a header."""
    if from_stdin:
        key = sys.stdin.readline(_LONGEST_KEY + 2)
    elif not sys.stdin.isatty():
        raise ConfigError("login", "", "", "expected a terminal to ask for the key, or --stdin and the key on it")
    else:
        try:
            key = getpass.getpass(f"API key of {provider.name} (not shown): ")
        except EOFError:
            key = ""
    key = key.strip()
    if not key or len(key) > _LONGEST_KEY or not re.fullmatch(r"[!-~]+", key):
        what = "(not shown)" if key else ""
        raise ConfigError("login", "key", what, f"printable ASCII without spaces, at most {_LONGEST_KEY} characters")
    return key


def _accepted(provider: ProviderSettings, key: str) -> bool:
    """Return False if the server refuses the key. If it cannot be asked, print a warning and return True."""
    config = replace(ProviderConfig.of(provider, os.environ), api_key=key, key_source="the key that you entered")
    try:
        count = anyio.run(_count_models, config)
    except ProviderError as error:
        said = str(error).replace(key, HIDDEN)
        if error.kind is not ProviderErrorKind.AUTH:
            warn(f"the key could not be checked: {said}")
            return True
        warn(f"{said}; nothing is stored (--no-check stores the key without asking the server)")
        return False
    print(f"The server accepts the key and offers {counted(count, 'model')}")
    return True


async def _count_models(config: ProviderConfig) -> int:
    """Return the number of models that the server lists. Raises ProviderError or ConfigError."""
    catalog = Catalog([config])
    try:
        with anyio.fail_after(_PATIENCE):
            return len(await catalog.models(config.name))
    except TimeoutError:
        raise ProviderError(f"no answer in {_PATIENCE:g} s", kind=ProviderErrorKind.TIMEOUT) from None
    finally:
        await catalog.aclose()


def _hint(provider: ProviderSettings, loaded: Loaded) -> None:
    """Print what else the user must do before the key is used."""
    for problem in loaded.problems:
        warn(problem)
    if provider.api_key(os.environ):
        print(f"The variable {provider.api_key_env} is set and takes precedence over the stored key")
    model = loaded.settings.llm.model
    if model is None:
        print(model_advice([provider], loaded.file))
    elif model.partition(":")[0] != provider.name:
        print(f"The configured model is {model}, which does not use this key")
