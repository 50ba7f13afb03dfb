"""Which laws a file has by its name, among files of all kinds."""

import pytest

from shardproof.manifest import ExpectedFile
from shardproof.probes import by_name
from tests.probes.probing import asked

SHA256, OF_GIT = f"sha256:{'a' * 64}", f"git-sha1:{'a' * 40}"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%b\nsize 4096\n" % (b"a" * 64)


def judged(name: str, data: bytes, digest: str | None = None) -> str | None:
    file = ExpectedFile(name=name, digest=digest)
    found = asked(lambda read, size: by_name.probe(file, read, size), data)
    return found and found.found


@pytest.mark.parametrize("name", ["x.safetensors", "x.parquet", "data/X.PARQUET"])
def test_files_of_some_names_have_a_law(name: str) -> None:
    assert by_name.law_of(name) is not None
    assert judged(name, b"no such file" * 10) is not None


@pytest.mark.parametrize(
    "name", ["x", "x.txt", "x.bin", "x.tar", "x.arrow", "x.npy", "safetensors", ".parquet"]
)
def test_others_have_none(name: str) -> None:
    assert by_name.law_of(name) is None
    for data in (b"", b"text", b"<!DOCTYPE html>", b'{"error": "no"}', bytes(2000)):
        assert judged(name, data) is None


@pytest.mark.parametrize("digest", [None, SHA256])
def test_a_pointer_is_in_the_place_of_a_file(digest: str | None) -> None:
    assert judged("x.bin", POINTER, digest) == (
        "Git LFS pointer of 4 096 bytes: run `git lfs pull`"
    )


def test_one_that_is_in_git_may_be_the_file() -> None:
    assert judged("x.bin", POINTER, OF_GIT) is None
