"""The law of an archive of numpy's arrays: a zip file whose members are `.npy` files."""

import zipfile
from typing import IO

from shardproof._base.opening import Read
from shardproof.manifest import ExpectedFile, Mismatch
from shardproof.probes import npy, zipped

__all__ = ["probe", "prove"]

_HEADER_BYTES = 2**12


def probe(_promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with the directory of an archive, or the header of an array in it."""
    return zipped.wrong_end(read, size) or zipped.wrong_member(read, size, _wrong_array) or None


def prove(_promised: ExpectedFile, read: Read, size: int) -> Mismatch | bool:
    """Return whether the checksums of all members hold; the probe has looked at the rest."""
    wrong = zipped.wrong_end(read, size) or zipped.wrong_member(read, size, zipped.read_all)
    return True if wrong is None else wrong


def _wrong_array(info: zipfile.ZipInfo, member: IO[bytes]) -> Mismatch | None:
    if not info.filename.endswith(".npy"):
        return None
    head = member.read(_HEADER_BYTES)
    header = npy.header_of(lambda n_bytes: head[:n_bytes], info.file_size)
    if header is None or isinstance(header, Mismatch) or header.end == info.file_size:
        return header if isinstance(header, Mismatch) else None
    return Mismatch(f"{header.end} bytes, as its header says", f"{info.file_size} bytes")
