"""What the subcommands that treat a text on stdin share."""

import argparse
import os
import sys

from acp_agent.config.load import Flags, Loaded, load


def loaded_for(args: argparse.Namespace) -> Loaded:
    """The configuration of this folder; its problems go to stderr."""
    loaded = load(Flags(config=args.config), os.environ, os.getcwd())
    for each in loaded.problems:
        problem(str(each))
    return loaded


def problem(text: str) -> None:
    """Say what is wrong, without stopping."""
    print(f"acp-agent: {text}", file=sys.stderr)
