"""The recording of `acp-agent run` that the README shows."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.recording.__main__ import SVG
from tests.recording.drawing import Event, drawing

NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_a_line_is_shown_while_it_has_its_content_and_the_end_without_any_animation():
    events = [Event(0.0, "$ "), Event(1.0, "a<b\n"), Event(2.0, "\x1b[33m⠋\x1b[0m wait"), Event(3.0, "\r\x1b[Kc\nd")]
    root = ET.fromstring(drawing(events, 20, 2, "A & B"))
    shown = {}
    for group in root.iter(f"{NAMESPACE}g"):
        (text,) = ["".join(each.itertext()) for each in [group] if group.find(f"{NAMESPACE}text") is not None] or [""]
        when = group.find(f"{NAMESPACE}set")
        how = (group.get("visibility"), dict(when.attrib) if when is not None else {})
        shown[text] = how[0], how[1].get("to"), how[1].get("begin"), how[1].get("dur")
    assert shown == {
        "": (None, None, None, None),  # all lines
        "$": ("hidden", "visible", "l.begin+0.00s", "1.00s"),
        "$\xa0a<b": (None, "hidden", "l.begin", "1.00s"),
        "⠋wait": ("hidden", "visible", "l.begin+2.00s", "1.00s"),
        "c": (None, "hidden", "l.begin", "3.00s"),
        "d": (None, "hidden", "l.begin", "3.00s"),
    }
    (scroll,) = root.iter(f"{NAMESPACE}animateTransform")
    assert (scroll.get("values"), scroll.get("keyTimes")) == ("0 0;0 -18", "0.0000;0.3750")


def test_the_recording_of_the_readme_is_small_needs_nothing_from_elsewhere_and_shows_what_run_shows_today():
    text = SVG.read_text(encoding="utf-8")
    root = ET.fromstring(text)
    assert len(text.encode()) < 200_000
    assert {each.tag.removeprefix(NAMESPACE) for each in root.iter()} == {
        "svg", "title", "style", "rect", "circle", "g", "text", "set", "animate", "animateTransform",
    }  # fmt: skip
    assert not re.search(r"href|url\(|@import|/tmp|/home", text)
    shown = "".join(root.itertext()).replace("\xa0", " ")
    screen = (Path(__file__).parents[3] / "acp_agent" / "cli" / "screen.py").read_text(encoding="utf-8")
    for word in ("Allow?", "waiting for the model"):
        assert word in screen
        assert word in shown, "`make recording` renews it"
