"""Weights in several files, with an index that says in which each tensor is; or numbers that do."""

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from shardproof._base import json
from shardproof._base.messages import quoted
from shardproof._base.opening import Read
from shardproof.errors import ManifestNotFoundError
from shardproof.formats._jobs import CountedSet, expected_by_names
from shardproof.manifest import ExpectedFile, Manifest, Mismatch
from shardproof.probes import by_name
from shardproof.probes.safetensors import WeightsIndex


class WeightsKind(NamedTuple):
    """What tells weights of one format: it must be picklable."""

    form: str
    indices: re.Pattern[str]
    part: re.Pattern[str]
    """Who writes several such files writes an index last, and loaders refuse them without it."""

    missing: Callable[[Read, int, Sequence[str]], Sequence[str] | Mismatch | None]
    """Called with a descriptor, a size and names: which tensors are not there, or what is wrong."""


def manifest_of(
    kind: WeightsKind, path: str, names: Sequence[str], weights: Sequence[str], **others: Any
) -> Manifest:
    """Return what indices, numbers and names expect of weights."""
    indices = [name for name in names if kind.indices.fullmatch(os.path.basename(name))]
    owed: dict[str, list[str]] = {}
    for index in indices:
        for tensor, file in json.read(path, index, WeightsIndex).weight_map.items():
            owed.setdefault(os.path.join(os.path.dirname(index), file), []).append(tensor)
    beside = [name for name in weights if name not in owed]
    # Beside an index, a number may be of a set that was left over and is not whole.
    counted = CountedSet(beside, ()) if indices else expected_by_names(path, beside, first=1)
    listed = {os.path.dirname(index) for index in indices}
    parts = (kind.part.fullmatch(name) for name in beside if os.path.dirname(name) not in listed)
    missing = sorted({f"{part['stem']}{part['end']}.index.json" for part in parts if part})
    files = [*owed, *counted.names, *missing]
    if not files:
        raise ManifestNotFoundError(f"there is no file of {kind.form}, and no index", path=path)
    return Manifest.at(
        path,
        indices[0] if indices else files[0],
        kind.form,
        [ExpectedFile(name=name) for name in files],
        probe=functools.partial(_probe, kind, owed),
        contradictions=functools.partial(tuple, counted.contradictions),
        **others,
    )


def _probe(
    kind: WeightsKind,
    owed: Mapping[str, Sequence[str]],
    promised: ExpectedFile,
    read: Read,
    size: int,
) -> Mismatch | None:
    """Look at a file's structure, and in it for every tensor that an index says is there."""
    if kind.indices.fullmatch(promised.name):  # it came meanwhile
        return by_name.flaw_of_list(WeightsIndex, read, size)
    tensors = owed.get(promised.name, ())
    missing = kind.missing(read, size, tensors)
    if isinstance(missing, Mismatch):
        return missing
    if not missing:
        return None
    found = f"{len(tensors) - len(missing)} of the {len(tensors)} that the index names"
    return Mismatch(f"the tensor {quoted(missing[0])}", found)
