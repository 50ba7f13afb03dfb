"""BagIt bags: lists of digests of everything below ``data``, and of the tag files beside it.

https://www.rfc-editor.org/rfc/rfc8493: complete is what has every listed file and lists every
file; valid is what has their digests.
"""

import functools
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from shardproof._base import digest, digest_dialects, json
from shardproof._base.messages import quoted
from shardproof._base.names import entries_of, refusals, spelled
from shardproof._base.opening import (
    files_below,
    is_directory,
    is_there,
    listed_in,
    names_in,
    status_of,
)
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.manifest import Contradiction, ExpectedFile, Manifest, Mismatch, RefusedEntry

_BAGIT, _INFO, _PAYLOAD = "bagit.txt", "bag-info.txt", "data"
_LIST = re.compile(r"(?:tag)?manifest-([A-Za-z0-9_-]+)\.txt")
_BEGUN = re.compile(r"manifest-(?:md5|sha\d+)\.txt")
_VERSION = re.compile(r"^BagIt-Version[ \t]*:[ \t]*(\d{1,4})\.(\d{1,4})[ \t]*\r?$", re.MULTILINE)
_ENCODING = re.compile(r"^Tag-File-Character-Encoding[ \t]*:[ \t]*(\S{1,40})", re.MULTILINE)
_ENCODINGS = {
    **{name: name for name in ("utf-16", "utf-16be", "utf-16le", "iso-8859-1", "windows-1252")},
    "us-ascii": "utf-8-sig",
    "utf-8": "utf-8-sig",  # a mark at the beginning is wrong, and common
}
_LINE = r"(?P<digits>[0-9A-Fa-f]{%s})[ \t]+\*?(?P<name>.+)"
_LINE_END = re.compile(r"\r\n|\n|\r")
_ESCAPED = re.compile(r"%(0[AaDd]|25)")
_ESCAPED_BEFORE_1 = re.compile(r"%(0[AaDd])")  # not percent signs
_OXUM = re.compile(r"^Payload-Oxum[ \t]*:[ \t]*(\d{1,18})\.(\d{1,18})[ \t]*$", re.MULTILINE)
_FIRST = (1, 0)  # of RFC 8493
_MAX_BYTES = 256 * 2**20
_MAX_TAG_BYTES = 2**20


class _BagKind(NamedTuple):
    """What ``bagit.txt`` declares, or why that can't be known: then as few laws as can be hold."""

    version: tuple[int, int] = (0, 0)
    encoding: str = "utf-8-sig"
    problem: Mismatch | None = None


class _BagList(NamedTuple):
    """One list: names, the digests that it states, and what is wrong with single lines."""

    name: str
    digests: Mapping[str, str | None]  # None of what no file can be looked for by
    wrong: Sequence[ManifestError]


def recognizes(path: str) -> bool:
    """Whether there is ``bagit.txt``, or what is written before it."""
    names = listed_in(path)
    return _BAGIT in names or (_PAYLOAD in names and any(map(_BEGUN.fullmatch, names)))


def read_manifest(path: str) -> Manifest:
    if not is_there(os.path.join(path, _BAGIT)):
        problem = "only what is written before is there: bag it again, or give --format digests"
        raise ManifestNotFoundError(problem, path=os.path.join(path, _BAGIT))
    kind = _kind_of(path)
    found = filter(None, map(_LIST.fullmatch, names_in(path)))
    lists = [_read_list(path, each[0], each[1], kind) for each in found]
    payload = [each for each in lists if not each.name.startswith("tag")]
    if not payload:
        problem = "expected a list of the payload, such as manifest-sha512.txt, found none"
        raise ManifestNotFoundError(problem, path=path)
    stated: dict[str, list[str]] = {}
    for name, text in (item for each in lists for item in each.digests.items()):
        if text is not None:
            stated.setdefault(name, []).append(text)
    return Manifest.at(
        path,
        payload[0].name,
        "bagit",
        [ExpectedFile.by_digest(name, *digest.provable(texts)) for name, texts in stated.items()],
        contradictions=functools.partial(_contradictions, path, kind, payload, stated),
        damaged=[RefusedEntry.of(error, path) for each in lists for error in each.wrong],
    )


