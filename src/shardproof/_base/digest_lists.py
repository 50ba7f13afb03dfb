"""Lists of digests in a directory: which there are, what they state, and how one is written.

Names are relative to the directory of the list. ``x.tar.sha256`` may have the digest of ``x.tar``
alone. `digest_dialects` has what each tool writes.
"""

import errno
import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from shardproof._base import digest_dialects, json
from shardproof._base.digest_dialects import LONG, MOST_WRONG, NAME, SHORT, SUMS, parsed
from shardproof._base.messages import quoted
from shardproof._base.names import opened
from shardproof._base.opening import is_directory, is_never_a_shard, is_there, listed_in
from shardproof.errors import ManifestError, ManifestPermissionError

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
_HEAD_BYTES = 4096

_SUMS_NAME = re.compile(
    rf"(?:.*[^a-z])?(?:{LONG}|{SHORT}){SUMS}(?:\.txt)?", re.IGNORECASE | re.DOTALL
)
_ANY_NAME = re.compile(r"(?:.*[._-])?checksums?(?:\.txt)?", re.IGNORECASE | re.DOTALL)
_ENDS = (".txt", "sum", "sums", *digest_dialects.FAMILIES, "224", "256", "384", "512")
_MAYBE_ENDS = (".txt", ".asc", ".list", "sum", "sums", "hash", "hashes", "digests", "manifest")
_TELLING = re.compile("sum|hash|sha|md5|digest|manifest", re.IGNORECASE)
_MOST_OPENED = 20  # files, to find out whether they are lists
_MOST_ASKED, _MOST_DEEP = 64, 32  # names and folders, to find out what is in front of all names
_FRONT = re.compile(r"[U^]$|/|[A-Za-z]:/")
_TORN = re.compile(rb"\s*[0-9A-Fa-f]*\s*")


class Remarks(NamedTuple):
    """What is to be said of lists: an error for each line that is no entry; how some were taken."""

    wrong: list[ManifestError]
    notes: list[str]


def is_list(name: str) -> bool:
    """Whether a file has the name of such a list: ``SHA256SUMS``, ``sha256sum.txt``, ``x.md5``."""
    may_be = name.lower().endswith(_ENDS)  # a directory may have a million other names
    return may_be and bool(NAME.fullmatch(name) or _ANY_NAME.fullmatch(name))


def lists_in(root: str) -> list[str]:
    """Return the names of the lists in a directory, sorted."""
    # ``SHA256SUMS`` and ``md5sum.txt`` are lists, whatever is in them. What has another name of a
    # list, such as ``x.md5``, is one if it states digests and speaks of this directory: it names
    # something in it, or no other file is there. Of further texts half of the lines have to.
    there, ends = {*listed_in(root)}, _ENDS + _MAYBE_ENDS
    ended = sorted(name for name in there if name.lower().endswith(ends))
    shown = [name for name in ended if not is_never_a_shard(name)]
    called = [name for name in shown if is_list(name) and not is_directory(f"{root}/{name}")]
    others = there.difference(called)
    found = [name for name in called if _SUMS_NAME.fullmatch(name) or _speaks(root, name, others)]
    maybe = [each for each in shown if each.lower().endswith(_MAYBE_ENDS) and not is_list(each)]
    maybe.sort(key=lambda name: _TELLING.search(name) is None)
    return sorted(found + [name for name in maybe[:_MOST_OPENED] if _is_full(root, name)])


def _is_full(root: str, name: str) -> bool:
    """Whether half the lines at the beginning of a file are entries, one of them of a file here."""
    with opened(name, root) as file:
        head = b"" if file is None else file(_HEAD_BYTES)
    whole = head if len(head) < _HEAD_BYTES else head[: head.rfind(b"\n")]
    entries, problems = parsed(whole, name)
    n_lines = sum(not digest_dialects.is_comment(line) for line in digest_dialects.lines_of(whole))
    if 2 * len({*entries}) < n_lines or len(problems) > 1 + len(entries) // 4:
        return False
    names = {file for file, _ in placed(root, entries, name, [])} - {name}
    return any(_may_be_here(root, file) for file in names)


