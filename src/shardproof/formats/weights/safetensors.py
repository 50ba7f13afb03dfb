"""A model's weights in safetensors: files alone, or an index that says which tensor is where.

The ``total_size`` of an index proves nothing, and is not looked at: some writers state the size of
the files, some the number of tensors, some what the model had before its weights were compressed or
what shares its memory was left out.
"""

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from shardproof._base import json
from shardproof._base.messages import quoted
from shardproof._base.names import open_root
from shardproof._base.opening import matching
from shardproof.errors import ManifestNotFoundError
from shardproof.formats._jobs import CountedSet, expected_by_names
from shardproof.manifest import ExpectedFile, Manifest, Mismatch
from shardproof.probes import by_name
from shardproof.probes.safetensors import SafetensorsHeader, WeightsIndex, header_of

_SUFFIX = ".safetensors"
_INDEX = re.compile(r".*\.safetensors\.index(?:\.[\w-]+)?\.json")
_PART = re.compile(r"((?:.*/)?(?:diffusion_pytorch_)?model)-\d{5}-of-(?!00001)\d{5}\.safetensors")
"""Who writes several such files writes an index last, and loaders refuse them without it."""
_PIPELINE = "model_index.json"
"""Written by diffusers: the parts of a pipeline are in folders beside it."""


def recognizes(path: str) -> bool:
    return any(
        name == _PIPELINE or name.endswith(_SUFFIX) or _INDEX.fullmatch(name)
        for name in matching(path, "*")
    )


def read_manifest(path: str) -> Manifest:
    os.close(open_root(path))
    names = list(_names(path))
    indices = [name for name in names if _INDEX.fullmatch(os.path.basename(name))]
    owed: dict[str, list[str]] = {}
    for index in indices:
        for tensor, file in json.read(path, index, WeightsIndex).weight_map.items():
            owed.setdefault(os.path.join(os.path.dirname(index), file), []).append(tensor)
    beside = [name for name in names if name.endswith(_SUFFIX) and name not in owed]
    # Beside an index, a number may be of a set that was left over and is not whole.
    counted = CountedSet(beside, ()) if indices else expected_by_names(beside, first=1)
    listed = {os.path.dirname(index) for index in indices}
    parts = (_PART.fullmatch(name) for name in beside if os.path.dirname(name) not in listed)
    missing = sorted({f"{part[1]}.safetensors.index.json" for part in parts if part})
    files = [*owed, *counted.names, *missing]
    if not files:
        raise ManifestNotFoundError("there is no file of safetensors, and no index", path=path)
    return Manifest.at(
        path,
        indices[0] if indices else files[0],
        "safetensors",
        [ExpectedFile(name=name) for name in files],
        probe=functools.partial(_probe, owed),
        contradictions=functools.partial(tuple, counted.contradictions),
    )


def _names(path: str) -> Iterator[str]:
    """Yield what is in a directory, and in the folders of a pipeline, by relative paths."""
    names = matching(path, "*")
    yield from names
    for folder in names if _PIPELINE in names else ():
        yield from (f"{folder}/{name}" for name in matching(os.path.join(path, folder), "*"))


def _probe(
    owed: Mapping[str, Sequence[str]], promised: ExpectedFile, fd: int, size: int
) -> Mismatch | None:
    """Look at a file's header, and in it for every tensor that an index says is there."""
    if _INDEX.fullmatch(promised.name):  # it came meanwhile
        return by_name.flaw_of_list(WeightsIndex, fd, size)
    header = header_of(fd, size)
    if not isinstance(header, SafetensorsHeader):
        return header
    tensors = owed.get(promised.name, ())
    there = {*header.tensors, *header.left_out()} if tensors else ()
    missing = [tensor for tensor in tensors if tensor not in there]
    if not missing:
        return None
    found = f"{len(tensors) - len(missing)} of the {len(tensors)} that the index names"
    return Mismatch(f"the tensor {quoted(missing[0])}", found)
