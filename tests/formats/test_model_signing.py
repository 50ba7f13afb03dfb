"""Signed models: the digests of the statement that was signed."""

import base64
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof import ManifestError, seal, validate
from shardproof.formats.lists import MODEL_SIGNING as FORMAT
from shardproof.testing.strategies import hostile_json
from tests.formats.looking import contract, found_in
from tests.helpers.drawing import examples

FILES = {"model.bin": b"weights" * 100, "sub/config.json": b"{}", "empty": b""}


HOW = {"method": "files", "hash_type": "sha256", "allow_symlinks": False}
STATEMENT = {
    "_type": "https://in-toto.io/Statement/v1",
    "predicateType": "https://model_signing/signature/v1.0",
}


def resource(name: str, data: bytes) -> dict[str, str]:
    return {"name": name, "digest": hashlib.sha256(data).hexdigest(), "algorithm": "sha256"}


def write(path: Path, resources: list[dict[str, str]] | None = None, **predicate: Any) -> Path:
    for name, data in FILES.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    listed = [resource(*item) for item in FILES.items()] if resources is None else resources
    algorithm = listed[0]["algorithm"] if listed else "sha256"
    how = HOW | {"ignore_paths": [".git", "model.sig", "notes"], "hash_type": algorithm}
    write_statement(
        path, STATEMENT | stated({"serialization": how, "resources": listed} | predicate)
    )
    return path


def stated(predicate: dict[str, Any]) -> dict[str, Any]:
    digests = b"".join(bytes.fromhex(each["digest"]) for each in predicate["resources"])
    subject = {"name": "model", "digest": {"sha256": hashlib.sha256(digests).hexdigest()}}
    return {"predicate": predicate, "subject": [subject]}


def write_statement(path: Path, statement: dict[str, Any]) -> None:
    write_payload(path, base64.b64encode(json.dumps(statement).encode()).decode())


def write_payload(path: Path, payload: str) -> None:
    envelope = {"payload": payload, "payloadType": "application/vnd.in-toto+json"}
    bundle = {"mediaType": "x", "verificationMaterial": {}, "dsseEnvelope": envelope}
    (path / "model.sig").write_text(json.dumps(bundle, separators=(",", ":")))


def test_a_file_that_was_not_signed(tmp_path) -> None:
    write(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.txt").touch()
    assert found_in(tmp_path) == []
    (tmp_path / "stray").touch()
    assert found_in(tmp_path) == [("structure", "stray")]


IN_PARTS = HOW | {"method": "shards", "shard_size": 300.0, "ignore_paths": ["model.sig"]}


class TestInParts:
    @pytest.mark.parametrize(
        "spans",
        [
            *([""], [":0"], [":-1:4"], [":1:4"], [":0:0"], [":0:4", ":5:9"], [":0:4", ":3:9"]),
            *([":0:4", ":0:4"], [":0:300", ":300:601"], [":0:200", ":200:500"]),
            *([":999999999999999998:999999999999999999"], ["/../../x:0:4"]),
        ],
    )
    def test_parts_that_are_none(self, tmp_path, spans: list[str]) -> None:
        names = [f"model.bin{span}" for span in spans]
        listed = [resource(name, b"") | {"algorithm": "sha256-sharded-300"} for name in names]
        with pytest.raises(ManifestError, match=r"model\.sig"):
            validate(write(tmp_path, listed, serialization=IN_PARTS))

    def test_a_digest_that_is_none(self, tmp_path) -> None:
        listed = [{"name": "model.bin:0:4", "algorithm": "sha256-sharded-300", "digest": "00"}]
        with pytest.raises(ManifestError, match="expected 64 hexadecimal digits"):
            validate(write(tmp_path, listed, serialization=IN_PARTS))

    def test_a_name_like_a_part_is_a_name(self, tmp_path) -> None:
        (tmp_path / "model:0:1").write_bytes(b"a")
        write(tmp_path, [*map(resource, FILES, FILES.values()), resource("model:0:1", b"a")])
        assert validate(tmp_path, level="valid").n_proven == 4


def test_without_blake3_its_digests_prove_nothing(tmp_path, monkeypatch) -> None:
    import blake3

    listed = [
        {"name": name, "algorithm": "blake3", "digest": blake3.blake3(data).hexdigest()}
        for name, data in FILES.items()
    ]
    write(tmp_path, listed)
    assert validate(tmp_path, level="valid").n_proven == 3
    monkeypatch.setitem(sys.modules, "blake3", None)
    (tmp_path / "empty").write_text("x")
    report = validate(tmp_path, level="valid")
    assert (report.ok, len(report.unproven)) == (True, 3)


@pytest.mark.parametrize("payload", ["", "!", "e30=", base64.b64encode(b"\xff").decode(), "é"])
def test_payloads_that_are_none(tmp_path, payload: str) -> None:
    write_payload(tmp_path, payload)
    assert FORMAT.recognizes(str(tmp_path))
    with pytest.raises(ManifestError, match=r"model\.sig"):
        validate(tmp_path)


def test_another_signature_is_not_claimed(tmp_path) -> None:
    (tmp_path / "model.sig").write_bytes(b"-----BEGIN PGP SIGNATURE-----")
    assert not FORMAT.recognizes(str(tmp_path))


def too_large(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**26 + 1)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (too_large, "expected at most 67108864 bytes, found 67108865"),
        (os.mkfifo, "expected a regular file, found a FIFO"),
    ],
)
def test_a_bundle_that_is_not_read_is_told_as_such(tmp_path, make: Any, problem: str) -> None:
    """It may be whole: that no format knows the directory would be wrong."""
    make(tmp_path / "model.sig")
    with pytest.raises(ManifestError, match=problem):
        validate(tmp_path)


