"""Croissant: metadata of a data set in JSON-LD, whose file objects state digests and sizes.

Only files that lie beside the metadata are promised: other addresses, and files within archives,
are not here. A digest that is a placeholder proves nothing
(https://docs.mlcommons.org/croissant/docs/croissant-spec.html).
"""

import base64
import binascii
import contextlib
import os
import re
import stat
from collections import Counter
from typing import Any

import msgspec

from shardproof._base import digest, json
from shardproof._base.names import refusals, spelled
from shardproof._base.opening import names_in, status_of
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.manifest import ExpectedFile, Manifest

_NAMES = ("croissant.json", "metadata.json")
_MARK = b"mlcommons.org/croissant"
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_EXACT_SIZE = re.compile(r"(\d{1,18})(?: ?B(?:ytes)?)?", re.IGNORECASE)
_DIGEST_BYTES = {"sha256": 32, "md5": 16}
_PLACEHOLDER = re.compile(r"0*|.*(?:://|\s).*|(?=.*[^0-9A-Fa-f]).{,16}", re.DOTALL)
"""An address, a word or some, zeros: the Hub states ``https://.../croissant/issues/80``."""


class _FileObject(msgspec.Struct):
    """One entry of ``distribution``: a file, or, without an address, a set of files."""

    kind: Any = msgspec.field(default=None, name="@type")
    address: str | None = msgspec.field(default=None, name="contentUrl")
    size: str | int | float | None = msgspec.field(default=None, name="contentSize")
    sha256: str | None = None
    md5: str | None = None
    within: Any = msgspec.field(default=None, name="containedIn")

    @property
    def is_one(self) -> bool:
        return bool(self.address) and not self.within and str(self.kind).endswith("FileObject")


class _CroissantMetadata(msgspec.Struct):
    distribution: list[_FileObject] | _FileObject


def recognizes(path: str) -> bool:
    """Whether there are metadata that promise something here: those of most data sets do not."""
    name = _metadata_in(path)
    try:
        return name is not None and bool(_files(path, name))
    except ManifestError:  # to read it says what is wrong
        return True


def _metadata_in(path: str) -> str | None:
    """Return the name of the file that has the metadata."""
    for name in filter(names_in(path).__contains__, _NAMES):
        with contextlib.suppress(ManifestError):  # another program's, or one that can't be read
            if _MARK in json.read_bytes(path, name, max_bytes=json.MAX_BYTES):
                return name
    return None


def read_manifest(path: str) -> Manifest:
    name = _metadata_in(path)
    if name is None:
        where = next((each for each in _NAMES if each in names_in(path)), _NAMES[0])
        json.read(path, where, _CroissantMetadata)  # which may say why
        problem = f"expected metadata of Croissant ({_MARK.decode()}), found others"
        raise ManifestNotFoundError(problem, path=os.path.join(path, where))
    files = _files(path, name)
    if not files:
        raise ManifestError("it has no file that lies beside it", path=os.path.join(path, name))
    return Manifest.at(path, name, "croissant", files)


def _files(path: str, name: str) -> list[ExpectedFile]:
    found = json.read(path, name, _CroissantMetadata).distribution
    entries = [each for each in (found if isinstance(found, list) else [found]) if each.is_one]
    n_called, files = Counter(map(_name, entries)), []
    here = {*spelled(names_in(path), n_called, path)}
    for entry in entries:
        name = _name(entry)
        is_elsewhere = _ADDRESS.match(entry.address or "") is not None
        # Of two that are called the same it can't be told which one a copy is.
        if is_elsewhere and (name not in here or n_called[name] > 1):
            continue
        status = None if refusals([name]) else status_of(os.path.join(path, name))
        if status is not None and stat.S_ISDIR(status.st_mode):  # what is in it is not told
            continue
        digests = filter(None, (_digest("sha256", entry.sha256), _digest("md5", entry.md5)))
        made = ExpectedFile.by_digest(name, *digest.provable(digests))
        size = _EXACT_SIZE.fullmatch(str(entry.size))
        files.append(made if size is None else msgspec.structs.replace(made, size=int(size[1])))
    return list(dict.fromkeys(files))  # one may be in several entries, which say the same of it


def _name(entry: _FileObject) -> str:
    """Return what a file is called here; of one that is elsewhere the end of its address."""
    address = entry.address or ""
    if _ADDRESS.match(address):
        return re.split(r"[?#]", address)[0].rpartition("/")[2]
    return address.removeprefix("./")


def _digest(algorithm: str, text: str | None) -> str | None:
    """Return a digest that is stated in hexadecimal digits or in base64; None for a placeholder."""
    if text is None or _PLACEHOLDER.fullmatch(text):
        return None
    with contextlib.suppress(binascii.Error, ValueError):
        value = base64.b64decode(text, validate=True)
        if len(value) == _DIGEST_BYTES[algorithm]:
            return f"{algorithm}:{value.hex()}"
    return f"{algorithm}:{text}"
