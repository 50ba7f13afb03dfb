"""Signed models: the digests of the statement that was signed."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from shardproof import ManifestError, validate
from shardproof.formats.lists.model_signing import FORMAT

FILES = {"model.bin": b"weights" * 100, "sub/config.json": b"{}", "empty": b""}


def resource(name: str, data: bytes, algorithm: str = "sha256") -> dict[str, str]:
    digest = hashlib.new(algorithm, data).hexdigest()
    return {"name": name, "digest": digest, "algorithm": algorithm}


def write(path: Path, resources: list[dict[str, str]] | None = None, **predicate: Any) -> Path:
    for name, data in FILES.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    listed = [resource(*item) for item in FILES.items()] if resources is None else resources
    ignored = {"ignore_paths": [".git", "model.sig", "notes"]}
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {"serialization": ignored, "resources": listed, **predicate},
    }
    write_payload(path, base64.b64encode(json.dumps(statement).encode()).decode())
    return path


def write_payload(path: Path, payload: str) -> None:
    bundle = {"mediaType": "x", "verificationMaterial": {}, "dsseEnvelope": {"payload": payload}}
    (path / "model.sig").write_text(json.dumps(bundle, separators=(",", ":")))


def found_in(path: Path, level: str = "complete") -> list[tuple[str, str]]:
    return [(each.kind.value, each.path.name) for each in validate(path, level=level).findings]


@pytest.mark.parametrize("algorithm", ["sha256", "blake2b"])
def test_a_whole_model(tmp_path, algorithm: str) -> None:
    write(tmp_path, [resource(*item, algorithm) for item in FILES.items()])
    report = validate(tmp_path, level="valid")
    assert (report.format, report.ok, report.n_proven) == ("model-signing", True, 3)
    (tmp_path / "model.bin").write_bytes(b"Weights" * 100)
    assert found_in(tmp_path, "valid") == [("digest", "model.bin")]


def test_a_file_that_was_not_signed(tmp_path) -> None:
    write(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.txt").touch()
    assert found_in(tmp_path) == []
    (tmp_path / "stray").touch()
    assert found_in(tmp_path) == [("structure", "stray")]


def test_a_file_that_was_signed_in_parts(tmp_path) -> None:
    parts = [resource("model.bin:0:400", b""), resource("model.bin:400:700", b"")]
    write(tmp_path, [*parts, resource("sub/config.json", b"{}"), resource("empty", b"")])
    report = validate(tmp_path, level="valid")
    assert (report.n_files, [path.name for path in report.unproven]) == (3, ["model.bin"])


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", ""])
def test_hostile_names(tmp_path, name: str) -> None:
    with pytest.raises(ManifestError):
        validate(write(tmp_path, [resource(name, b"")]))


@pytest.mark.parametrize("payload", ["", "!", "e30=", base64.b64encode(b"\xff").decode(), "é"])
def test_payloads_that_are_none(tmp_path, payload: str) -> None:
    write_payload(tmp_path, payload)
    assert FORMAT.recognizes(str(tmp_path))
    with pytest.raises(ManifestError, match=r"model\.sig"):
        validate(tmp_path)


def test_an_empty_list_is_refused(tmp_path) -> None:
    with pytest.raises(ManifestError, match="lists no file"):
        validate(write(tmp_path, []))


def test_another_signature_is_not_claimed(tmp_path) -> None:
    (tmp_path / "model.sig").write_bytes(b"-----BEGIN PGP SIGNATURE-----")
    assert not FORMAT.recognizes(str(tmp_path))
