"""Write docs/formats.md: what each format proves, and which level sees which damage.

::

    python -m tests.formats.damage_table docs/formats.md

Every file that a golden directory promises is damaged in every way, with several seeds; a cell has
the first level that saw all of it.
"""

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from shardproof import ManifestError, formats, validate
from shardproof.testing import DamageKind, damaged, without_root_override
from tests.goldens import GOLDENS, Golden

LEVELS = ("present", "complete", "valid")
SEEDS = range(3)
POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:" + b"0123456789abcdef" * 4 + b"\nsize 3087467144\n"
)
PAGE = b"<!DOCTYPE html><title>Sign in</title>" + b"x" * 2000


def put(data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(data)

    return write


def become_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


BY_HAND: dict[str, Callable[[Path], None]] = {
    "empty": put(b""),
    "chmod 0": lambda path: path.chmod(0),
    "a directory": become_a_directory,
    "LFS pointer": put(POINTER),
    "web page": put(PAGE),
}
KINDS = [*BY_HAND, *map(str, DamageKind)]


@contextlib.contextmanager
def replaced(path: Path, harm: Callable[[Path], None]) -> Iterator[None]:
    whole, mode = path.read_bytes(), path.stat().st_mode
    try:
        harm(path)
        yield
    finally:
        if path.is_dir():
            path.rmdir()
        path.touch()
        path.chmod(mode)
        path.write_bytes(whole)


def harms(path: Path, kind: str) -> Iterator[contextlib.AbstractContextManager[object]]:
    if kind in BY_HAND:
        yield replaced(path, BY_HAND[kind])
    else:
        yield from (damaged(path, kind, seed) for seed in SEEDS)


def seen(root: Path, kind: str) -> str:
    form = formats.detect(str(root))
    promise = form.read_manifest(str(root))
    worst, n_done = 0, 0
    for file in promise.files:
        path = (promise.root / file.name).resolve()
        for harm in harms(path, kind):
            with contextlib.suppress(ValueError), harm:  # there is nothing to damage so
                n_done += 1
                worst = max(worst, _first_level(root, form.name, kind))
    return "n/a" if not n_done else (*LEVELS, "-")[worst]


def _first_level(root: Path, form: str, kind: str) -> int:
    for number, level in enumerate(LEVELS):
        try:
            if not validate(root, format=form, level=level, strict=kind == "stray").ok:
                return number
        except ManifestError:  # what is damaged is a part of the promise
            return number
    return len(LEVELS)


def row(golden: Golden, place: Path) -> list[str]:
    root = golden.copy(place)
    form = formats.detect(str(root)).name
    name = golden.name if golden.name == form else f"{golden.name} ({form})"
    return [name, *(seen(root, kind) for kind in KINDS)]


def page() -> str:
    with tempfile.TemporaryDirectory() as name, without_root_override():
        return page_of([row(golden, Path(name).resolve()) for golden in GOLDENS])


def page_of(rows: list[list[str]]) -> str:
    return PAGE_TEXT.format(
        n_formats=len(formats.names()),
        formats="\n".join(_lines(TITLES, _format_cells())),
        writers=", ".join(sorted({golden.writer for golden in GOLDENS})),
        damage="\n".join(_lines(["Directory", *KINDS], rows)),
    )


TITLES = [
    *("Format", "What it is", "Manifest", "`complete` verifies", "`valid` verifies"),
    "No level detects",
]


def _format_cells() -> Iterator[list[str]]:
    for form in map(formats.get, formats.names()):
        seen_by = [form.complete, form.valid, form.blind_spots or "-"]
        yield [f"`{form.name}`", form.description, f"`{form.manifest_file}`", *seen_by]


def _lines(titles: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield "|" + "---|" * len(titles)
    yield from (f"| {' | '.join(cells)} |" for cells in rows)


PAGE_TEXT = """\
# Formats

`shardproof validate` detects the format of a directory: by its manifest file, or else by the names
of its shards. If two formats match, or none, name the format: `--format NAME` or
`validate(path, format="NAME")`. `shardproof formats` prints the first table. Other packages add
formats with an entry point of the group `shardproof.formats`.

The {n_formats} formats, and what each [level](validate.md#levels) verifies beyond the level before:

{formats}

You can put a [seal](seal.md), or a list of digests with [the name of one](seal.md), into a
directory of any format. `valid` then verifies all expected files that it lists, and every file
that a seal lists.

## Which level detects which damage

We damaged directories that the real libraries wrote ({writers}). We damaged every expected file in
every way that [the kit](damage.md) knows, and in five more. A cell has the first level that
detected all cases. `-` means that no level detected at least one case, `n/a` that these files can't
be damaged in this way. The check for `stray` uses `--strict`.

{damage}
"""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
