"""Models of libraries, made without what nobody reads here."""

import importlib
from typing import Any


def skip_docstrings() -> None:
    """Let pydantic leave out the descriptions of fields that stand below them in the source.

    The models of the protocol ask for them. To find them pydantic reads the source again for each model: half a second
    for each process that imports the models.
    """
    fields: Any = importlib.import_module("pydantic._internal._fields")
    fields._update_fields_from_docstrings = lambda *_: None
