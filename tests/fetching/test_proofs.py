"""A proof is about one file as it was; what can't be read as one proves nothing."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from shardproof.fetching.cache import _proofs
from shardproof.fetching.cache._proofs import (
    MAX_PROOF_BYTES,
    CacheProof,
    ProofFiles,
    digests_of,
    proof_of,
)
from shardproof.fetching.sources._source import RemoteFile

SHA, OTHER_SHA = "sha256:" + "a" * 64, "sha256:" + "b" * 64
MD5 = "md5:" + "c" * 32
NAME = "train/0.bin"


@pytest.fixture
def proofs(tmp_path) -> ProofFiles:
    (tmp_path / "proofs").mkdir()
    return ProofFiles(str(tmp_path / "proofs"))


@pytest.fixture
def shard(tmp_path) -> Path:
    path = tmp_path / "0.bin"
    path.write_bytes(b"1234")
    return path


@pytest.fixture
def proof(shard) -> CacheProof:
    file = RemoteFile(NAME, size=4, identity="v1", digest=SHA)
    return proof_of(file, shard.stat(), digests_of(SHA, MD5, None), placed=True)


class TestWhatAProofSays:
    """Against what a source tells now: yes, no, or that the file must be hashed."""

    @pytest.mark.parametrize(
        ("size", "identity", "digest", "fits"),
        [
            (4, "v1", None, True),
            (4, None, SHA.replace("a" * 64, "A" * 64), True),
            (4, None, MD5, True),
            (None, None, None, True),
            (4, "v2", SHA, True),  # equal bytes by another name
            (4, "v2", None, False),
            (5, "v1", SHA, False),
            (4, "v1", OTHER_SHA, False),  # what is asked for is a digest
            (4, "v1", "sha1:" + "a" * 40, None),
            (5, "v1", "sha1:" + "a" * 40, False),
        ],
    )
    def test_of_all(self, proof, size, identity, digest, fits) -> None:
        assert proof.fits(RemoteFile(NAME, size, identity, digest)) is fits

    @pytest.mark.parametrize(
        ("identity", "digest", "fits"), [("v1", None, False), (None, SHA, None), (None, None, True)]
    )
    def test_of_nothing_but_the_size(self, shard, identity, digest, fits) -> None:
        proof = proof_of(RemoteFile(NAME), shard.stat(), (), placed=True)
        assert proof.fits(RemoteFile(NAME, 4, identity, digest)) is fits


class TestOnDisk:
    def test_two_files_of_one_shard_have_each_their_own(self, proofs, proof, shard) -> None:
        """Of two that fetch one shard at once, neither takes the other's file for unknown."""
        proofs.write(proof)
        shard.with_name("other").write_bytes(b"1234")
        other = proof_of(RemoteFile(NAME), shard.with_name("other").stat(), (), placed=True)
        proofs.write(other)
        assert proofs.read(NAME, shard.stat()) == proof
        assert sorted(proofs.placed().values()) == [4, 4]
        proofs.forget(other)
        assert [*proofs.placed()] == [os.path.basename(proofs.path_of(proof))]

    def test_an_identity_that_is_absurdly_long_is_not_kept(self, proofs, shard) -> None:
        file = RemoteFile(NAME, identity="x" * 10**6)
        proof = proof_of(file, shard.stat(), (), placed=True)
        proofs.write(proof)
        assert proofs.read(NAME, shard.stat()) == proof
        assert not proof.fits(file)


def fields(proof: CacheProof, **changes: object) -> bytes:
    return json.dumps(msgspec.to_builtins(proof) | changes).encode()


DAMAGES = {
    "empty": lambda _: b"",
    "cut": lambda proof: fields(proof)[:-9],
    "huge": lambda proof: fields(proof) + b" " * MAX_PROOF_BYTES,
    "nested": lambda _: b"[" * 60_000,
    "a key twice": lambda proof: fields(proof)[:-1] + b', "placed": true}',
    "the name of another shard": lambda proof: fields(proof, name="train/1.bin"),
    "a name that leads out": lambda proof: fields(proof, name="../0.bin"),
    "a name of the cache": lambda proof: fields(proof, name=".shardproof/x"),
    "another size": lambda proof: fields(proof, size=5),
    "another time": lambda proof: fields(proof, mtime_ns=0),
    "another inode": lambda proof: fields(proof, inode=proof.inode + 1),
    "a digest that is none": lambda proof: fields(proof, digests=["sha256:x"]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_proves_nothing(proofs, proof, shard, damage) -> None:
    proofs.write(proof)
    Path(proofs.path_of(proof)).write_bytes(fields(proof))
    assert proofs.read(NAME, shard.stat()) == proof, "the control"
    Path(proofs.path_of(proof)).write_bytes(DAMAGES[damage](proof))
    assert proofs.read(NAME, shard.stat()) is None
    assert list(proofs.all()) == []


@pytest.mark.parametrize(
    "make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("../outside")]
)
def test_what_is_no_file_proves_nothing(proofs, proof, shard, tmp_path, make) -> None:
    (tmp_path / "outside").write_bytes(fields(proof))
    make(Path(proofs.path_of(proof)))
    assert proofs.read(NAME, shard.stat()) is None
    assert list(proofs.all()) == []


def test_two_shards_of_one_key_are_two(proofs, proof, shard, monkeypatch) -> None:
    monkeypatch.setattr(_proofs, "key_of", lambda _: "0" * 16)
    proofs.write(proof)
    assert proofs.read(NAME, shard.stat()) == proof
    assert proofs.read("train/1.bin", shard.stat()) is None
