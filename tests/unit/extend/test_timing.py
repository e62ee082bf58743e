"""When scheduled prompts fire: words, cron lines, and clocks that jump for summer time."""

import time
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.extend.timing import Cron, Every, moment, told, understood, zone_of
from tests.rows import each_row

BERLIN, NEW_YORK, LORD_HOWE = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("Australia/Lord_Howe")
NOW = datetime(2026, 11, 23, 8, 15, tzinfo=BERLIN)  # a Monday


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def firings(words: str, start: datetime, count: int = 1, zone: tzinfo = BERLIN) -> list[str]:
    """The next local times with their offset, one after another."""
    at, found = ms(start), list[str]()
    timing = understood(words, at, zone)
    for _ in range(count):
        following = timing.next(at, zone)
        if following is None:
            break
        at = following
        found.append(datetime.fromtimestamp(at / 1000, zone).strftime("%a %d.%m. %H:%M%z"))
    return found


@each_row(
    "words, expected",
    [
        ("in 20 minutes", ["Mon 23.11. 08:35+0100"]),
        ("in an hour", ["Mon 23.11. 09:15+0100"]),
        ("In  90 Seconds", ["Mon 23.11. 08:16+0100"]),
        ("14:30", ["Mon 23.11. 14:30+0100"]),
        ("at 8", ["Tue 24.11. 08:00+0100"]),
        ("today at 6pm", ["Mon 23.11. 18:00+0100"]),
        ("tomorrow 14:30", ["Tue 24.11. 14:30+0100"]),
        ("tomorrow at noon", ["Tue 24.11. 12:00+0100"]),
        ("on friday at 9", ["Fri 27.11. 09:00+0100"]),
        ("monday 8:00", ["Mon 30.11. 08:00+0100"]),
        ("next mon 12:15 am", ["Mon 30.11. 00:15+0100"]),
        ("2026-12-24 08:00", ["Thu 24.12. 08:00+0100"]),
        ("2026-12-24T08:00", ["Thu 24.12. 08:00+0100"]),
        ("every 2 hours", ["Mon 23.11. 10:15+0100", "Mon 23.11. 12:15+0100"]),
        ("hourly", ["Mon 23.11. 09:15+0100", "Mon 23.11. 10:15+0100"]),
        ("every other day", ["Wed 25.11. 08:15+0100", "Fri 27.11. 08:15+0100"]),
        ("every weekday at 8", ["Tue 24.11. 08:00+0100", "Wed 25.11. 08:00+0100"]),
        ("weekdays at 17", ["Mon 23.11. 17:00+0100", "Tue 24.11. 17:00+0100"]),
        ("daily at 9:30 pm", ["Mon 23.11. 21:30+0100", "Tue 24.11. 21:30+0100"]),
        ("every mon, thu at 17:30", ["Mon 23.11. 17:30+0100", "Thu 26.11. 17:30+0100"]),
        ("every tuesday and sunday 9", ["Tue 24.11. 09:00+0100", "Sun 29.11. 09:00+0100"]),
        ("0 9 * * 1-5", ["Mon 23.11. 09:00+0100", "Tue 24.11. 09:00+0100"]),
        ("*/20 8 * * *", ["Mon 23.11. 08:20+0100", "Mon 23.11. 08:40+0100"]),
        ("0 0 1 jan,jul *", ["Fri 01.01. 00:00+0100", "Thu 01.07. 00:00+0200"]),
        ("0 12 29 2 *", ["Tue 29.02. 12:00+0100"]),
        ("0 9 1 * sun", ["Sun 29.11. 09:00+0100", "Tue 01.12. 09:00+0100"]),  # either day, as cron has it
        ("0 9 * * 7", ["Sun 29.11. 09:00+0100"]),
        ("@daily", ["Tue 24.11. 00:00+0100"]),
    ],
)
def test_words_and_cron_lines_mean_the_next_times(words: str, expected: list[str]):
    assert firings(words, NOW, len(expected)) == expected


