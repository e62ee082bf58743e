"""The table and the chart of what the filters save are what is measured now."""

import re
from xml.etree import ElementTree as ET

import pytest

from tests.bench import savings
from tests.bench.savings_chart import Bar, chart

AGAIN = "run `make bench` or `python -m tests.bench.savings`"


@pytest.mark.parametrize(("name", "made"), [("savings.md", savings.page), ("savings.svg", savings.drawing)])
def test_what_is_committed_is_what_is_measured(name, made):
    assert (savings.DOCS / name).read_text(encoding="utf-8") == made(), AGAIN


def test_the_first_row_is_the_sum_of_the_others():
    whole, *rows = savings.measured()
    assert whole.command == savings.WHOLE
    for field in ("outputs", "raw_lines", "shown_lines", "raw_chars", "shown_chars"):
        assert getattr(whole, field) == sum(getattr(row, field) for row in rows)
    assert all(row.shown_chars <= row.raw_chars for row in rows)
    assert any(row.shown_chars == row.raw_chars for row in rows)  # what no rule is for counts


def test_the_chart_is_well_formed_has_words_for_who_cannot_see_it_and_no_scripts():
    text = chart(Bar("all", 3000, 600), [Bar("a <b> & c", 2000, 100), Bar("d", 1000, 1000)], 3)
    root = ET.fromstring(text)
    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert not {"script", "foreignObject", "image", "a"} & set(tags)
    assert root.get("role") == "img"
    ids = root.get("aria-labelledby", "").split()
    words = {element.get("id"): element.text for element in root.iter() if element.get("id") in ids}
    assert words["title"] == "80 % fewer characters for the model to read"
    assert "a <b> & c: 2,000 printed, 100 shown" in (words["desc"] or "")
    assert "prefers-color-scheme: dark" in text
    widths = [float(width) for width in re.findall(r'class="shown" x="\d+" y="\d+" width="([\d.]+)"', text)]
    assert widths[1:] == [76.0, 19.0, 380.0] or widths == [76.0, 19.0, 380.0]
    assert "as it is" in text
