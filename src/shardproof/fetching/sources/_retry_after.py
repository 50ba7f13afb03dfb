"""When a server wants to be asked again: RFC 9110, 10.2.3."""

import datetime
import email.utils

__all__ = ["seconds_to_wait"]


def seconds_to_wait(value: str | None) -> float | None:
    """Return the seconds that a Retry-After header asks for; None for nothing that can be read."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:20])
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    now = datetime.datetime.now(moment.tzinfo)
    return max(0.0, (moment - now).total_seconds())
