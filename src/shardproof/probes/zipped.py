"""The laws of a zip file, in which torch and numpy put arrays: its directory, and its members.

It ends with a directory of its members, and a record of where that is (APPNOTE.TXT of PKWARE,
section 4.3). What follows the record is no part of it.
"""

import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, Literal

from shardproof._base.messages import quoted, told
from shardproof._base.opening import Read, file_of
from shardproof.manifest import Mismatch

__all__ = ["Look", "read_all", "wrong_end", "wrong_member"]

Look = Callable[[zipfile.ZipInfo, IO[bytes]], Mismatch | None]

_END = struct.Struct("<4s8xIIH")  # signature, size and offset of the directory, size of a comment
_LONG_END = struct.Struct("<4s36xQQ")  # of more than 4 GiB
_LOCATOR = struct.Struct("<4s4xQ4x")
_MOST_BYTES = 2**24  # of the directory, which `zipfile` reads into memory: some 200000 members
_PIECE_BYTES = 2**20
_DAMAGED = (zipfile.BadZipFile, EOFError, OverflowError, ValueError, struct.error, zlib.error)
_UNKNOWN = (NotImplementedError, RuntimeError)  # a way to pack, or to encrypt, that is not known


def wrong_end(read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with the end of a file: where its directory is, and how long."""
    tail = read(2**16 + _END.size, max(0, size - 2**16 - _END.size))
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) - at < _END.size:
        return Mismatch("the end of a zip file", f"{quoted(tail[-8:])}: the file is cut")
    _, n_bytes, begin, n_comment = _END.unpack_from(tail, at)
    end = size - len(tail) + at
    if len(tail) - at != _END.size + n_comment:
        return Mismatch(f"{end + _END.size + n_comment} bytes, to the end of zip", f"{size} bytes")
    locator = read(_LOCATOR.size, max(0, end - _LOCATOR.size))
    kind, place = _LOCATOR.unpack(locator.ljust(_LOCATOR.size, b"\0"))
    if kind == b"PK\6\7":
        long_end = read(_LONG_END.size, min(place, size)).ljust(_LONG_END.size, b"\0")
        _, n_bytes, begin = _LONG_END.unpack(long_end)
        end = place
    if begin + n_bytes != end or n_bytes > _MOST_BYTES:
        found = f"one of {n_bytes} bytes at byte {begin}"
        return Mismatch(f"the directory of members before byte {end}", found)
    return None


def wrong_member(read: Read, size: int, look: Look) -> Mismatch | Literal[False] | None:
    """Return what a look at the members finds first; False where one can't be looked at."""
    name = ""
    try:
        with file_of(read, size) as file, zipfile.ZipFile(file) as archive:
            for each in archive.infolist():
                name = f"{quoted(each.filename)}: "
                if each.compress_type > zipfile.ZIP_DEFLATED:  # bzip2 may unpack to any size
                    return False
                with archive.open(each) as member:
                    if wrong := look(each, member):
                        return Mismatch(f"{name}{wrong.expected}", wrong.found)
    except _UNKNOWN:
        return False
    except _DAMAGED as error:
        return Mismatch(f"{name}a member of a zip file", told(error))
    return None


def read_all(_info: zipfile.ZipInfo, member: IO[bytes]) -> None:
    """Read a member, so that its checksum is compared."""
    while member.read(_PIECE_BYTES):
        pass
