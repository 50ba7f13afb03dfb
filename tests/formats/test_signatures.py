"""Who signed a model: a key is a promise from elsewhere, and counts for the list that it signed."""

import base64
import datetime
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from shardproof import ManifestError, formats, repair, validate
from tests.formats.signed_trees import encoded, encoded_by_0_2, pem
from tests.goldens import GOLDENS, Golden
from tests.helpers.commands import run

PUBLIC_KEY = pem(ec.derive_private_key(18, ec.SECP256R1())).decode()
"""Of the key that signs the golden directories."""

SIGNED = [golden for golden in GOLDENS if golden.name.startswith("model-signing")]


@pytest.fixture(params=SIGNED, ids=lambda golden: golden.name)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    golden: Golden = request.param
    return golden.copy(tmp_path)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "signer.pub"
    path.write_text(PUBLIC_KEY)
    return path


def change_statement(model: Path, change: Callable[[dict[str, Any]], None]) -> None:
    bundle = json.loads((model / "model.sig").read_text())
    statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    change(statement)
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    bundle["dsseEnvelope"]["payload"] = payload
    (model / "model.sig").write_text(json.dumps(bundle))


def sign(model: Path, private: ec.EllipticCurvePrivateKey, texts: Callable[[bytes], bytes]) -> None:
    bundle = json.loads((model / "model.sig").read_text())
    text = texts(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    algorithm = {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}
    signature = private.sign(text, ec.ECDSA(algorithm[private.key_size]))
    bundle["dsseEnvelope"]["signatures"] = [
        {"sig": base64.b64encode(each).decode(), "keyid": ""} for each in (signature, b"another")
    ]
    (model / "model.sig").write_text(json.dumps(bundle))


@pytest.mark.parametrize("level", ["present", "complete", "valid"])
def test_what_the_library_signed(model: Path, key: Path, level: Any) -> None:
    report = validate(model, level=level, against=key, strict=True)
    assert report.ok
    assert report.format == "model-signing"
    assert level != "valid" or report.n_proven == 2
    (model / "model.bin").write_bytes(b"Weights" * 50)
    kinds = [finding.kind.value for finding in validate(model, level=level, against=key).findings]
    assert kinds == (["digest"] if level == "valid" else [])


def test_a_list_that_was_changed_and_is_consistent(model: Path, key: Path) -> None:
    """Who changes a file can change its digest, and that of all digests; not the signature."""

    def forge(statement: dict[str, Any]) -> None:
        resources = statement["predicate"]["resources"]
        data = (model / "model.bin").read_bytes()
        for resource in resources:
            name, _, span = resource["name"].partition(":")
            if name == "model.bin":
                begin, end = map(int, span.split(":")) if span else (0, len(data))
                resource["digest"] = hashlib.sha256(data[begin:end]).hexdigest()
        digests = b"".join(bytes.fromhex(each["digest"]) for each in resources)
        statement["subject"][0]["digest"]["sha256"] = hashlib.sha256(digests).hexdigest()

    (model / "model.bin").write_bytes(b"Weights" * 50)
    change_statement(model, forge)
    assert validate(model, level="valid").ok
    for level in ("present", "valid"):
        with pytest.raises(ManifestError, match="expected a signature by the key of"):
            validate(model, level=level, against=key)


def test_links_that_lead_out_are_followed_if_asked(model: Path, key: Path) -> None:
    """Signed ones; what was not signed is a finding even so, and a folder outside is."""
    outside = model.parent / "out"
    outside.mkdir()
    (outside / "run.py").write_text("evil")
    (model / "model.bin").rename(outside / "model.bin")
    (model / "model.bin").symlink_to(outside / "model.bin")
    assert found_in(model, key, "valid") == {"model.bin": "not-regular"}
    assert found_in(model, key, "valid", links="follow") == {}
    (model / "code").symlink_to("../out")
    (model / "run.py").symlink_to("../out/run.py")
    found = found_in(model, key, "valid", links="follow")
    assert found == {"code": "stray", "run.py": "stray"}


def test_a_digest_that_nothing_here_computes_is_no_proof(
    model: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key it is told as unproven; who has one asks for a proof."""

    def by_blake3(statement: dict[str, Any]) -> None:
        statement["predicate"]["serialization"]["hash_type"] = "blake3"
        for each in statement["predicate"]["resources"]:
            each["algorithm"] = each["algorithm"].replace("sha256", "blake3")

    private = ec.generate_private_key(ec.SECP256R1())
    key.write_bytes(pem(private))
    change_statement(model, by_blake3)
    sign(model, private, encoded)
    assert "digest" in found_in(model, key, "valid").values()
    monkeypatch.setitem(sys.modules, "blake3", None)
    with pytest.raises(ManifestError, match=r"pip install 'shardproof\[blake3\]'"):
        validate(model, level="valid", against=key)


def found_in(model: Path, key: Path, level: Any = "present", **how: Any) -> dict[str, str]:
    findings = validate(model, level=level, against=key, **how).findings
    return {os.path.relpath(each.path, model): each.kind.value for each in findings}


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
@pytest.mark.parametrize("texts", [encoded, encoded_by_0_2])
def test_each_curve_and_version(model: Path, key: Path, curve: Any, texts: Any) -> None:
    private = ec.generate_private_key(curve)
    key.write_bytes(pem(private))
    with pytest.raises(ManifestError, match="found none") as caught:
        validate(model, against=key)
    assert str(caught.value.path) == str(model / "model.sig")
    sign(model, private, texts)
    assert validate(model, level="valid", against=key).ok
    sign(model, private, lambda payload: texts(payload + b" "))
    with pytest.raises(ManifestError, match="expected a signature"):
        validate(model, against=key)


def test_a_certificate(model: Path, key: Path) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "signer")])
    day = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    made = x509.CertificateBuilder(
        name, name, private.public_key(), 1, day, day + datetime.timedelta(1)
    ).sign(private, hashes.SHA256())
    key.write_bytes(b"signer\n" + made.public_bytes(serialization.Encoding.PEM))
    sign(model, private, encoded)
    assert validate(model, level="valid", against=key).ok


@pytest.mark.parametrize(
    "text",
    [
        pem(rsa.generate_private_key(65537, 2048)),
        pem(ec.generate_private_key(ec.SECP256K1())),
        ec.derive_private_key(18, ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        ),
        PUBLIC_KEY.replace("MFkw", "MFkx").encode(),
        b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
        b"-----BEGIN PUBLIC KEY-----",
    ],
    ids=["rsa", "another curve", "private", "changed", "empty", "cut"],
)
def test_what_is_no_key_to_look_with(model: Path, key: Path, text: bytes) -> None:
    key.write_bytes(text)
    with pytest.raises(ManifestError, match="expected a public key or a certificate") as caught:
        validate(model, against=key)
    assert str(caught.value.path) == str(key)
    assert b"MHcC" not in text or "MHcC" not in str(caught.value)


def test_without_what_verifies_it(model: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ImportError, match=r"pip install 'shardproof\[signing\]'"):
        validate(model, against=key)


def test_a_list_that_only_looks_like_a_key(model: Path, tmp_path: Path) -> None:
    """Lists in a message that PGP signed are no lists, and no keys."""
    path = tmp_path / "SHA256SUMS.asc"
    path.write_text("-----BEGIN PGP PUBLIC KEY BLOCK-----\n")
    with pytest.raises(ManifestError, match="expected a digest and a name"):
        validate(model, against=path)


def test_a_repair(model: Path, key: Path, tmp_path: Path) -> None:
    source = shutil.copytree(model, tmp_path / "source")
    (model / "model.bin").write_bytes(b"Weights" * 50)
    assert repair(model, str(source), against=key).ok
    assert validate(model, level="valid", against=key).ok


def test_by_the_command_and_by_pytest(model: Path, key: Path, pytester: pytest.Pytester) -> None:
    command = ["validate", model, "--level", "valid", "--against", key]
    words = ("--validate-shards", f"--shards-against={key}", f"--shards-dir={model}")
    assert run(*command).exit_code == 0
    pytester.runpytest_inprocess(*words).assert_outcomes(passed=1)
    change_statement(model, lambda statement: statement.update(more=1))
    done = run(*command)
    assert (done.exit_code, "Traceback" in done.output) == (2, False)
    assert "expected a signature by the key" in done.output
    result = pytester.runpytest_inprocess(*words)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*expected a signature by the key*"])


def test_a_key_asks_for_the_signature_whatever_else_the_directory_is(
    model: Path, key: Path
) -> None:
    """As one that was downloaded, or is a data set; what a client left there was not signed."""
    notes = model / ".cache/huggingface/download"
    notes.mkdir(parents=True)
    (notes / "config.json.metadata").write_text("a\nb\n1.0\n")
    assert formats.detect(str(model)).name == "hf-local-dir"
    report = validate(model, level="valid", against=key)
    assert report.format == "model-signing"
    assert {each.path.relative_to(model).parts[0] for each in report.findings} <= {".cache"}
    assert report.n_proven == report.n_files
    shutil.rmtree(model / ".cache")
    (model / "index.json").write_text('{"version": 2, "shards": []}')
    report = validate(model, level="valid", against=key)
    assert [each.path.name for each in report.findings] == ["index.json"]


def test_a_format_that_nobody_signs(make_shards_dir: Any, key: Path) -> None:
    with pytest.raises(ManifestError, match=r"expected a signed manifest.* saev has none"):
        validate(make_shards_dir(2), against=key)
