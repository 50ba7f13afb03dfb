r"""Lists of digests, as ``sha256sum`` and its kin write and check them.

A line is ``<hex>  <name>``, or ``<hex> *<name>`` of a file read as binary, or in BSD's form
``SHA256 (<name>) = <hex>``. A backslash before a line says that ``\n``, ``\r`` and ``\\`` in its
name are escaped (https://www.gnu.org/software/coreutils/manual/html_node/md5sum-invocation.html).
Names are relative to the directory of the list. ``x.tar.sha256`` may have the digest of ``x.tar``
alone.
"""

import codecs
import os
import re
from collections.abc import Collection

from shardproof._base import json
from shardproof._base.messages import quoted
from shardproof._base.opening import is_directory, is_never_a_shard
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
MOST_WRONG = 50
"""What has more lines that are none is no list."""

_SHA = {40: "sha1", 56: "sha224", 64: "sha256", 96: "sha384", 128: "sha512"}
_XXH = {8: "xxh32", 16: "xxh64", 32: "xxh3-128"}
_BLAKE2B = {40: "blake2b-160", 64: "blake2b-256", 96: "blake2b-384", 128: "blake2b"}
_ANY = {32: "md5"} | _SHA
_FAMILIES = {
    **{name: {n: name} for n, name in _ANY.items()},
    **{f"sha3{bits}": {bits // 4: f"sha3-{bits}"} for bits in (224, 256, 384, 512)},
    **dict.fromkeys(("b2", "blake2b"), _BLAKE2B),
    **{f"blake2b{4 * n}": {n: name} for n, name in _BLAKE2B.items()},
    **{name: {64: "blake3"} for name in ("b3", "blake3")},
    "blake2s": {64: "blake2s"},
    "sha": _SHA,
    "xxh": _XXH,
    "xxh128": {32: "xxh3-128"},
    "xxh3": {16: "xxh3-64", 32: "xxh3-128"},
    "xxh32": {8: "xxh32"},
    "xxh64": {16: "xxh64"},
}
"""By what the name of a list or a line says, and by the number of digits."""

_SHORT = "b2|b3|sha|xxh"
_LONG = "|".join(sorted(_FAMILIES.keys() - {*_SHORT.split("|")}, reverse=True))
_SUMS = r"(?:[_-]?(?:check)?sums?)"
_NAME = re.compile(
    rf"(?:(?P<stem>.*)[._-])?(?:(?P<long>{_LONG}){_SUMS}?|(?P<short>{_SHORT}){_SUMS}"
    rf"|(?<=\.)(?P<end>{_SHORT}))(?:\.txt)?",
    re.IGNORECASE | re.DOTALL,
)
_SUMS_NAME = re.compile(
    rf"(?:.*[^a-z])?(?:{_LONG}|{_SHORT}){_SUMS}(?:\.txt)?", re.IGNORECASE | re.DOTALL
)
_ANY_NAME = re.compile(r"(?:.*[._-])?checksums?(?:\.txt)?", re.IGNORECASE | re.DOTALL)
_ENDS = (".txt", "sum", "sums", *_FAMILIES)
_PLAIN = re.compile(
    r"[ \t]*(\\?)(?:XXH3_)?([0-9A-Fa-f]{8,128})(?:  | \*|[ \t](?=\S))(.+)", re.DOTALL
)
_TAGGED = re.compile(
    r"[ \t]*(\\?)([A-Za-z0-9-]{2,12}) ?\((.+)\) ?= ?([0-9A-Fa-f]{8,128})", re.DOTALL
)
_DIGITS = re.compile(r"[0-9A-Fa-f]{12}")
_TORN = re.compile(rb"\s*[0-9A-Fa-f]*\s*")
_BARE = re.compile(r"\s*([0-9A-Fa-f]{8,128})\s*")
_PLAIN_LINES = re.compile(r"^([0-9a-f]{8,128}) [ *](?:\./)?([^\n]+)$", re.MULTILINE)
_ESCAPED = re.compile(r"\\[nr\\]")
_ESCAPES = {"\\n": "\n", "\\r": "\r", "\\\\": "\\"}


def is_list(name: str) -> bool:
    """Whether a file has the name of such a list: ``SHA256SUMS``, ``sha256sum.txt``, ``x.md5``."""
    may_be = name.lower().endswith(_ENDS)  # a directory may have a million other names
    return may_be and bool(_NAME.fullmatch(name) or _ANY_NAME.fullmatch(name))


def lists_in(root: str) -> list[str]:
    """Return the names of the lists in a directory, sorted."""
    # ``SHA256SUMS`` and ``md5sum.txt`` are lists, whatever is in them. What has another name of a
    # list, such as ``x.md5``, is one if it states digests and speaks of this directory: it names
    # something in it, or no other file is there.
    there = {*os.listdir(root)}
    shown = [name for name in sorted(filter(is_list, there)) if not is_never_a_shard(name)]
    called = [name for name in shown if not is_directory(f"{root}/{name}")]
    others = there.difference(called)
    return [name for name in called if _SUMS_NAME.fullmatch(name) or _speaks(root, name, others)]


def _speaks(root: str, name: str, others: Collection[str]) -> bool:
    try:
        data = json.read_bytes(root, name, max_bytes=_MAX_BYTES)
    except ManifestPermissionError:
        raise
    except ManifestError:  # a link to nothing, no file, or more than any list has
        return False
    told = _NAME.fullmatch(name)
    if _TORN.fullmatch(data) and told and told["stem"] in others:
        return True  # its digest alone; or a part of it, which is told when it is read
    entries, problems = parsed(data, name)
    named = {file.partition("/")[0] for file, _ in entries if len(problems) <= MOST_WRONG}
    is_alone = bool(named) and all(is_directory(f"{root}/{other}") for other in others)
    return is_alone or not named.isdisjoint(others)


def read(root: str, name: str, wrong: list[ManifestError] | None = None) -> list[tuple[str, str]]:
    """Return names and digests of a list in a directory, in its order, as `parse` does."""
    path = os.path.join(root, name)
    entries = parse(json.read_bytes(root, name, max_bytes=_MAX_BYTES), path=path, wrong=wrong)
    if not entries:
        raise ManifestError("expected a digest and a name, found none", path=path)
    return entries


def parse(
    data: bytes, *, path: str, wrong: list[ManifestError] | None = None
) -> list[tuple[str, str]]:
    """Return what the text of a list states; ``wrong`` gets an error for each line that is none."""
    entries, problems = parsed(data, path)
    if problems:
        if wrong is None or not entries or len(problems) > MOST_WRONG:
            raise problems[0]
        wrong += problems
    return entries


def parsed(data: bytes, path: str) -> tuple[list[tuple[str, str]], list[ManifestError]]:
    """Return what the lines of a text state, whatever it is, and errors of some that are none."""
    # What is before the first entry and has no digits of a digest is a title; what is after the
    # text that PGP signed is its signature.
    told = _NAME.fullmatch(os.path.basename(path))
    family = _FAMILIES[(told["long"] or told["short"] or told["end"]).lower()] if told else _ANY
    stem = told and told["stem"]
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = data.decode(*(("utf-16", "replace") if is_wide else ("utf-8", "surrogateescape")))
    text = text.removeprefix("\ufeff").partition("\n-----BEGIN PGP SIGNATURE-----")[0]
    bare = _BARE.fullmatch(text)
    if bare and stem and len(bare[1]) in family:
        return [(stem, f"{family[len(bare[1])]}:{bare[1].lower()}")], []
    entries, problems = _all_plain(text, family), list[ManifestError]()
    for number, line in enumerate(() if entries else text.split("\n"), 1):
        if (entry := _entry(line.removesuffix("\r"), family)) is not None:
            if not entries:
                problems = [each for each in problems if _DIGITS.search(each.problem)]
            entries.append(entry)
        elif line.strip() and not line.startswith("#") and len(problems) <= MOST_WRONG:
            problem = f"expected a digest and a name, found {quoted(line)}"
            problems.append(ManifestError(problem, path=path, line=number))
    if stem:  # of which the standard input was hashed
        entries = [(stem if name == "-" else name, text) for name, text in entries]
    return entries, problems


def _all_plain(text: str, family: dict[int, str]) -> list[tuple[str, str]]:
    """Return the same of a text of nothing but plain lines, as nearly every one; else nothing."""
    if "\r" in text or not text.endswith("\n"):
        return []
    found = _PLAIN_LINES.findall(text)
    if len(found) != text.count("\n"):
        return []
    algorithm = family.get(len(found[0][0]))
    if algorithm is None or any(len(digits) != len(found[0][0]) for digits, _ in found):
        return []
    return [(name, f"{algorithm}:{digits}") for digits, name in found]


def _entry(line: str, family: dict[int, str]) -> tuple[str, str] | None:
    if (plain := _PLAIN.fullmatch(line)) is not None:
        escaped, digits, name = plain.groups()
        algorithm = family.get(len(digits))
        if "XXH3_" in line[:8] and len(digits) == 16:
            algorithm = "xxh3-64"
    elif (tagged := _TAGGED.fullmatch(line)) is not None:
        escaped, tag, name, digits = tagged.groups()
        # Of BLAKE2b the tag says how many bits, if they are fewer than 512.
        called = tag.lower().replace("sha2-", "sha").replace("-", "")
        family = _FAMILIES.get("blake2b512" if called == "blake2b" else called, {})
        algorithm = family.get(len(digits))
    else:
        return None
    if algorithm is None:
        return None
    if escaped:
        name = _ESCAPED.sub(lambda found: _ESCAPES[found[0]], name)
    return name.removeprefix("./"), f"{algorithm}:{digits.lower()}"


def format_line(name: str, digest: str) -> bytes:
    """Return the line of a list, with its end."""
    encoded = os.fsencode(name)
    escaped = encoded.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    mark = b"\\" if escaped != encoded else b""
    return mark + digest.partition(":")[2].encode() + b"  " + escaped + b"\n"


def stated_by(
    root: str, names: Collection[str], wrong: list[ManifestError] | None = None
) -> dict[str, list[str]]:
    """Return what lists state of each file but themselves and those called as `SHA256SUMS` is."""
    stated: dict[str, list[str]] = {}
    for name in names:
        for file, text in read(root, name, wrong):
            if file != name and not (file in names and _SUMS_NAME.fullmatch(file)):
                stated.setdefault(file, []).append(text)
    return stated
