"""A model's weights in safetensors: files alone, or an index that says which tensor is where.

The ``total_size`` of an index proves nothing, and is not looked at: some writers state the size of
the files, some the number of tensors, some what the model had before its weights were compressed or
what shares its memory was left out.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Collection, Iterator, Sequence

from shardproof._base.names import open_root
from shardproof._base.opening import Read, matching
from shardproof.formats.weights._indexed import WeightsKind, manifest_of
from shardproof.manifest import ExpectedFile, Manifest, Mismatch, Probe
from shardproof.probes import zipped
from shardproof.probes.safetensors import SafetensorsHeader, header_of

_SUFFIX = ".safetensors"
_INDEX = re.compile(r".*\.safetensors\.index(?:\.[\w-]+)?\.json")
_PART = re.compile(
    r"(?P<stem>(?:.*/)?(?:diffusion_pytorch_)?model)-\d{5}-of-(?!00001)\d{5}(?P<end>\.safetensors)"
)
_STATE = re.compile(
    r"(?:optimizer|scheduler|rng_state|random_states|training_args).*\.(?:bin|pkl|pth?)"
)
"""What transformers and accelerate save beside a model, to go on with its training."""
_PIPELINES = {"model_index.json", "modules.json"}
"""Of diffusers, and of sentence-transformers: the parts of a pipeline are in folders beside it."""


def recognizes(path: str) -> bool:
    return any(
        name == "model_index.json" or name.endswith(_SUFFIX) or _INDEX.fullmatch(name)
        for name in matching(path, "*")
    )


def read_manifest(path: str) -> Manifest:
    os.close(open_root(path))
    names = list(_names(path))
    weights = [name for name in names if name.endswith(_SUFFIX)]
    kind = WeightsKind("safetensors", _INDEX, _PART, _missing)
    manifest = manifest_of(kind, path, names, weights)
    states = {*filter(_STATE.fullmatch, names)}.difference(each.name for each in manifest.files)
    files = [*manifest.files, *(ExpectedFile(name=name) for name in sorted(states))]
    probe = functools.partial(_probe, states, manifest.probe)
    return dataclasses.replace(manifest, files=files, probe=probe)


def _probe(
    states: Collection[str], of_weights: Probe | None, promised: ExpectedFile, read: Read, size: int
) -> Mismatch | None:
    if promised.name not in states:
        return of_weights and of_weights(promised, read, size)
    if read(1) == b"\x80":  # a pickle, as torch wrote it before 1.6
        return None
    return zipped.wrong_end(read, size) or zipped.wrong_member(read, size, lambda *_: None) or None


def _names(path: str) -> Iterator[str]:
    """Yield what is in a directory, and in the folders of a pipeline, by relative paths."""
    names = matching(path, "*")
    yield from names
    for folder in () if _PIPELINES.isdisjoint(names) else names:
        yield from (f"{folder}/{name}" for name in matching(os.path.join(path, folder), "*"))


def _missing(read: Read, size: int, tensors: Sequence[str]) -> Sequence[str] | Mismatch | None:
    header = header_of(read, size)
    if not isinstance(header, SafetensorsHeader):
        return header
    there = {*header.tensors, *header.left_out()} if tensors else ()
    return [tensor for tensor in tensors if tensor not in there]
