"""Lists of digests, whatever the files are."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ._cases import case, cases, package, tool


def digest_list(to: Path, name: str, command: Sequence[str]) -> None:
    (to / "sub").mkdir()
    names = ["a.bin", "sub/b c.bin"]
    for file in names:
        (to / file).write_bytes(file.encode() * 50)
    done = subprocess.run([*command, *names], cwd=to, capture_output=True, check=True)
    (to / name).write_bytes(done.stdout)


for name, package_name, list_name, *command in (
    ("digests", "coreutils", "SHA256SUMS", "sha256sum"),
    ("digests_tag", "coreutils", "SHA256SUMS", "sha256sum", "--tag"),
    ("digests_md5", "coreutils", "MD5SUMS", "md5sum", "--binary"),
    ("digests_b2", "coreutils", "B2SUMS", "b2sum", "--tag"),
    ("digests_b3", "b3sum", "B3SUMS", "b3sum"),
):
    write = partial(digest_list, name=list_name, command=command)
    cases(tool(package_name, command[0]), **{name: write})


@case(package("bagit"))
def bagit(to: Path) -> None:
    import bagit as library

    (to / "sub").mkdir()
    (to / "a.bin").write_bytes(b"a" * 300)
    (to / "sub/b.bin").write_bytes(b"b" * 200)
    library.make_bag(str(to), {"Bagging-Date": "2026-01-01"}, checksums=["md5", "sha256"])


@case(package("mlcroissant"))
def croissant(to: Path) -> None:
    import mlcroissant as mlc

    (to / "a.csv").write_text("x\n1\n")
    digest = hashlib.sha256((to / "a.csv").read_bytes()).hexdigest()
    file = mlc.FileObject(
        id="a.csv",
        name="a.csv",
        content_url="a.csv",
        content_size="4 B",
        encoding_formats=["text/csv"],
        sha256=digest,
    )
    metadata = mlc.Metadata(
        name="tiny", description="rows", url="https://example.org", distribution=[file]
    )
    (to / "croissant.json").write_text(json.dumps(metadata.to_json(), indent=2, default=str))


@case(package("model-signing"))
def model_signing_shards(to: Path) -> None:
    """Signed in parts: a digest for each 256 bytes of a file."""
    from model_signing import hashing

    sign(to, hashing.Config().use_shard_serialization(shard_size=256))


_SECRET = 18
"""Of the key that signs, so that tests have the public one of each directory, however old."""


def sign(to: Path, hashing: object = None) -> None:
    import model_signing as library
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    (to / "model.bin").write_bytes(b"weights" * 50)
    (to / "config.json").write_text("{}")
    key = ec.derive_private_key(_SECRET, ec.SECP256R1())
    with tempfile.NamedTemporaryFile() as pem:
        pem.write(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        pem.flush()
        signing = library.signing.Config().use_elliptic_key_signer(private_key=pem.name)
        if hashing is not None:
            signing.set_hashing_config(hashing)
        signing.sign(str(to), str(to / "model.sig"))


cases(package("model-signing"), model_signing=sign)


@case(package("dvc"))
def dvc(to: Path) -> None:
    (to / "data").mkdir()
    (to / "a.bin").write_bytes(b"a" * 100)
    (to / "data/x.bin").write_bytes(b"x" * 50)
    (to / "data/y.bin").write_bytes(b"y" * 60)
    run_dvc(to, ["add", "a.bin", "data"])


_PIPELINE = """\
stages:
  files:
    cmd: printf '%100s' a > a.bin && printf '%50s' m > metrics.txt
    outs: [a.bin]
    metrics: [metrics.txt: {cache: false}]
  folders:
    cmd: mkdir -p data/in kept && printf '%60s' x > data/in/x.bin && printf '%70s' y > kept/y.bin
    outs: [data, kept: {cache: false}]
  each:
    foreach: [one, two]
    do:
      wdir: sub
      cmd: printf '%80s' ${item} > ${item}.bin
      outs: ["${item}.bin"]
"""


@case(package("dvc"))
def dvc_pipeline(to: Path) -> None:
    (to / "sub").mkdir()
    (to / "dvc.yaml").write_text(_PIPELINE)
    run_dvc(to, ["repro"])


def run_dvc(to: Path, words: Sequence[str]) -> None:
    run = [shutil.which("dvc") or "dvc"]
    environment = {**os.environ, "CI": "1", "DVC_NO_ANALYTICS": "1"}  # without its daemons
    for each in (["init", "--no-scm"], words):
        subprocess.run([*run, *each, "-q"], cwd=to, check=True, env=environment)
    for name in ("tmp", "config.local", ".gitignore", "cache/runs"):
        path = to / ".dvc" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
