"""The names in ``runs/<run_hash>/datasets/<dataset_name>/<plan_hash>/``, and the limits."""

import contextlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from shardproof.errors import ShardproofError

__all__ = [
    "CLAIMS",
    "MAX_HASH",
    "MAX_KINDS",
    "MAX_PLAN_BYTES",
    "MAX_RECEIPT_BYTES",
    "MAX_SHARDS",
    "PLAN_FILE",
    "RECEIPTS",
    "Scope",
    "receipt_index",
    "receipt_name",
    "reserved",
    "told_of",
]

PLAN_FILE = "plan.json"
RECEIPTS = "receipts"
CLAIMS = "claims"

MAX_SHARDS = 1_000_000
"""As many as six digits can number."""

MAX_KINDS = 1000
"""Most kinds of outputs that a plan may owe: each receipt is looked at for each of them."""

MAX_HASH = 128
"""Most characters of a plan's name, which stands in each claim: a SHA-512 has as many."""

MAX_PLAN_BYTES = 256 * 2**20
"""Largest plan: two million source files."""

MAX_RECEIPT_BYTES = 2**20
"""Largest receipt; in use they have under a thousand bytes, a traceback some thousands."""

_RECEIPT = re.compile(r"shard_([0-9]{6})\.json")


class Scope(NamedTuple):
    """Whose receipts are looked at.

    Attributes:
        root: Real absolute path of the plan directory.
        plan_hash: The plan's.
        kinds: The kinds of outputs that it owes; none where it doesn't say.
    """

    root: str
    plan_hash: str
    kinds: tuple[str, ...] = ()


def receipt_name(index: int) -> str:
    """Return the file name of a shard's receipt, inside `RECEIPTS`."""
    return f"shard_{index:06d}.json"


def receipt_index(name: str) -> int | None:
    """Return which shard's receipt has this file name; None if none has."""
    match = _RECEIPT.fullmatch(name)
    return int(match[1]) if match else None


def reserved(name: str) -> bool:
    """Whether an output may not have this name, because the plan directory needs it."""
    return name.split("/", 1)[0].lower() in {PLAN_FILE, RECEIPTS, CLAIMS}


@contextlib.contextmanager
def told_of(path: str) -> Iterator[None]:
    """Make an error of a system call name the whole path, not a part of it or none."""
    try:
        yield
    except ShardproofError:
        raise
    except OSError as error:
        if error.strerror is None or error.filename == path:
            raise  # as it is: of ours it has a text, and names what it is about
        raise OSError(error.errno, error.strerror, path) from error
