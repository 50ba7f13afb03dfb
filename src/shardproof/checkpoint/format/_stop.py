"""Work that is wanted no more ends at its next piece."""

import threading

__all__ = ["StoppedError", "go_on"]


class StoppedError(Exception):
    """Whoever wanted the work wants it no more."""


def go_on(stop: threading.Event | None) -> None:
    """Raise `StoppedError` if the event is set."""
    if stop is not None and stop.is_set():
        raise StoppedError