def write_of_one_part(n_files: int, base: Path) -> None:
    """Of files in one part each, so that their sizes are known."""
    base.mkdir()
    listed = []
    for number in range(n_files):
        data = b"weights" * (number + 1)
        (base / f"{number}.bin").write_bytes(data)
        about = resource(f"{number}.bin:0:{len(data)}", data)
        listed.append(about | {"algorithm": "sha256-sharded-300"})
    write_statement(base, STATEMENT | stated({"serialization": IN_PARTS, "resources": listed}))


class TestFormat(contract(FORMAT, "model.sig", write_of_one_part, "*.bin")):
    def _renamed(self, root: Path):
        names = [shard.name for shard in self.shard_files(root)]
        text = (root / "model.sig").read_text()
        payload = json.loads(text)["dsseEnvelope"]["payload"]
        statement = base64.b64decode(payload).decode()

        def renamed(others) -> str:
            told = statement
            for name, other in zip(names, others, strict=False):
                told = told.replace(json.dumps(name)[:-1] + ":", json.dumps(other)[:-1] + ":")
            return text.replace(payload, base64.b64encode(told.encode()).decode())

        return renamed


@examples(200)
@given(st.data())
def test_hostile_statements_are_refused(tmp_path_factory, data) -> None:
    path = tmp_path_factory.mktemp("x")
    document = STATEMENT | stated({"resources": [resource("a", b"a")], "serialization": HOW})
    text = data.draw(hostile_json(document))
    write_payload(path, base64.b64encode(text).decode())
    with pytest.raises(ManifestError, match=r"model\.sig"):
        FORMAT.read_manifest(str(path))


def test_so_many_names_are_left_out_as_no_signer_leaves_out(tmp_path) -> None:
    how = HOW | {"ignore_paths": [f"{number}" for number in range(100_001)]}
    with pytest.raises(ManifestError, match=r"ignore_paths.* length <= 100000"):
        validate(write(tmp_path, serialization=how))


def test_files_that_others_keep_beside_a_model(tmp_path) -> None:
    write(tmp_path)
    for name in (".cache/x", ".git/HEAD", ".DS_Store"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder").symlink_to("sub")
    assert found_in(tmp_path) == []
    seal(tmp_path)
    assert found_in(tmp_path, "valid") == []
