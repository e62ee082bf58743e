"""The model: chosen, its key there, its server answering. Asks what costs nothing."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import cast

import anyio
import anyio.to_thread

from acp_agent.cli.doctor.finding import Finding, Level
from acp_agent.config.load import Loaded
from acp_agent.config.provider_settings import ProviderType
from acp_agent.config.vendors import model_advice
from acp_agent.core.errors import ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.messages import ModelEvent
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.llm.catalog import Catalog, parse_model
from acp_agent.store.credentials import CredentialStore

_PATIENCE = 20.0  # seconds for the server to say something
_LATER = (ProviderErrorKind.RATE_LIMITED, ProviderErrorKind.OVERLOADED)


async def check_model(loaded: Loaded, environ: Mapping[str, str]) -> list[Finding]:
    """Whether a prompt would be answered."""
    llm = loaded.settings.llm
    if llm.model is None:
        return [Finding(Level.FAIL, "model", "none is chosen", model_advice(llm.providers, loaded.file))]
    reference = parse_model(llm.model)
    provider = next(provider for provider in llm.providers if provider.name == reference.provider)
    catalog = Catalog.of(llm, environ, CredentialStore(environ))
    try:
        model = await anyio.to_thread.run_sync(catalog.build, reference)
        if provider.type is ProviderType.SCRIPTED:
            return [Finding(Level.OK, "model", f"{llm.model} plays a script")]
        return [await _asked(model, llm.model)]
    except ConfigError as error:
        return [Finding(Level.FAIL, "model", str(error), f"set it, or choose another model in {loaded.file}")]
    finally:
        await catalog.aclose()


async def _asked(model: Provider, name: str) -> Finding:
    """Send a conversation without a word, to the very address a prompt would go to.

    A server looks at the key and mostly at the model's name, and then refuses it before anything is computed. One
    that takes it is held to one token.
    """
    try:
        with anyio.fail_after(_PATIENCE):
            events = cast("AsyncGenerator[ModelEvent]", model.stream(ModelRequest("", (), max_tokens=1)))
            async with aclosing(events):
                await anext(events, None)
    except TimeoutError:
        return Finding(Level.FAIL, "model", f"{name}: no answer in {_PATIENCE:g} s", "check base_url and the network")
    except ProviderError as error:
        if error.status in (400, 422) and "credit" not in str(error):
            return Finding(Level.OK, "model", f"{name}: the server answers (to a conversation without a word: {error})")
        if error.kind in _LATER:
            return Finding(Level.WARN, "model", str(error), "try again later")
        return Finding(Level.FAIL, "model", str(error), "see above; `acp-agent config show` prints what is in force")
    return Finding(Level.OK, "model", f"{name}: answers")
