"""What becomes of shards that nobody needs any more: the argument and the environment variable."""

import os
import re
from collections.abc import Mapping
from typing import Literal, SupportsIndex

from shardproof._base.arguments import as_int
from shardproof._base.messages import quoted

__all__ = ["CLEANUP_VARIABLE", "Cleanup", "cleanup_policy"]

CLEANUP_VARIABLE = "HF_SHARD_CACHE_CLEANUP"

Cleanup = Literal["auto", "keep"] | int
"""``"auto"``: they are removed; ``"keep"``: they stay; or how many bytes of shards may stay."""

_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def cleanup_policy(
    cleanup: Cleanup | None = None, environ: Mapping[str, str] | None = None
) -> Cleanup:
    """Return what a user wants: the argument, else the environment variable, else ``"auto"``.

    Args:
        cleanup: ``"auto"``, ``"keep"``, a number of bytes, or None to go by the environment.
        environ: The environment; None for that of this process. ``HF_SHARD_CACHE_CLEANUP`` in it
            may be ``auto``, ``keep``, or a size such as ``500000000000``, ``500GB`` or ``465GiB``.

    Raises:
        TypeError: The argument is something else.
        ValueError: So is its value, or the variable's; the text says which, and what may be there.

    Example:
        >>> cleanup_policy(environ={"HF_SHARD_CACHE_CLEANUP": "2GiB"})
        2147483648
    """
    if cleanup is None:
        environ = os.environ if environ is None else environ
        return _from_text(environ.get(CLEANUP_VARIABLE, "").strip() or "auto")
    if isinstance(cleanup, bool) or not isinstance(cleanup, (SupportsIndex, str)):
        found = type(cleanup).__name__
        raise TypeError(f"cleanup: expected 'auto', 'keep' or a number of bytes, found {found}")
    if isinstance(cleanup, SupportsIndex):
        cleanup = as_int("cleanup", cleanup)
    if cleanup not in {"auto", "keep"} and not (isinstance(cleanup, int) and cleanup > 0):
        problem = f"expected 'auto', 'keep' or a number of bytes over 0, found {quoted(cleanup)}"
        raise ValueError(f"cleanup: {problem}")
    return cleanup


def _from_text(text: str) -> Cleanup:
    if text == "auto":
        return "auto"
    if text == "keep":
        return "keep"
    size = re.fullmatch(r"(?a:(\d{1,18}))\s?([a-z]*)", text, re.IGNORECASE)
    unit = _UNITS.get(size[2].lower()) if size else None
    if size is None or unit is None or not int(size[1]):
        problem = f"expected 'auto', 'keep' or a size such as '500GB', found {quoted(text)}"
        raise ValueError(f"{CLEANUP_VARIABLE}: {problem}")
    return int(size[1]) * unit
