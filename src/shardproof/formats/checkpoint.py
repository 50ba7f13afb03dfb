"""Checkpoints of many ranks: what ``<prefix>.metadata.json`` promises."""

import os
import re

from shardproof._base.names import NotRegularError, open_regular
from shardproof.manifest import Manifest

__all__ = ["MANIFEST_FILE", "claims", "read"]

MANIFEST_FILE = "*.metadata.json"

_METADATA = re.compile(r".+\.metadata\.json", re.DOTALL)
_SHARD = re.compile(r".+_shard_[0-9]+\.shard", re.DOTALL)
_FIRST_BYTES = 4096


def claims(root: str) -> bool:
    """Whether shards of a checkpoint are there; or metadata alone, which say that they were."""
    names = os.listdir(root)
    if any(_SHARD.fullmatch(name) for name in names):
        return True
    return any(_says_so(os.path.join(root, name)) for name in names if _METADATA.fullmatch(name))


def _says_so(path: str) -> bool:
    """Whether a file begins as metadata do; others may have that name."""
    try:
        fd = open_regular(path)
    except (NotRegularError, FileNotFoundError):
        return False
    if fd is None:
        return False
    with open(fd, "rb") as file:
        begin = file.read(_FIRST_BYTES)
    return b'"schema_version"' in begin and b'"world_size"' in begin


def read(root: str) -> Manifest:
    """Return what the metadata promise; arguments and errors as for `checkpoint.promise`."""
    from shardproof.checkpoint import promise  # noqa: PLC0415 - numpy, only where there are some

    return promise(root)
