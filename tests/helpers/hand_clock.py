"""A clock that tests turn by hand."""


class HandClock:
    """A monotonic clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
