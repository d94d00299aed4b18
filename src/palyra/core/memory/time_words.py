"""Times in questions and items: which period a question names, when an item was said, whether a text tells a time.

Does not own: ranking. Times are counted in UTC days; an item's own zone is seldom known.
"""

import re
from datetime import UTC, datetime, timedelta

import msgspec

MONTHS = "january february march april may june july august september october november december".split()
_MONTH = "|".join([*MONTHS, *(name[:3] for name in MONTHS), "sept"])
_TIME_WORDS = re.compile(
    rf"\b(?:yesterday|today|tonight|tomorrow|last|next|ago|weeks?|weekends?|months?|years?|recently|mornings?|evenings?|"
    rf"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|spring|summer|autumn|winter|(?:19|20)\d\d|\d+(?:st|nd|rd|th)|"
    rf"(?:{'|'.join(MONTHS)}))\b",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"^\W*(?:when\b|how long ago\b|since when\b)|\b(?:what|which)\s+(?:date|day|month|year)\b", re.IGNORECASE
)
_DAY_MONTH = re.compile(
    rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_MONTH})\.?(?:,?\s+((?:19|20)\d\d))?\b", re.IGNORECASE
)
_MONTH_DAY = re.compile(rf"\b({_MONTH})\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s+((?:19|20)\d\d)\b)?", re.IGNORECASE)
_MONTH_YEAR = re.compile(rf"\b({_MONTH})\.?,?\s+(?:of\s+)?((?:19|20)\d\d)\b", re.IGNORECASE)
_MONTH_ONLY = re.compile(rf"\b(?:in|during|last|since|of|early|late|mid)[\s-]+({'|'.join(MONTHS)})\b", re.IGNORECASE)
_YEAR = re.compile(r"\b(?:in|during|of|year)\s+((?:19|20)\d\d)\b", re.IGNORECASE)
_ISO = re.compile(r"\b((?:19|20)\d\d)[-/](\d{1,2})[-/](\d{1,2})(?!\d)")
_RELATIVE = {  # Days before now, from and to.
    "today": (0, 1),
    "yesterday": (-1, 0),
    "this week": (-7, 1),
    "last week": (-14, 0),
    "this month": (-31, 1),
    "last month": (-62, 0),
    "this year": (-366, 1),
    "last year": (-731, 0),
}
_DAY = timedelta(days=1)
DAY_MS = 86_400_000
TOLD_DAYS = 7  # People tell of an event within about a week.
TOLD_SHARE = 0.5
YEARS_MAX = 50  # Of a month without a year, so many years are looked at.


class Period(msgspec.Struct, frozen=True):
    """A span of time; `until_ms` is outside. A month without a year has `month`, and is in every year."""

    from_ms: int = 0
    until_ms: int = 0
    month: int = 0


def asks_for_time(text: str) -> bool:
    return _ASKS.search(text) is not None


def has_time_words(text: str) -> bool:
    return _TIME_WORDS.search(text) is not None


def find_period(text: str, at_ms: int) -> Period | None:
    """Returns the period that a question names, if it names one. Words like "last week" count from `at_ms`."""
    found = _find_date(text)
    if found is not None:
        return found
    lower = text.lower()
    now = _moment(at_ms)
    for words, (first, last) in _RELATIVE.items():
        if now is not None and words in lower:
            today = now.replace(hour=0, minute=0, second=0, microsecond=0)
            return Period(_ms(today + first * _DAY), _ms(today + last * _DAY))
    return None


def said_at(at: str) -> Period | None:
    """Returns the day of an item's `at`, if it can be read: ISO, or words with a day, a month and a year."""
    found = _find_date(at[:200])
    return found if found is not None and not found.month else None


def is_in(said: Period, asked: Period) -> bool:
    if asked.month:
        moment = _moment(said.from_ms)
        return moment is not None and moment.month == asked.month
    return said.from_ms < asked.until_ms and asked.from_ms < said.until_ms


def nearness(said: Period, asked: Period) -> float:
    """Returns 1 for what was said in the period, a part of it for what was said soon after, as of an event, or 0."""
    if is_in(said, asked):
        return 1.0
    until_ms = asked.until_ms + TOLD_DAYS * DAY_MS
    return TOLD_SHARE if not asked.month and is_in(said, Period(asked.until_ms, until_ms)) else 0.0


def day_of(at_ms: int) -> int:
    return at_ms // DAY_MS


def days_of(asked: Period, first_day: int, last_day: int) -> list[tuple[int, int]]:
    """Returns the days between the given ones on which the period was spoken of: spans, each without its last day."""
    if not asked.month:
        return [(day_of(asked.from_ms), day_of(asked.until_ms) + TOLD_DAYS)]
    first, last = _moment(first_day * DAY_MS), _moment(last_day * DAY_MS)
    if first is None or last is None:
        return []
    spans = [_span(year, asked.month) for year in range(last.year, first.year - 1, -1)[:YEARS_MAX]]
    return [(day_of(span.from_ms), day_of(span.until_ms)) for span in spans]


def _find_date(text: str) -> Period | None:
    if found := _ISO.search(text):
        return _day(int(found[1]), int(found[2]), int(found[3]))
    if found := _DAY_MONTH.search(text):
        return _day_or_month(found[3], found[2], int(found[1]))
    if found := _MONTH_YEAR.search(text):
        return _span(int(found[2]), _month(found[1]))
    if found := _MONTH_DAY.search(text):
        return _day_or_month(found[3], found[1], int(found[2]))
    if found := _YEAR.search(text):
        return _span(int(found[1]), 0)
    if found := _MONTH_ONLY.search(text):
        return Period(month=_month(found[1]))
    return None


def _day_or_month(year: str | None, month: str, day: int) -> Period | None:
    return _day(int(year), _month(month), day) if year else Period(month=_month(month))


def _month(name: str) -> int:
    return next(number for number, month in enumerate(MONTHS, 1) if month[:3] == name[:3].lower())


def _day(year: int, month: int, day: int) -> Period | None:
    try:
        start = datetime(year, month, day, tzinfo=UTC)
    except ValueError:
        return None
    return Period(_ms(start), _ms(start + _DAY))


def _span(year: int, month: int) -> Period:
    """Returns a month, or with month 0 a year."""
    start = datetime(year, month or 1, 1, tzinfo=UTC)
    next_month = month % 12 + 1 if month else 1
    end = datetime(year + (1 if next_month == 1 else 0), next_month, 1, tzinfo=UTC)
    return Period(_ms(start), _ms(end))


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _moment(at_ms: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
