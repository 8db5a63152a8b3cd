"""Times as the API writes them: RFC 3339 in UTC, to the second (metav1.Time) or the microsecond (metav1.MicroTime)."""

from datetime import UTC, datetime, timedelta


def timestamp(moment: datetime | None = None) -> str:
    """``moment`` in UTC, by default now, to the second."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(moment: datetime | None = None) -> str:
    """``moment`` in UTC, by default now, to the microsecond."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def time_of_day(seconds: float) -> str:
    """The time of day so many seconds from now, in UTC, for a person: such as ``19:18:05 UTC``."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%H:%M:%S UTC")
