"""When a scheduled prompt fires: plain words or the five fields of cron, and the next time that they mean.

    in 20 minutes · tomorrow 14:30 · on friday at 9 · 2026-12-24 08:00               once
    every 2 hours · every weekday at 9 · every mon, thu at 17:30 · */10 9-17 * * 1-5   again and again

Times of day are local, and moments are milliseconds since 1970. On a day when the clock is put forward, a time that
does not exist is moved by the length of the jump. On a day when it is put back, a time that occurs twice means the
first one; only a cron line whose hour begins with `*` means both. A period such as "every 2 hours" is
not affected.
"""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import product
from typing import TypeAlias

from acp_agent.core.data import frozen

SHORTEST = 60
"""Seconds of the shortest period."""
EXPECTED = (
    '"in 20 minutes", "tomorrow 14:30", "on friday at 9", "2026-12-24 08:00", "every 2 hours", "every weekday at 9", '
    '"every mon, thu at 17:30" or five fields of cron'
)
_FARTHEST = 366 * 8
"""Days in which the next time of a cron line is searched: the 29th of February may be eight years away."""
_LONGEST = 100  # characters of the words
_MILLI = 1000
_YEARS = 5

_UNITS = {
    "second": 1,
    "sec": 1,
    "s": 1,
    "minute": 60,
    "min": 60,
    "m": 60,
    "hour": 3600,
    "hr": 3600,
    "h": 3600,
    "day": 86_400,
    "d": 86_400,
    "week": 604_800,
    "w": 604_800,
}
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "ten": 10, "other": 2}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_GROUPS = {"day": range(7), "weekday": range(5), "weekend": range(5, 7)}
_SHORT = {
    "hourly": "every hour",
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
}

_TIME = r"(?P<time>noon|midnight|\d{1,2}(?::\d\d)?(?: ?[ap]m)?)"
_PERIOD = re.compile(r"(?:(?P<number>\d+) ?|(?P<word>[a-z]+) )?(?P<unit>[a-z]+?)s?")
_DAILY = re.compile(rf"(?P<days>[a-z]+(?:(?:, ?| and |, and )[a-z]+)*) (?:at )?{_TIME}")
_ONCE = re.compile(rf"(?:on )?(?:next )?(?:(?P<day>\d{{4}}-\d\d-\d\d|[a-z]+)[ t])??(?:at )?{_TIME}")
_PART = re.compile(r"(?:(?P<all>\*)|(?P<first>[a-z0-9]+)(?:-(?P<last>[a-z0-9]+))?)(?:/(?P<step>\d+))?")


@frozen
class Once:
    """One moment."""

    at: int

    def next(self, after: int, zone: tzinfo | None) -> int | None:
        """Return the moment if it is later than `after`."""
        del zone
        return self.at if self.at > after else None


@frozen
class Every:
    """A period of real time, in seconds."""

    seconds: int

    def next(self, after: int, zone: tzinfo | None) -> int | None:
        """Return the end of the period that begins at `after`."""
        del zone
        return after + self.seconds * _MILLI


