"""Checkpoints of which each rank wrote a shard, and one rank the metadata that seal them."""

import contextlib
import os
import re

from shardproof.formats import signs
from shardproof.manifest import Manifest

_SHARD = re.compile(r".+_shard_[0-9]+\.shard", re.DOTALL)


def recognizes(path: str) -> bool:
    if signs.is_prefix(path):
        return True
    names = os.listdir(path)
    if any(_SHARD.fullmatch(name) for name in names):
        return True
    for name in names:  # without shards, metadata say that there were some
        if name.endswith(signs.METADATA) and name != signs.METADATA:
            # It may be gone since the directory was listed.
            with contextlib.suppress(FileNotFoundError):
                if signs.begins_with(os.path.join(path, name), *signs.METADATA_FIELDS):
                    return True
    return False


def read_manifest(path: str) -> Manifest:
    # It takes numpy: only where there are some.
    from shardproof.checkpoint import verify  # noqa: PLC0415

    if signs.is_prefix(path):
        return verify.read_manifest(*os.path.split(path))
    return verify.read_manifest(path)