def _kind_of(path: str) -> _BagKind:
    text = json.read_bytes(path, _BAGIT, max_bytes=_MAX_TAG_BYTES).decode("utf-8-sig", "replace")
    version, encoding = _VERSION.search(text), _ENCODING.search(text)
    if version is None or encoding is None:
        expected = "BagIt-Version, and a version, and Tag-File-Character-Encoding"
        return _BagKind(problem=Mismatch(expected, quoted(text)))
    name = encoding[1].lower()
    if name not in _ENCODINGS:
        return _BagKind(problem=Mismatch(f"an encoding: {', '.join(_ENCODINGS)}", quoted(name)))
    return _BagKind((int(version[1]), int(version[2])), _ENCODINGS[name])


def _read_list(path: str, name: str, algorithm: str, kind: _BagKind) -> _BagList:
    algorithm = algorithm.lower().replace("_", "-")
    errors = "surrogateescape" if kind.encoding.startswith("utf-8") else "replace"
    text = json.read_bytes(path, name, max_bytes=_MAX_BYTES).decode(kind.encoding, errors)
    where, digests, wrong = os.path.join(path, name), dict[str, str | None](), list[ManifestError]()
    n_digits = len(digest.of_nothing(algorithm))  # 0 where it is not known here
    entry_of = re.compile(_LINE % (n_digits or "1,")).fullmatch
    escaped = _ESCAPED if kind.version >= _FIRST else _ESCAPED_BEFORE_1
    for number, line in enumerate(_LINE_END.split(text), 1):
        if not line.strip() or line.startswith("#"):
            continue
        entry = entry_of(line)
        if entry is None:
            expected = f"a digest ({n_digits or 'some'} digits) and a path"
            problem = f"expected {expected}, found {quoted(line, 160)}"
            wrong.append(ManifestError(problem, path=where, line=number))
            if len(wrong) > digest_dialects.MOST_WRONG:
                raise wrong[0]
            continue
        file = escaped.sub(lambda code: chr(int(code[1], 16)), entry["name"]).removeprefix("./")
        stated = f"{algorithm}:{entry['digits'].lower()}"
        if digests.setdefault(file, stated) != stated:
            problem = f"{quoted(file)} has another digest in a line before"
            raise ManifestError(problem, path=where, line=number)
    names = [*digests]
    refused = refusals(names)
    for entry_no, file, reason in refused[: digest_dialects.MOST_WRONG]:
        wrong.append(ManifestError(f"{quoted(file)} (entry {entry_no}): {reason}", path=where))
    digests.update(dict.fromkeys((names[each] for each in entries_of(refused, names)), None))
    if wrong and not any(digests.values()):
        raise wrong[0]
    return _BagList(name, digests, wrong)


def _contradictions(
    path: str, kind: _BagKind, payload: list[_BagList], stated: Mapping[str, object]
) -> Iterator[Contradiction]:
    if kind.problem is not None:
        yield Contradiction(_BAGIT, *kind.problem)
    folder = os.path.join(path, _PAYLOAD)
    below = files_below(folder, hidden=True) if is_directory(folder) else []
    listed = {*itertools.chain.from_iterable(each.digests for each in payload)}
    here = {*spelled([f"{_PAYLOAD}/{name}" for name in below], listed, path)}
    for name in sorted(here - listed):
        yield Contradiction(name, "a file that a list has", "one that none has")
    for each in payload if kind.version >= _FIRST else ():
        for name in stated:
            if name not in each.digests and name.startswith(f"{_PAYLOAD}/"):
                yield Contradiction(name, f"a line in {each.name}, as in the other lists", "none")
    try:
        text = json.read_bytes(path, _INFO, max_bytes=_MAX_TAG_BYTES).decode(errors="replace")
    except ManifestError:  # it may be left out
        return
    oxum = _OXUM.search(text)
    if oxum is not None:
        found = filter(None, (status_of(os.path.join(path, name)) for name in here))
        n_bytes = sum(status.st_size for status in found)
        if (n_bytes, len(here)) != (int(oxum[1]), int(oxum[2])):
            expected = f"{oxum[1]} bytes in {oxum[2]} files below {_PAYLOAD}"
            yield Contradiction(_INFO, expected, f"{n_bytes} bytes in {len(here)} files")
