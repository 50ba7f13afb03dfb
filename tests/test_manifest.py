"""A manifest refuses promises that can't be kept, all in one error."""

from pathlib import Path

import pytest

from shardproof import ManifestError
from shardproof.manifest import Manifest, PromisedFile


def manifest(*files: PromisedFile) -> Manifest:
    return Manifest(Path("/d"), Path("/d/index.json"), "test", files)


def test_a_good_promise() -> None:
    files = (PromisedFile("a"), PromisedFile("b", 0), PromisedFile("c", 0, "md5:" + "0" * 32))

    assert manifest(*files).files == files


def test_every_name_that_is_refused_is_listed() -> None:
    with pytest.raises(ManifestError) as caught:
        manifest(PromisedFile("../a"), PromisedFile("ok"), PromisedFile("/b"))

    assert str(caught.value) == (
        "Could not read the manifest at '/d/index.json': names that are refused (2):\n"
        "  - '../a' (entry 0): it has an empty, '.' or '..' part\n"
        "  - '/b' (entry 2): it is absolute"
    )


def test_impossible_sizes_and_digests_are_listed() -> None:
    with pytest.raises(ManifestError) as caught:
        manifest(PromisedFile("a", -1), PromisedFile("b", 1, "sha256:xyz"), PromisedFile("c", 1))

    assert "promises that can't be kept (2):" in str(caught.value)
    assert "'a': size -1" in str(caught.value)
    assert "'b': expected 64 hexadecimal digits" in str(caught.value)