@each_row(
    "words, why",
    [
        ("", "in 20 minutes"),
        ("soon", "in 20 minutes"),
        ("every", "in 20 minutes"),
        ("every weekday", "every weekday at 9"),
        ("every blue moon at 9", "five fields of cron"),
        ("tomorrow 25:00", "tomorrow 14:30"),
        ("13pm", "in 20 minutes"),
        ("2026-13-01 08:00", "2026-12-24 08:00"),
        ("every 10 seconds", "a period of at least 60 seconds"),
        ("today at 7", "a time that exists and is not over"),
        ("2020-01-01 08:00", "a time that exists and is not over"),
        ("2090-01-01 08:00", "a time within 5 years"),
        ("in 99999999999 weeks", "a time within 5 years"),
        ("60 * * * *", "five fields of cron"),
        ("* * * * * *", "five fields of cron"),
        ("*/0 * * * *", "five fields of cron"),
        ("5-1 * * * *", "five fields of cron"),
        ("0 9 30 2 *", "a time that exists"),
        ("x" * 200, "at most 100 characters"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_is_expected(words: str, why: str):
    with pytest.raises(ValueError, match=why):
        understood(words, ms(NOW), BERLIN)


def test_a_time_in_the_gap_of_summer_time_comes_once_and_as_much_later():
    before = datetime(2026, 3, 28, 12, tzinfo=BERLIN)
    days = ["Sun 29.03. 03:30+0200", "Mon 30.03. 02:30+0200"]
    assert firings("every day at 2:30", before, 2) == days
    assert firings("30 2 * * *", before, 2) == days
    assert firings("tomorrow 2:30", before) == days[:1]
    assert firings("30 2,3 * * *", before, 2) == [days[0], "Mon 30.03. 02:30+0200"], "03:30 is not fired twice"


def test_a_time_in_the_overlap_comes_once_and_a_line_for_every_hour_twice():
    before = datetime(2026, 10, 24, 12, tzinfo=BERLIN)
    assert firings("every day at 2:30", before, 2) == ["Sun 25.10. 02:30+0200", "Mon 26.10. 02:30+0100"]
    after = datetime(2026, 10, 25, 1, 45, tzinfo=BERLIN)
    assert firings("*/30 * * * *", after, 4) == [
        "Sun 25.10. 02:00+0200",
        "Sun 25.10. 02:30+0200",
        "Sun 25.10. 02:00+0100",
        "Sun 25.10. 02:30+0100",
    ]
    second = datetime(2026, 10, 25, 2, 10, fold=1, tzinfo=BERLIN)
    assert firings("every day at 2:30", second) == ["Mon 26.10. 02:30+0100"], "its first 02:30 is over"


def test_a_jump_of_half_an_hour_is_a_jump():
    assert firings("every day at 2:15", datetime(2026, 10, 3, 12, tzinfo=LORD_HOWE), zone=LORD_HOWE) == [
        "Sun 04.10. 02:45+1100"
    ]


def test_a_period_is_real_time_and_knows_no_clock():
    start = datetime(2026, 3, 28, 12, tzinfo=BERLIN)
    assert firings("every 1 day", start) == ["Sun 29.03. 13:00+0200"]


@settings(max_examples=20, deadline=None)
@given(
    minute=st.sampled_from(["0", "*/7", "5,35", "50-54"]),
    hour=st.sampled_from(["*", "2", "1-3", "*/5", "23"]),
    day=st.sampled_from([datetime(2026, 3, 7, tzinfo=NEW_YORK), datetime(2026, 10, 31, tzinfo=NEW_YORK)]),
    minutes=st.integers(0, 2880),
)
def test_every_minute_that_a_line_names_fires_in_order_and_none_twice(
    minute: str, hour: str, day: datetime, minutes: int
):
    line = understood(f"{minute} {hour} * * *", 0, NEW_YORK)
    assert isinstance(line, Cron)
    at = start = ms(day) + minutes * 60_000
    end, seen = at + 26 * 3_600_000, list[int]()
    while (following := line.next(at, NEW_YORK)) is not None and following < end:
        assert following > at
        at = following
        seen.append(at)
    named = set[int]()
    for step in range(60_000, 26 * 3_600_000, 60_000):
        naive = datetime.fromtimestamp((start + step) / 1000, NEW_YORK)
        first = not naive.fold or line.every_hour
        if naive.minute in line.minutes and naive.hour in line.hours and first and start + step < end:
            named.add(start + step)
    jumped = {each for each in seen if each not in named}
    assert named - set(seen) == set()
    assert all(datetime.fromtimestamp(each / 1000, NEW_YORK).hour == 3 for each in jumped), "moved out of the gap"


def test_the_zone_of_the_machine_counts_where_none_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        at = moment(datetime(2026, 3, 29, 2, 30, tzinfo=UTC), None)
        assert datetime.fromtimestamp(at / 1000, BERLIN).strftime("%H:%M") == "03:30"
        following = understood("every weekday at 9", ms(NOW), zone_of("")).next(ms(NOW), None)
        assert following == ms(NOW.replace(hour=9, minute=0))
        assert told(ms(NOW), None) == "Mon 23 Nov 2026, 08:15 CET"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_zone_is_known_by_its_name():
    assert zone_of("Europe/Berlin") == BERLIN
    assert zone_of("utc") is UTC
    assert zone_of("") is None


def test_a_period_counts_from_now_whatever_the_clock_did():
    assert Every(60).next(ms(NOW), None) == ms(NOW + timedelta(minutes=1))
