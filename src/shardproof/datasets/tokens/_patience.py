"""How long a manager of token shards tries, and how long a rank waits for rank 0."""

import dataclasses
import math

from shardproof._base.arguments import count, number
from shardproof.datasets.tokens._comms import Comms
from shardproof.fetching.sources import Source
from shardproof.fetching.transfer import Limits

__all__ = ["limits_of", "patience"]

_USUAL = Limits()


def limits_of(
    comms: Comms, limits: Limits | None, max_download_retries: int, download_timeout: float
) -> Limits:
    """Return how long and how often to try.

    Args:
        comms: Where shards come from.
        limits: What a user wants, who says it all; then the others must be as they are by default.
        max_download_retries: What a user wants.
        download_timeout: What a user wants; nothing else ends an attempt then.

    Raises:
        ValueError: A number out of range; or one is said twice.
    """
    if limits is None:
        limits = Limits(
            attempts=count("max_download_retries", max_download_retries, 1, 1000),
            timeout=number("download_timeout", download_timeout, 1e-3),
            stall_timeout=download_timeout,
            min_timeout=download_timeout,
        )
    elif (max_download_retries, download_timeout) != _said_by(_USUAL):
        problem = "max_download_retries and download_timeout are among them: give one or the other"
        raise ValueError(f"limits: {problem}")
    if isinstance(comms, str | Source):
        return limits
    # Of a function nobody sees how far it is.
    return dataclasses.replace(limits, stall_timeout=limits.timeout)


def _said_by(limits: Limits) -> tuple[int, float]:
    return limits.attempts, limits.timeout


def patience(wait_timeout: float | None, limits: Limits) -> float:
    """Return how many seconds a rank waits for rank 0.

    Raises:
        ValueError: A number out of range.
    """
    if wait_timeout is None:
        once = limits.timeout + limits.max_backoff
        each = limits.attempts * once
        return 2 * (each if limits.deadline is None else min(each, limits.deadline)) + 60.0
    if isinstance(wait_timeout, bool) or not 0 < wait_timeout < math.inf:
        raise ValueError(f"wait_timeout: expected a positive number, found {wait_timeout}")
    return wait_timeout