def _speaks(root: str, name: str, others: Collection[str]) -> bool:
    try:
        data = json.read_bytes(root, name, max_bytes=_MAX_BYTES)
    except ManifestPermissionError:
        raise
    except ManifestError:  # a link to nothing, no file, or more than any list has
        return False
    told = NAME.fullmatch(name)
    if _TORN.fullmatch(data) and told and told["stem"] in others:
        return True  # its digest alone; or a part of it, which is told when it is read
    entries, problems = parsed(data, name)
    entries = placed(root, entries, name, [])
    named = {file.partition("/")[0] for file, _ in entries if len(problems) <= MOST_WRONG}
    is_alone = bool(named) and all(is_directory(f"{root}/{other}") for other in others)
    return is_alone or not named.isdisjoint(others)


def read(
    root: str, name: str, remarks: Remarks | None = None, *, at: str | None = None
) -> list[tuple[str, str]]:
    """Return what a list in a directory states of it, or of what is ``at`` a path; see `parse`."""
    path = os.path.join(root, name)
    data = json.read_bytes(root, name, max_bytes=_MAX_BYTES)
    entries = parse(data, path=path, remarks=remarks, at=at or os.path.dirname(path))
    if not entries:
        raise ManifestError("expected a digest and a name, found none", path=path)
    return entries


def parse(
    data: bytes, *, path: str, remarks: Remarks | None = None, at: str | None = None
) -> list[tuple[str, str]]:
    """Return what the text of a list states, by names of files ``at`` a path; or raise a line."""
    entries, problems = parsed(data, path)
    if problems:
        if remarks is None or not entries or len(problems) > MOST_WRONG:
            raise problems[0]
        remarks.wrong.extend(problems)
    if remarks is not None and digest_dialects.is_signed(data):
        remarks.notes.append(f"{quoted(path)}: its signature by PGP was not verified")
    return placed(at, entries, path, remarks.notes if remarks else []) if at else entries


def placed(
    root: str, entries: list[tuple[str, str]], path: str, notes: list[str]
) -> list[tuple[str, str]]:
    """Return entries by names of files here, where the list has those of another place."""
    # Only where nothing has such a name, and half of all are here without what is in front.
    names = [*dict.fromkeys(name for name, _ in entries)]
    some = names[:: 1 + len(names) // _MOST_ASKED]
    if any(_may_be_here(root, name) for name in some):
        return entries
    n_here = {
        front: sum(_may_be_here(root, _without(front, name)) for name in some)
        for front in _fronts(names, os.path.basename(root))
    }
    front = max(n_here, key=n_here.__getitem__, default="")
    if not front or 2 * n_here[front] < len(some):
        return entries
    notes.append(f"{quoted(path)}: its names are taken without the {quoted(front)} before them")
    mark = f"{front}-" if front in "U^" else ""  # shasum read a text, or bits, and not its bytes
    return [(_without(front, name), mark + text) for name, text in entries]


def _fronts(names: Sequence[str], folder: str) -> Iterator[str]:
    """Yield what may be in front of all names: marks of shasum, another machine's folders, ours."""
    first = names[0].replace("\\", "/").split("/")[:-1][:_MOST_DEEP] if names else []
    for front in ("U", "^", *("/".join(first[: n + 1]) + "/" for n in range(len(first)))):
        is_meant = _FRONT.match(front) or front.endswith(f"{folder}/")
        if is_meant and all(name.replace("\\", "/").startswith(front) for name in names):
            yield front


def _without(front: str, name: str) -> str:
    return name.replace("\\", "/").removeprefix(front)


def _may_be_here(root: str, name: str) -> bool:
    try:
        return not name.startswith("/") and is_there(f"{root}/{name}")
    except OSError as error:  # nobody could look, mostly
        return error.errno != errno.ENAMETOOLONG


def format_line(name: str, digest: str) -> bytes:
    """Return the line of a list, with its end."""
    encoded = os.fsencode(name)
    escaped = encoded.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    mark = b"\\" if escaped != encoded else b""
    return mark + digest.partition(":")[2].encode() + b"  " + escaped + b"\n"


def stated_by(root: str, names: Collection[str], remarks: Remarks) -> dict[str, list[str]]:
    """Return what lists state of each file but themselves and those called as `SHA256SUMS` is."""
    stated: dict[str, list[str]] = {}
    for name in names:
        for file, text in read(root, name, remarks):
            if file != name and not (file in names and _SUMS_NAME.fullmatch(file)):
                stated.setdefault(file, []).append(text)
    return stated
