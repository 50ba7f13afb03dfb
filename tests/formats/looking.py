"""What tests of formats ask of a directory, and the archives that several of them hold."""

import functools
import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

from shardproof import Level, formats, validate
from shardproof.checks import check
from shardproof.formats import Format
from shardproof.report import Report
from shardproof.testing import Layout
from shardproof.testing.contracts import FormatContract
from tests.goldens import Golden, golden


def found_in(path: Path, level: Level = "complete") -> list[tuple[str, str]]:
    return [(each.kind.value, each.path.name) for each in validate(path, level=level).findings]


def said_of(path: Path) -> list[tuple[str, str]]:
    return [(each.expected, each.found) for each in validate(path, level="complete").findings]


def of_golden(name: str, to: Path) -> Path:
    return golden(name).copy(to)


@functools.cache
def format_of(golden: Golden) -> str:
    return formats.detect(str(golden.path)).name


def sampled(goldens: Iterable[Golden], sample: Collection[str] = ()) -> list[object]:
    """A parameter each, all but the first of each format, or a sample, for `tox -e exhaustive`."""
    firsts = {format_of(each): each.name for each in reversed([*goldens])}
    marks = dict.fromkeys(sample or firsts.values(), ())
    return [
        pytest.param(each, id=each.name, marks=marks.get(each.name, pytest.mark.exhaustive))
        for each in goldens
    ]


def look(form: Format, path: Path, level: Any = "complete") -> Report:
    return check(form.read_manifest(os.path.realpath(path)), level=level)


def found(form: Format, path: Path, level: Any = "complete") -> list[tuple[str, str, str, str]]:
    manifest = form.read_manifest(os.path.realpath(path))
    findings = check(manifest, level=level).findings
    names = [os.path.relpath(each.path, manifest.root) for each in findings]
    return [
        (each.kind.value, name, each.expected, each.found)
        for each, name in zip(findings, names, strict=True)
    ]


def named(form: Format, path: Path, level: Any = "complete") -> list[tuple[str, str, str, str]]:
    """The same, with the name of the file at first."""
    each = found(form, path, level)
    return [(os.path.basename(name), kind, *said) for kind, name, *said in each]


def contract(
    of: Format, manifest: str, write: Callable[[int, Path], object], shards: str
) -> type[FormatContract]:
    class Contract(FormatContract):
        manifest_name = manifest

        @pytest.fixture
        def form(self) -> Format:
            return of

        def write_dir(self, value: Layout, base: Path) -> Path:
            write(value.n_shards, base)
            return base

        def shard_files(self, path: Path) -> list[Path]:
            return sorted(path.glob(shards))

    return Contract


def put(data: bytes, at: int, number: int) -> bytes:
    return data[:at] + number.to_bytes(4, "little") + data[at + 4 :]


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def archive(n_samples: int, n_bytes: int = 3000, kinds: tuple[str, ...] = ("jpg", "cls")) -> bytes:
    """A tar archive as WebDataset's writer makes it: a time of a member is no whole number."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w|") as stream:
        for name in (f"{i:06d}.{kind}" for i in range(n_samples) for kind in kinds):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = n_bytes, 1e9 + 0.5
            stream.addfile(info, io.BytesIO(os.urandom(n_bytes)))
    return file.getvalue()
