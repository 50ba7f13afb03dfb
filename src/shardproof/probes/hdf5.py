"""The law of an HDF5 file: its superblock says where the file ends, and whether it was closed.

The superblock is at byte 0, 512, 1024, or another power of two, behind a user's own bytes; numbers
are little-endian (https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html). Of the
drivers `family` and `split`, one file of several has it, and its sizes are those of all together.
"""

import re
from collections.abc import Sequence

from shardproof._base.messages import quoted
from shardproof._base.names import opened
from shardproof._base.opening import Read
from shardproof.manifest import ExpectedFile, Mismatch

__all__ = ["choose", "probe"]

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_OLDER = (b"\x0e\3\x13\1", b"CDF\1", b"CDF\2", b"CDF\5")  # HDF4, netCDF 3: no law here
_SUPERBLOCK_BYTES, _EXTENSION_BYTES = 256, 1024
_OF_SEVERAL = re.compile(rb"NCSA(?:fami|mult)")
_NUMBERS = re.compile(r"\d+")
_IS_OPEN, _IS_SWMR = 1, 4


def choose(path: str, names: Sequence[str]) -> Sequence[str]:
    """Return all but those that are parts of a file of several, without a superblock."""
    series: dict[str, list[str]] = {}
    for name in names:
        series.setdefault(_NUMBERS.sub("0", name), []).append(name)
    firsts = [name for name in names if "-m." in name and _is_of_several(path, name)]
    parts = {name.replace("-m.", "-r.") for name in firsts}
    for first, *others in (some for some in series.values() if len(some) > 1):
        if _is_of_several(path, first):
            parts.update(others)
    return [name for name in names if name not in parts]


def _is_of_several(path: str, name: str) -> bool:
    with opened(name, path) as file:
        return file is not None and bool(_OF_SEVERAL.search(file(2 * _EXTENSION_BYTES)))


def probe(_promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with a file's superblock, with its end, or with its root group."""
    places = (0, *(1 << n for n in range(9, size.bit_length())))
    at = next((at for at in places if read(8, at) == _SIGNATURE), None)
    if at is None:
        head = read(12)
        expected = "the signature of HDF5 at byte 0, 512, 1024..."
        return None if head.startswith(_OLDER) else Mismatch(expected, quoted(head))
    block = read(_SUPERBLOCK_BYTES, at).ljust(_SUPERBLOCK_BYTES, b"\0")
    version, is_new = block[8], block[8] > 1
    n_bytes = block[9 if is_new else 13]
    if version > 3 or n_bytes not in {2, 4, 8, 16, 32}:
        found = f"version {version}, addresses of {n_bytes} bytes"
        return Mismatch("a superblock of HDF5, version 0 to 3", found)
    begin = 12 if is_new else 24 + 4 * version
    addresses = [int.from_bytes(block[begin + n * n_bytes :][:n_bytes], "little") for n in range(6)]
    if version == 3 and block[11] & (_IS_OPEN | _IS_SWMR):
        found = "one that is open for writing: close it; if its writer was killed, `h5clear -s`"
        return Mismatch("a file that was closed", found)
    base, extra, end, other, _, last = addresses
    driver, root = (extra, other) if is_new else (other, last)
    if _OF_SEVERAL.search(read(_EXTENSION_BYTES, min(base + driver, size))):
        return None
    if end != size:
        why = "cut" if size < end else "extended, or its writer was not closed"
        return Mismatch(f"{end} bytes, as the superblock says", f"{size} bytes: the file is {why}")
    head = read(4, min(base + root, size))
    is_header = head == b"OHDR" or head[:2] == b"\1\0"
    return None if is_header else Mismatch(f"the root group at byte {base + root}", quoted(head))
