"""What sessions of one process share, and with whom."""

import subprocess
import sys
from pathlib import Path

SHARING = """
import os
import sys
from dataclasses import replace
from acp_agent.config.load import Flags, load
from acp_agent.session.processes import ProcessServices

one, two = sys.argv[1:]
loaded = load(Flags(), {}, one)
services = ProcessServices(loaded, lambda task: None, lambda loaded: None)

rules = services.rules(loaded, (one,))
assert services.rules(loaded, (one,)) is rules
assert services.rules(loaded, (one, two)).folders == (one, two)
assert services.rules(loaded, (two,)).folders == (two,)
assert services.rules(replace(loaded), (two,)).given is not loaded
os.symlink(one, link := two + "/link")
rules = services.rules(loaded, (link,))
os.unlink(link)
os.symlink(two, link)
assert services.rules(loaded, (link,)) is not rules, "denied paths are those below the folder to which a link leads"

tools = loaded.settings.tools
stricter = tools.model_copy(update={"file": tools.file.model_copy(update={"deny_read": ("secret",)})})
strict = replace(loaded, settings=loaded.settings.model_copy(update={"tools": stricter}))
look = services.folder_look(loaded, (one,))
assert services.folder_look(loaded, (one,)) is look
assert services.folder_look(strict, (one,)) is not look
assert services.folder_look(loaded, (one, two)) is not look
for number in range(40):
    services.folder_look(loaded, (f"{one}/{number}",))
    services.folder_look(strict, (one,))
assert services.folder_look(loaded, (one,)) is not look, "those that nobody asks for are forgotten"
print("good")
"""


def test_sessions_share_rules_and_looks_only_under_equal_settings_in_the_same_folders(tmp_path: Path) -> None:
    # In a process of its own: the services change the one they are in (log, signals, who inherits orphans).
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    done = subprocess.run([sys.executable, "-c", SHARING, *map(str, folders)], capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"good\n", b"")