@frozen
class Cron:
    """The five fields of a cron line.

    If both the day of the month and the weekday are restricted, a day fires if either of them matches. Otherwise both
    must match.

    weekdays     0 is Monday
    every_hour   whether the hour begins with `*`
    any_day, any_weekday   whether the field begins with `*`, and so counts as not restricted
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    every_hour: bool = False
    any_day: bool = True
    any_weekday: bool = True

    def next(self, after: int, zone: tzinfo | None) -> int | None:
        """Return the first moment later than `after`; None if there is none."""
        day = local(after, zone).date()
        for _ in range(_FARTHEST):
            if self._fires_on(day):
                found = min((at for at in self._moments(day, zone) if at > after), default=None)
                if found is not None:
                    return found
            day += timedelta(days=1)
        return None

    def _fires_on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.weekday() in self.weekdays
        return (by_day and by_weekday) if self.any_day or self.any_weekday else (by_day or by_weekday)

    def _moments(self, day: date, zone: tzinfo | None) -> Iterator[int]:
        for hour, minute in product(self.hours, self.minutes):
            for fold in (0, 1) if self.every_hour else (0,):
                yield moment(datetime.combine(day, time(hour, minute, fold=fold)), zone)


Timing: TypeAlias = Once | Every | Cron


def local(at: int, zone: tzinfo | None) -> datetime:
    """Return the local time of a moment without its zone. `zone` is None for that of this machine."""
    return datetime.fromtimestamp(at / _MILLI, zone).replace(tzinfo=None)


def moment(naive: datetime, zone: tzinfo | None) -> int:
    """Return the moment of a local time."""
    return round(naive.replace(tzinfo=zone).timestamp() * _MILLI)


def told(at: int, zone: tzinfo | None) -> str:
    """Return a moment for the user: "Tue 24 Nov 2026, 09:00 CET"."""
    seen = datetime.fromtimestamp(at / _MILLI, zone)
    return (seen.astimezone() if zone is None else seen).strftime("%a %d %b %Y, %H:%M %Z").rstrip()


def understood(words: str, now: int, zone: tzinfo | None) -> Timing:
    """Return the timing that the words mean. Raises ValueError with what was expected if they have no meaning."""
    said = " ".join(words.lower().split())
    said = _SHORT.get(said, said)
    if len(said) > _LONGEST:
        raise ValueError(f"at most {_LONGEST} characters")
    timing = _timing(said, now, zone)
    if timing is None:
        raise ValueError(EXPECTED)
    if isinstance(timing, Every) and timing.seconds < SHORTEST:
        raise ValueError(f"a period of at least {SHORTEST} seconds")
    first = timing.next(now, zone)
    if first is None:
        raise ValueError("a time that exists and is not over")
    if first > now + _YEARS * 366 * 86_400 * _MILLI and not isinstance(timing, Cron):
        raise ValueError(f"a time within {_YEARS} years")
    return timing


def _timing(said: str, now: int, zone: tzinfo | None) -> Timing | None:
    fields = said.split(" ")
    if len(fields) == 5 and not fields[0].isalpha():
        return _cron(fields)
    first, _, rest = said.partition(" ")
    match first:
        case "in":
            seconds = _seconds(rest)
            return Once(now + seconds * _MILLI) if seconds else None
        case "every" | "each":
            seconds = _seconds(rest)
            return Every(seconds) if seconds else _daily(rest)
        case "daily":
            return _daily(f"day {rest}")
        case "weekdays" | "weekends":
            return _daily(f"{first.removesuffix('s')} {rest}")
        case _:
            return _once(said, now, zone)


def _seconds(said: str) -> int:
    """Return the seconds of "20 minutes" or "hour"; 0 for other words."""
    found = _PERIOD.fullmatch(said)
    if found is None or found["unit"] not in _UNITS:
        return 0
    number = found["number"]
    count = int(number[:9]) if number else _NUMBERS.get(found["word"] or "one", 0)
    return count * _UNITS[found["unit"]]


def _daily(said: str) -> Cron | None:
    """Return the timing of "weekday at 9"; None for other words."""
    found = _DAILY.fullmatch(said)
    at = _time(found["time"]) if found else None
    if found is None or at is None:
        return None
    weekdays = set[int]()
    for name in re.split(r", and | and |, ?", found["days"]):
        named = _GROUPS.get(name.removesuffix("s")) or _weekday(name)
        if named is None:
            return None
        weekdays.update(named)
    every = frozenset(range(1, 32)), frozenset(range(1, 13))
    return Cron(frozenset((at.minute,)), frozenset((at.hour,)), *every, frozenset(weekdays), any_weekday=False)


def _weekday(name: str) -> tuple[int] | None:
    """Return the day with this name or beginning ("mon", "tues") as a group of one. None for other words.

    The number of Monday is 0.
    """
    found = [number for number, day in enumerate(_DAYS) if len(name) >= 3 and day.startswith(name.removesuffix("s"))]
    return (found[0],) if len(found) == 1 else None


def _time(said: str) -> time | None:
    """Return a time of day; None for one that does not exist."""
    if said in ("noon", "midnight"):
        return time(12 if said == "noon" else 0)
    digits, half = said.rstrip("apm "), said[-2:] if said.endswith("m") else ""
    hour, _, minute = digits.partition(":")
    at = int(hour), int(minute or 0)
    if half:
        if not 1 <= at[0] <= 12:
            return None
        at = at[0] % 12 + (12 if half == "pm" else 0), at[1]
    return time(*at) if at[0] < 24 and at[1] < 60 else None


def _once(said: str, now: int, zone: tzinfo | None) -> Once | None:
    """Return the timing of "tomorrow 14:30"; None for other words. A time without a day is the next such time."""
    found = _ONCE.fullmatch(said)
    at = _time(found["time"]) if found else None
    if found is None or at is None:
        return None
    today, name = local(now, zone).date(), found["day"] or ""
    if name in ("", "today", "tomorrow"):
        days = [today + timedelta(days=1)] if name == "tomorrow" else [today]
        days += [today + timedelta(days=1)] if not name else []
    elif (weekday := _weekday(name)) is not None:
        ahead = (weekday[0] - today.weekday()) % 7
        days = [today + timedelta(days=ahead), today + timedelta(days=ahead + 7)]
    else:
        try:
            days = [date.fromisoformat(name)]
        except ValueError:
            return None
    moments = [moment(datetime.combine(day, at), zone) for day in days]
    return Once(next((each for each in moments if each > now), moments[-1]))


def _cron(fields: list[str]) -> Cron | None:
    minute, hour, day, month, weekday = fields
    names = {name[:3]: (number + 1) % 7 for number, name in enumerate(_DAYS)}
    minutes, hours = _field(minute, 0, 59), _field(hour, 0, 23)
    days = _field(day, 1, 31)
    months = _field(month, 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)})
    weekdays = _field(weekday, 0, 7, names)
    if not (minutes and hours and days and months and weekdays):
        return None
    from_monday = frozenset((number - 1) % 7 for number in weekdays)
    return Cron(minutes, hours, days, months, from_monday, hour.startswith("*"), day[0] == "*", weekday[0] == "*")


def _field(text: str, low: int, high: int, names: dict[str, int] | None = None) -> frozenset[int]:
    """Return the numbers of one field of cron; empty for one that cannot be read."""
    numbers = set[int]()
    for part in text.split(","):
        found = _PART.fullmatch(part)
        if found is None:
            return frozenset()
        ends = [_number(found[key], names or {}) for key in ("first", "last")]
        first, last = (low, high) if found["all"] else (ends[0], ends[0] if found["last"] is None else ends[1])
        if found["step"] and found["first"] and not found["last"]:
            last = high
        step = int((found["step"] or "1")[:3])
        if not (low <= first <= last <= high and step):
            return frozenset()
        numbers.update(range(first, last + 1, step))
    return frozenset(numbers)


def _number(text: str | None, names: dict[str, int]) -> int:
    if text is None:
        return -1
    return int(text[:3]) if text.isdecimal() else names.get(text, -1)


def zone_of(name: str) -> tzinfo | None:
    """Return the time zone with an IANA name. Return None, the zone of this machine, for the empty name."""
    if not name:
        return None
    if name.upper() == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - few users name a zone

    return ZoneInfo(name)
