"""Importing without what is only for show."""

import importlib
import sys

import pytest

from acp_agent.core.lean_import import without


def test_inside_the_module_is_not_there_and_afterwards_it_is_again():
    sys.modules.pop("colorsys", None)
    with without("colorsys"), pytest.raises(ImportError):
        importlib.import_module("colorsys")
    assert importlib.import_module("colorsys").rgb_to_hsv


def test_what_is_loaded_already_stays():
    importlib.import_module("json")
    with without("json"):
        assert importlib.import_module("json").dumps([]) == "[]"
    assert "json" in sys.modules
