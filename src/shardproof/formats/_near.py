"""Which files of a directory speak for a format, and what a directory of no format is near to."""

import fnmatch
import os
from collections.abc import Iterable, Sequence

from shardproof._base.messages import shown
from shardproof._base.opening import is_there
from shardproof.formats._format import Format

_MOST_NAMES = 10_000
_ANYBODYS = {"*.json", "*.txt", "*.lock"}  # speak for no format
_PACKED = {f"*.{end}" for end in ("brotli", "bz2", "crc", "gz", "gzip", "xz", "zst", "zstd")}


def evidence(form: Format, path: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the marks of a format that are there, and the names that fit each of its patterns."""
    endings = (f"*{end}" for end in form.suffixes)
    patterns = {*form.further_parts, *endings, *form.near, *form.folders, form.manifest_file}
    found = {mark: [mark] for mark in form.marks if is_there(os.path.join(path, mark))}
    patterns = patterns.difference(_ANYBODYS, form.marks)
    found |= {each: fnmatch.filter(names[:_MOST_NAMES], each) for each in sorted(patterns)}
    return {each: fitting for each, fitting in found.items() if fitting}


def described(found: dict[str, list[str]]) -> str:
    """Return evidence in words: a name, or one of several."""
    return ", ".join(shown(fit[0]) + " and others" * (len(fit) > 1) for fit in found.values())


def nearest(path: str, names: Sequence[str], formats: Iterable[Format]) -> list[str]:
    """Return for which formats most of a directory speaks, and what each of them lacks."""
    found = [(form, seen) for form in formats if {*(seen := evidence(form, path, names))} - _PACKED]
    found.sort(key=lambda each: -sum(map(len, each[1].values())))
    return [
        f"{form.name}: {described(seen)}, but "
        + ("with other content" if form.manifest_file in seen else f"no {form.manifest_file}")
        for form, seen in found[:3]
    ]
