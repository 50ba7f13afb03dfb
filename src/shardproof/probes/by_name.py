"""The laws of a file among others of all kinds: the end of its name tells which, if any.

Only such laws as every sound file of such a name keeps, whoever wrote it. So none of tar (there are
archives without an end mark), Arrow (streams without one) and npy (files with several arrays).
"""

import os

from shardproof._base import json
from shardproof._base.opening import Read
from shardproof.errors import ManifestError
from shardproof.manifest import ExpectedFile, Mismatch, Probe
from shardproof.probes import gguf, parquet, safetensors
from shardproof.probes.impostors import impostor

__all__ = ["flaw_of_list", "law_of", "probe"]

_LAWS: dict[str, Probe] = {
    ".gguf": gguf.probe,
    ".parquet": parquet.probe,
    ".safetensors": safetensors.probe,
}


def law_of(name: str) -> Probe | None:
    """Return the law that files of such a name have, if any: an empty one breaks it."""
    return _LAWS.get(os.path.splitext(name)[1].lower())


def probe(promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with the structure of a file, as far as its name tells what it has."""
    if (law := law_of(promised.name)) is not None:
        return law(promised, read, size)
    # Of other files only what is a pointer in their place, and not if it may be in git like that.
    if (promised.digest or "").startswith("git-sha1:"):
        return None
    pointer = impostor(read, size, among_texts=True)
    return None if pointer is None else Mismatch("the bytes of the file", pointer)


def flaw_of_list(kind: type, read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with a file that lists others, which is JSON and no shard."""
    try:
        json.decode(read(min(size, json.MAX_BYTES)), kind, path="")
    except ManifestError as error:
        return Mismatch("a list that can be read", error.problem)
    return None
