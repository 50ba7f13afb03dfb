"""What ``torch.save`` wrote: a model of transformers in ``pytorch_model*.bin``, or folders of .pt.

Nothing is unpickled, since a pickle is a program. Files of torch 1.6 or later are zip files, whose
directory says where each storage is, and by which CRC-32. Older ones are a row of pickles, and what
follows these has neither a mark nor a size that could be read without doing what they say.
"""

import os
import re
import zipfile
from collections.abc import Sequence
from typing import IO

from shardproof._base.messages import quoted
from shardproof._base.names import open_root
from shardproof._base.opening import Read, matching
from shardproof.formats._reading import begin_of
from shardproof.formats.weights._indexed import WeightsKind, manifest_of
from shardproof.manifest import ExpectedFile, Manifest, Mismatch
from shardproof.probes import zipped

_INDEX = re.compile(r".*\.bin\.index(?:\.[\w-]+)?\.json")
_PART = re.compile(r"(?P<stem>pytorch_model)-\d{5}-of-(?!00001)\d{5}(?P<end>\.bin)")
_MODEL = re.compile(r".*pytorch_model.*\.bin|adapter_model\.bin", re.DOTALL)
_STATE = (".pt", ".pth", ".ckpt", ".pt.tar", ".pth.tar")
_ZIP, _LEGACY = b"PK\3\4", b"\x80\2\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_MOST_LOOKED_AT = 16
_MAX_PICKLE_BYTES, _MAX_NAME_BYTES = 2**26, 4096
_LENGTH = re.compile(rb"X(?=(....))|\x8c(?=(.))", re.DOTALL)
"""What stands before a text in a pickle: its length, in four bytes or in one."""


def recognizes(path: str) -> bool:
    names = matching(path, "*")
    may_be = [name for name in names if name.endswith((".bin", *_STATE))]
    return any(_MODEL.fullmatch(name) or _INDEX.fullmatch(name) for name in names) or any(
        _begins_as_one(path, name) for name in may_be[:_MOST_LOOKED_AT]
    )


def _begins_as_one(path: str, name: str) -> bool:
    return begin_of(path, name, len(_LEGACY)).startswith((_ZIP, _LEGACY))


def read_manifest(path: str) -> Manifest:
    os.close(open_root(path))
    names = matching(path, "*")
    weights = [
        name
        for name in names
        if _MODEL.fullmatch(name)
        or name.endswith(_STATE)
        or (name.endswith(".bin") and _begins_as_one(path, name))
    ]
    kind = WeightsKind("torch", _INDEX, _PART, _missing)
    return manifest_of(kind, path, names, weights, prove=_prove)


def _missing(read: Read, size: int, tensors: Sequence[str]) -> Sequence[str] | Mismatch | None:
    """Return which tensors no pickle in an archive names; of pickles only the first byte tells."""
    head = read(len(_ZIP))
    if head != _ZIP:
        is_pickle = head.startswith(b"\x80")
        return None if is_pickle else Mismatch("a zip file of torch, or a pickle", quoted(head))
    missing = list[str]()

    def look(info: zipfile.ZipInfo, member: IO[bytes]) -> None:
        if tensors and info.filename.endswith("/data.pkl"):
            missing.extend(_unnamed(member.read(_MAX_PICKLE_BYTES), tensors))

    return zipped.wrong_end(read, size) or zipped.wrong_member(read, size, look) or missing


def _unnamed(pickled: bytes, names: Sequence[str]) -> list[str]:
    """Return which texts are not in a pickle, each with its length before it."""
    left = {name.encode(): name for name in names}
    for found in _LENGTH.finditer(pickled):
        n_bytes = int.from_bytes(found[1] or found[2], "little")
        if n_bytes <= _MAX_NAME_BYTES:
            left.pop(pickled[(at := found.end(found.lastindex or 0)) : at + n_bytes], None)
    return [name for text, name in left.items() if len(text) <= _MAX_NAME_BYTES]


def _prove(_: ExpectedFile, read: Read, size: int) -> Mismatch | bool:
    """Return which member has another CRC-32; what lies between members has none."""
    if read(len(_ZIP)) != _ZIP:
        return False
    return zipped.wrong_end(read, size) or zipped.wrong_member(read, size, _read_summed) or False


def _read_summed(info: zipfile.ZipInfo, member: IO[bytes]) -> None:
    if info.CRC:  # torch can leave all out: set_crc32_options(False)
        zipped.read_all(info, member)
