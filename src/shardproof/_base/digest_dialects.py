r"""What a list of digests states, in each dialect that tools write: its bytes become entries.

An entry is the name of a file and what is stated of it: ``sha256:<hex>``, ``size:<bytes>``, or
``crc32:<hex>``, which proves nothing. A backslash before a line says that ``\n``, ``\r`` and ``\\``
in its name are escaped
(https://www.gnu.org/software/coreutils/manual/html_node/md5sum-invocation.html).
"""

import base64
import codecs
import os
import re
from collections.abc import Sequence

from shardproof._base.messages import quoted
from shardproof.errors import ManifestError

MOST_WRONG = 50
"""What has more lines that are none is no list."""

_SHA = {40: "sha1", 56: "sha224", 64: "sha256", 96: "sha384", 128: "sha512"}
_XXH = {8: "xxh32", 16: "xxh64", 32: "xxh3-128"}
_BLAKE2B = {40: "blake2b-160", 64: "blake2b-256", 96: "blake2b-384", 128: "blake2b"}
_SHA3 = {bits // 4: f"sha3-{bits}" for bits in (224, 256, 384, 512)}
_CRC = {8: "crc32"}
_ANY = {32: "md5"} | _SHA
_OTHERS = {"sha512-224": 56, "sha512-256": 64, "sm3": 64, "ripemd160": 40}
_UNKNOWN_HERE = {"whirlpool": 128, "tiger": 48, "crc32c": 8, "gost12-256": 64, "gost12-512": 128}
FAMILIES: dict[str, dict[int, str]] = {
    **{name: {n: name} for n, name in _ANY.items()},
    **{name.replace("-", ""): {n: name} for n, name in _SHA3.items()},
    **{name.replace("-", ""): {n: name} for name, n in (_OTHERS | _UNKNOWN_HERE).items()},
    **dict.fromkeys(("b2", "blake2b"), _BLAKE2B),
    **{f"blake2b{4 * n}": {n: name} for n, name in _BLAKE2B.items()},
    **{name: {64: "blake3"} for name in ("b3", "blake3")},
    **{name: {64: "blake2s"} for name in ("blake2s", "blake2s256")},
    "cksum": {},
    "hashdeep": {32: "md5", 40: "sha1", 48: "tiger", 64: "sha256", 128: "whirlpool"},
    **dict.fromkeys(("crc32", "sfv"), _CRC),
    "rmd160": {40: "ripemd160"},
    "sha": _SHA,
    "sha3": _SHA3,
    "xxh": _XXH,
    "xxh128": {32: "xxh3-128"},
    "xxh3": {16: "xxh3-64", 32: "xxh3-128"},
    "xxh32": {8: "xxh32"},
    "xxh64": {16: "xxh64"},
}
"""By what the name of a list or a line says, without marks between its letters and digits."""

SHORT = "b2|b3|sha|xxh"
LONG = "|".join(
    re.sub(r"^(sha3|sha512|blake2[bs])(?=\d{3}$)", r"\1[-_]?", name)
    for name in sorted(FAMILIES.keys() - {*SHORT.split("|"), *_UNKNOWN_HERE}, reverse=True)
)
SUMS = r"(?:[_-]?(?:check)?sums?)"
NAME = re.compile(
    rf"(?:(?P<stem>.*)[._-])?(?:(?P<long>{LONG}){SUMS}?|(?P<short>{SHORT}){SUMS}"
    rf"|(?<=\.)(?P<end>{SHORT}))(?:\.txt)?",
    re.IGNORECASE | re.DOTALL,
)
"""The name of a list that tells its algorithm."""

_HEX, _64 = "[0-9A-Fa-f]", "[A-Za-z0-9+/_-]"
_VALUE = (
    rf"(?P<digits>{_HEX}{{8,128}}|(?:{_HEX}{{2}}:){{15,63}}{_HEX}{{2}}"  # openssl dgst -c
    rf"|(?:{_64}{{4}}){{1,21}}{_64}{{2}}(?:==|{_64}=))"  # rclone, cksum --base64
)
# The patterns of lines are compiled when they are first used: few processes read such lists.
_PLAIN = (
    # sha256deep -z states a size before it, sha256deep -t a time after it
    rf"(?s)[ \t]*(?:(?P<size>\d{{1,19}})  )?(?P<mark>\\?)(?P<tag>XXH3_)?{_VALUE}"
    r"(?: \d{4}(?::\d\d){5})?(?:  | \*|[ \t](?=\S))(?P<name>.+)"
)
_TAGGED = (
    r"(?s)[ \t]*(?P<mark>\\?)(?P<tag>[A-Za-z0-9/_-]{2,16}) {0,4}\((?P<name>.+)\) ?= ?" + _VALUE
)
# Of PowerShell; and of rhash with several algorithms.
_GET_FILE_HASH = rf"(?P<tag>MD5|SHA\d+) +(?P<digits>{_HEX}{{32,128}}) +(?P<name>\S.*)"
_CKSUM = r"(?P<check>\d{1,10}) (?P<size>\d{1,19}) (?P<name>.+)"
_GAP = r"[ \t]{1,9}"
_NAME_FIRST = (
    rf"(?P<name>\S.*?)(?<![:=])(?P<digits>(?:{_GAP}{_HEX}{{8,128}}){{0,7}}{_GAP}{_HEX}{{32,128}})"
)
_LINES = (_CKSUM, _PLAIN, _TAGGED, _GET_FILE_HASH, _NAME_FIRST)
_HASHDEEP = rf"(?P<size>\d{{1,19}})(?P<digits>(?:,{_HEX}{{32,128}}){{1,9}}),(?P<name>.+)"
_SFV = rf"(?P<name>\S.*?)[ \t]{{1,64}}(?P<digits>{_HEX}{{8}})"
_FORMAT_LIST = re.compile(r"^Algorithm +: (.+)\nHash +: (.+)\nPath +: (.+)$", re.MULTILINE)
_DIGITS = re.compile(rf"{_HEX}{{12}}")
_BARE = re.compile(rf"\s*({_HEX}{{8,128}})\s*")
_PLAIN_LINES = re.compile(r"^([0-9a-f]{8,128}) [ *](?:\./)?([^\n]+)$", re.MULTILINE)
_ESCAPED = re.compile(r"\\[nr\\]")
_ESCAPES = {"\\n": "\n", "\\r": "\r", "\\\\": "\\"}
_SIGNED, _SIGNATURE = "-----BEGIN PGP SIGNED MESSAGE-----", "\n-----BEGIN PGP SIGNATURE-----"


def lines_of(data: bytes) -> list[str]:
    """Return the lines of a list, without what a signer, PowerShell or Windows put around them."""
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = data.decode(*(("utf-16", "replace") if is_wide else ("utf-8", "surrogateescape")))
    text = text.removeprefix("\ufeff")
    if text.endswith("\0") and text.strip("\0"):  # sha256sum -z
        return text.split("\0")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if text.startswith(_SIGNED):
        begin = 1 + next((n for n, line in enumerate(lines) if not line), len(lines))
        lines = [""] * begin + [line.removeprefix("- ") for line in lines[begin:]]
    text = "\n".join(lines).partition(_SIGNATURE)[0]
    return _FORMAT_LIST.sub(r"\1 \2 \3", text).split("\n")


def is_signed(data: bytes) -> bool:
    """Whether a text is signed by PGP, with the signature behind it."""
    return data.removeprefix(codecs.BOM_UTF8).startswith(_SIGNED.encode())


def is_comment(line: str) -> bool:
    """Whether a line of a list says nothing of files."""
    return not line.strip() or line.startswith(("#", ";", "%%%%"))


def parsed(data: bytes, path: str) -> tuple[list[tuple[str, str]], list[ManifestError]]:
    """Return what the lines of a text state, whatever it is, and errors of some that are none."""
    # What is before the first entry and has no digits of a digest is a title.
    told = NAME.fullmatch(os.path.basename(path))
    called = told and _plainly(told["long"] or told["short"] or told["end"])
    family, stem = FAMILIES[called] if called else _ANY, told and told["stem"]
    problems, patterns = list[ManifestError](), [*_LINES]
    if data.startswith(b"%%%% HASHDEEP"):
        family, patterns = FAMILIES["hashdeep"], [_HASHDEEP]
    elif data.startswith(b";") or called == "sfv":
        family, patterns = _CRC | family, [_SFV, *_LINES]
    entries = _all_plain(data, family)
    lines = [] if entries else lines_of(data)
    bare = _BARE.fullmatch("\n".join(lines)) if len(lines) < MOST_WRONG else None
    if bare and stem and len(bare[1]) in family:
        return [(stem, f"{family[len(bare[1])]}:{bare[1].lower()}")], []
    for number, line in enumerate(lines, 1):
        if found := _of_line(line, family, patterns):
            if not entries:
                problems = [each for each in problems if _DIGITS.search(each.problem)]
            entries += found
        elif not is_comment(line) and len(problems) <= MOST_WRONG:
            problem = f"expected a digest and a name, found {quoted(line)}"
            problems.append(ManifestError(problem, path=path, line=number))
    if is_signed(data) and _SIGNATURE.encode() not in data:
        problems.append(ManifestError("it was cut before the signature of PGP", path=path))
    if stem:  # of which the standard input was hashed
        entries = [(stem if name in {"-", "stdin"} else name, text) for name, text in entries]
    return entries, problems


def _plainly(name: str) -> str:
    return re.sub("[-_/]", "", name.lower())


def _all_plain(data: bytes, family: dict[int, str]) -> list[tuple[str, str]]:
    """Return the same of a text of nothing but plain lines, as nearly every one; else nothing."""
    if b"\r" in data or not data.endswith(b"\n") or b"\0" in data:
        return []
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    found = _PLAIN_LINES.findall(text)
    if len(found) != text.count("\n"):
        return []
    algorithm = family.get(len(found[0][0]))
    if algorithm is None or any(len(digits) != len(found[0][0]) for digits, _ in found):
        return []
    return [(name, f"{algorithm}:{digits}") for digits, name in found]


def _of_line(line: str, family: dict[int, str], patterns: Sequence[str]) -> list[tuple[str, str]]:
    """Return what a line states; nothing where it is of no dialect, or of no algorithm."""
    found = next(filter(None, (re.fullmatch(pattern, line) for pattern in patterns)), None)
    if found is None:
        return []
    told = found.groupdict()
    name, (size, check, tag) = found["name"], map(told.get, ("size", "check", "tag"))
    texts = [f"size:{int(size)}"] if size else []
    if tag:
        # Of BLAKE2b the tag says how many bits, if they are fewer than 512.
        called = _plainly(tag.lower().replace("sha2-", "sha"))
        family = FAMILIES.get("blake2b512" if called == "blake2b" else called, {})
    if check:  # that of POSIX has 32 bits; those of sum(1) have 16, and count blocks
        is_one = family in (_ANY, {}) and 2**16 <= int(check) < 2**32
        texts.append(f"cksum:{int(check):08x}" if is_one else "")
    values = [*map(_hex, re.findall(r"[^ \t,]+", told.get("digits", "")))]
    family = family if len(values) < 2 else _CRC | family
    texts += [f"{family[len(each)]}:{each}" if len(each) in family else "" for each in values]
    if told.get("mark"):
        name = _ESCAPED.sub(lambda escape: _ESCAPES[escape[0]], name)
    return [] if "" in texts else [(name.removeprefix("./"), text) for text in texts]


def _hex(digits: str) -> str:
    if digits.endswith("="):
        return base64.b64decode(digits.replace("-", "+").replace("_", "/")).hex()
    return digits.replace(":", "").lower()
