r"""Lists of digests, as ``sha256sum`` and its kin write and check them.

A line is ``<hex>  <name>``, or ``<hex> *<name>`` of a file read as binary, or in BSD's form
``SHA256 (<name>) = <hex>``. A backslash before a line says that ``\n``, ``\r`` and ``\\`` in its
name are escaped (https://www.gnu.org/software/coreutils/manual/html_node/md5sum-invocation.html).
Names are relative to the directory of the list.
"""

import os
import re
from collections.abc import Iterator

from shardproof._base import json
from shardproof._base.messages import quoted
from shardproof._base.opening import mode_of
from shardproof.errors import ManifestError

__all__ = ["NAMES", "format_line", "is_list", "parse", "read", "seals_in"]

NAMES = {
    "sha256": "SHA256SUMS",
    "sha512": "SHA512SUMS",
    "sha384": "SHA384SUMS",
    "sha1": "SHA1SUMS",
    "md5": "MD5SUMS",
    "blake2b": "B2SUMS",
    "blake3": "B3SUMS",
    "xxh3-128": "XXH128SUMS",
    "xxh64": "XXH64SUMS",
}
"""What a list of each algorithm's digests is called."""

_MAX_BYTES = 256 * 2**20
_OF_NAMES = {
    "sha256": "sha256",
    "sha512": "sha512",
    "sha384": "sha384",
    "sha1": "sha1",
    "md5": "md5",
    "b2": "blake2b",
    "blake2b": "blake2b",
    "b3": "blake3",
    "blake3": "blake3",
    "xxh128": "xxh3-128",
    "xxh3": "xxh3-128",
    "xxh64": "xxh64",
}
_NAME = re.compile(
    rf"(?:.*[._-])?(?P<algorithm>{'|'.join(_OF_NAMES)})(?:sums?)?(?:\.txt)?", re.IGNORECASE
)
_ANY_NAME = re.compile(r"(?:.*[._-])?checksums?(?:\.txt)?", re.IGNORECASE)
_BY_DIGITS = {32: "md5", 40: "sha1", 64: "sha256", 96: "sha384", 128: "sha512"}
_PLAIN = re.compile(rb"(\\?)([0-9A-Fa-f]{16,128}) [ *](.+)")
_TAGGED = re.compile(rb"(\\?)([A-Za-z0-9-]{2,12}) \((.+)\) = ([0-9A-Fa-f]{16,128})")
_ESCAPES = {b"\\n": b"\n", b"\\r": b"\r", b"\\\\": b"\\"}


def is_list(name: str) -> bool:
    """Whether a file has the name of such a list: ``SHA256SUMS``, ``sha256sum.txt``, ``x.md5``."""
    return bool(_NAME.fullmatch(name) or _ANY_NAME.fullmatch(name))


def read(root: str, name: str) -> list[tuple[str, str]]:
    """Return names and digests of a list in a directory, in its order.

    Raises:
        ManifestError: It is not there, or can't be read; each line that is wrong is told.
        OSError: The file system failed.
    """
    data = json.read_bytes(root, name, max_bytes=_MAX_BYTES)
    return parse(data, path=os.path.join(root, name))


def parse(data: bytes, *, path: str) -> list[tuple[str, str]]:
    """Return names and digests of the text of a list.

    Args:
        data: The text.
        path: Where it is from; its name tells the algorithm, where it says one.

    Raises:
        ManifestError: A line is no line of a list.
    """
    told = _NAME.fullmatch(os.path.basename(path))
    algorithm = _OF_NAMES[told["algorithm"].lower()] if told else None
    entries = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        text = line.rstrip(b"\r")
        if not text or text.startswith(b"#"):
            continue
        entry = _entry(text, algorithm)
        if entry is None:
            problem = f"expected a digest and a name, found {quoted(text)}"
            raise ManifestError(problem, path=path, line=number)
        entries.append(entry)
    return entries


def _entry(line: bytes, algorithm: str | None) -> tuple[str, str] | None:
    if (plain := _PLAIN.fullmatch(line)) is not None:
        escaped, digits, name = plain.groups()
        algorithm = algorithm or _BY_DIGITS.get(len(digits))
    elif (tagged := _TAGGED.fullmatch(line)) is not None:
        escaped, tag, name, digits = tagged.groups()
        algorithm = _OF_NAMES.get(tag.decode().lower().replace("-", ""))
    else:
        return None
    if algorithm is None:
        return None
    if escaped:
        name = re.sub(rb"\\[nr\\]", lambda found: _ESCAPES[found[0]], name)
    text = name.removeprefix(b"./").decode(errors="surrogateescape")
    return text, f"{algorithm}:{digits.decode().lower()}"


def format_line(name: str, digest: str) -> bytes:
    """Return the line of a list, with its end."""
    encoded = os.fsencode(name)
    escaped = encoded.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    mark = b"\\" if escaped != encoded else b""
    return mark + digest.partition(":")[2].encode() + b"  " + escaped + b"\n"


def seals_in(root: str) -> Iterator[tuple[str, str]]:
    """Yield names and digests of those lists in a directory that have the names of `NAMES`.

    Raises:
        ManifestError: One can't be read.
        OSError: The file system failed.
    """
    for name in NAMES.values():
        if mode_of(os.path.join(root, name)):
            yield from read(root, name)
