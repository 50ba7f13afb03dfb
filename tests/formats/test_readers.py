"""A probe is given "read so many bytes at": it asks no more of it, whatever the file lies on."""

import os
from pathlib import Path

import pytest

from shardproof import formats
from shardproof._base.opening import Descriptor, Read, read_at
from shardproof.manifest import ExpectedFile, Manifest
from tests.goldens import GOLDENS, Golden

CUTS = {"whole": lambda size: size, "cut": lambda size: size - 1, "half": lambda size: size // 2}


def asked(manifest: Manifest, file: ExpectedFile, read: Read, size: int) -> list[object]:
    laws = [law for law in (manifest.probe, manifest.prove) if law is not None]
    return [law(file, read, size) for law in laws]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
def test_of_bytes_from_anywhere_it_says_what_it_says_of_a_descriptor(
    golden: Golden, cut: str, tmp_path: Path
) -> None:
    path = golden.copy(tmp_path)
    manifest = formats.detect(str(path)).read_manifest(str(path))
    n_asked = 0
    for file in manifest.files:
        if (size := CUTS[cut](os.stat(manifest.root / file.name).st_size)) > 0:
            os.truncate(os.path.realpath(manifest.root / file.name), size)
            with open(manifest.root / file.name, "rb") as opened:
                fd = opened.fileno()
                there = asked(manifest, file, lambda n, at=0, fd=fd: read_at(fd, n, at), size)
                assert there == asked(manifest, file, Descriptor(fd), size), file.name
            n_asked += bool(there)
    assert n_asked or (manifest.probe or manifest.prove) is None
