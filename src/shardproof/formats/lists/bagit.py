"""BagIt bags: lists of digests of everything below ``data``, and of the tag files beside it.

https://www.rfc-editor.org/rfc/rfc8493: complete is what has every listed file and lists every
file; valid is what has their digests.
"""

import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from shardproof._base import digest, json
from shardproof._base.messages import quoted
from shardproof._base.opening import files_below, is_directory, is_there, names_in
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.formats._format import Format
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile

__all__ = ["FORMAT"]

_BAGIT, _INFO, _PAYLOAD = "bagit.txt", "bag-info.txt", "data"
_LIST = re.compile(r"(?P<tag>tag)?manifest-(?P<algorithm>[a-z0-9]+)\.txt")
_LINE = re.compile(r"(?P<digits>[0-9A-Fa-f]+)[ \t]+\*?(?P<name>.+)")
_ESCAPED = re.compile(r"%(0[AaDd]|25)")
_OXUM = re.compile(r"^Payload-Oxum[ \t]*:[ \t]*(\d{1,18})\.(\d{1,18})[ \t]*$", re.MULTILINE)
_MAX_BYTES = 256 * 2**20


class _BagList(NamedTuple):
    """One list: names, and the digests that it states."""

    name: str
    digests: Mapping[str, str]

    @property
    def is_of_payload(self) -> bool:
        return not self.name.startswith("tag")


def _recognizes(path: str) -> bool:
    return is_there(os.path.join(path, _BAGIT))


def _read_manifest(path: str) -> Manifest:
    json.read_bytes(path, _BAGIT, max_bytes=_MAX_BYTES)  # without it, it is no bag
    names = [name for name in names_in(path) if _LIST.fullmatch(name)]
    lists = [_BagList(name, _digests(path, name)) for name in names]
    payload = [each for each in lists if each.is_of_payload]
    if not payload:
        problem = "expected a list of the payload, such as manifest-sha512.txt, found none"
        raise ManifestNotFoundError(problem, path=path)
    stated: dict[str, list[str]] = {}
    for each in lists:
        for name, text in each.digests.items():
            stated.setdefault(name, []).append(text)
    return Manifest(
        root=Path(path),
        path=Path(path, payload[0].name),
        format=FORMAT.name,
        files=[PromisedFile.by_digest(name, digest.best(texts)) for name, texts in stated.items()],
        contradictions=functools.partial(_contradictions, path, payload, stated),
    )


def _digests(path: str, name: str) -> dict[str, str]:
    found = _LIST.fullmatch(name)
    algorithm = found["algorithm"] if found else ""
    text = json.read_bytes(path, name, max_bytes=_MAX_BYTES).decode(errors="surrogateescape")
    digests = {}
    for number, line in enumerate(text.splitlines(), 1):
        entry = _LINE.fullmatch(line)
        if entry is None and line.strip():
            problem = f"expected a digest and a path, found {quoted(line)}"
            raise ManifestError(problem, path=os.path.join(path, name), line=number)
        if entry is not None:
            file = _ESCAPED.sub(lambda code: chr(int(code[1], 16)), entry["name"])
            digests[file.removeprefix("./")] = f"{algorithm}:{entry['digits'].lower()}"
    return digests


def _contradictions(
    path: str, payload: list[_BagList], stated: Mapping[str, object]
) -> Iterator[Contradiction]:
    folder = os.path.join(path, _PAYLOAD)
    below = files_below(folder, hidden=True) if is_directory(folder) else []
    here = {f"{_PAYLOAD}/{name}" for name in below}
    for name in sorted(here.difference(*[each.digests for each in payload])):
        mismatch = Mismatch(expected="a file that a list has", found="one that none has")
        yield Contradiction(name, mismatch)
    for name in sorted(name for name in stated if name.startswith(f"{_PAYLOAD}/")):
        for each in payload:
            if name not in each.digests:
                expected = f"a line in {each.name}, as in the other lists"
                yield Contradiction(name, Mismatch(expected=expected, found="none"))
    yield from _another_sum(path, here)


def _another_sum(path: str, here: set[str]) -> Iterator[Contradiction]:
    """Yield where the payload has other bytes or files than ``Payload-Oxum`` says."""
    try:
        text = json.read_bytes(path, _INFO, max_bytes=_MAX_BYTES).decode(errors="replace")
    except ManifestError:  # it may be left out
        return
    oxum = _OXUM.search(text)
    if oxum is not None:
        n_bytes = sum(os.stat(os.path.join(path, name)).st_size for name in here)
        if (n_bytes, len(here)) != (int(oxum[1]), int(oxum[2])):
            expected = f"{oxum[1]} bytes in {oxum[2]} files below {_PAYLOAD}"
            mismatch = Mismatch(expected=expected, found=f"{n_bytes} bytes in {len(here)} files")
            yield Contradiction(_INFO, mismatch)


FORMAT = Format(
    name="bagit",
    description="a BagIt bag (RFC 8493)",
    manifest_file="manifest-*.txt",
    beside=(_BAGIT, _INFO, "tagmanifest-*.txt", "fetch.txt"),
    recognizes=_recognizes,
    read_manifest=_read_manifest,
    complete="that every file below `data` is listed, in every list of the payload; bytes and "
    "files as Payload-Oxum says",
    valid="the strongest digest of each file, of the payload and of the tags",
)
