"""What a store states of all of an object's bytes: never an entity tag (see docs/stores.md)."""

import base64
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

_OF_S3 = {
    "ChecksumSHA256": ("sha256", 32),
    "ChecksumSHA512": ("sha512", 64),
    "ChecksumSHA1": ("sha1", 20),
    "ChecksumMD5": ("md5", 16),
    "ChecksumCRC64NVME": ("crc64nvme", 8),
    "ChecksumCRC32C": ("crc32c", 4),
    "ChecksumCRC32": ("crc32", 4),
}
_OF_GCS = {"md5Hash": ("md5", 16), "crc32c": ("crc32c", 4)}


def stated_in(info: Mapping[str, Any]) -> Iterator[str]:
    """Yield the checksums in what a file system tells of an object: ``"<algorithm>:<hex>"``."""
    keys = (_OF_S3 if _is_of_whole(info) else {}) | ({} if _is_encoded(info) else _OF_GCS)
    for key, (algorithm, n_bytes) in keys.items():
        if key not in info:  # as of most objects of a listing, which may have a million
            continue
        with contextlib.suppress(ValueError):  # no base64; S3 writes "...=-3" for 3 parts
            value = base64.b64decode(str(info[key]), validate=True)
            if len(value) == n_bytes:
                yield f"{algorithm}:{value.hex()}"


def _is_of_whole(info: Mapping[str, Any]) -> bool:
    """Whether checksums of S3 are of all bytes: those of parts may be combined into another one."""
    kind, came_in_parts = info.get("ChecksumType"), "-" in str(info.get("ETag", ""))
    return kind == "FULL_OBJECT" or (kind is None and not came_in_parts)


def _is_encoded(info: Mapping[str, Any]) -> bool:
    """Whether Cloud Storage keeps other bytes than it hands out, as of what it keeps by gzip."""
    return info.get("contentEncoding") not in {None, "", "identity"}
