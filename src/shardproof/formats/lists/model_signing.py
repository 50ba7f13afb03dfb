"""Models that were signed by OpenSSF's ``model_signing``: a list of digests, and who made it.

``model.sig`` is a bundle of Sigstore; its payload is an in-toto statement that lists resources with
digests. Who signed it is for that package to prove; here it is a list
(https://github.com/sigstore/model-transparency).
"""

import base64
import binascii
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from shardproof._base import json
from shardproof._base.messages import quoted
from shardproof._base.opening import files_below
from shardproof.errors import ManifestError
from shardproof.formats._format import Format
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile

__all__ = ["FORMAT"]

_BUNDLE = "model.sig"
_SHARD = re.compile(r"(.+):\d+:\d+")
_ALGORITHMS = {"sha256": "sha256", "blake2b": "blake2b", "blake3": "blake3"}


class _Envelope(msgspec.Struct):
    payload: str


class _SigstoreBundle(msgspec.Struct):
    envelope: _Envelope = msgspec.field(name="dsseEnvelope")


class _SignedResource(msgspec.Struct):
    name: str
    digest: str
    algorithm: str


class _Serialization(msgspec.Struct):
    ignored: list[str] | None = msgspec.field(default=None, name="ignore_paths")


class _SignedModel(msgspec.Struct):
    resources: list[_SignedResource]
    serialization: _Serialization | None = None


class _InTotoStatement(msgspec.Struct):
    predicate: _SignedModel
    predicate_type: Any = msgspec.field(default=None, name="predicateType")


def _recognizes(path: str) -> bool:
    try:
        return b'"dsseEnvelope"' in json.read_bytes(path, _BUNDLE, max_bytes=json.MAX_BYTES)
    except ManifestError:
        return False


def _read_manifest(path: str) -> Manifest:
    where = os.path.join(path, _BUNDLE)
    bundle = json.read(path, _BUNDLE, _SigstoreBundle)
    try:
        text = base64.b64decode(bundle.envelope.payload, validate=True)
    except (binascii.Error, ValueError):
        problem = "expected a payload in base64"
        raise ManifestError(problem, path=where, field="$.dsseEnvelope.payload") from None
    model = json.decode(text, _InTotoStatement, path=where).predicate
    if not model.resources:
        raise ManifestError("it lists no file", path=where)
    files = dict(map(_promise, model.resources))
    ignored = (model.serialization and model.serialization.ignored) or []
    return Manifest(
        root=Path(path),
        path=Path(where),
        format=FORMAT.name,
        files=list(files.values()),
        contradictions=functools.partial(_unsigned, path, {*files}, tuple(ignored)),
    )


def _promise(resource: _SignedResource) -> tuple[str, PromisedFile]:
    """Return the promise of a file; of one that was signed in parts, only that it is there."""
    part = _SHARD.fullmatch(resource.name)
    algorithm = _ALGORITHMS.get(resource.algorithm)
    if part is not None or algorithm is None:
        name = part[1] if part else resource.name
        return name, PromisedFile(name=name)
    return resource.name, PromisedFile.by_digest(
        resource.name, f"{algorithm}:{resource.digest.lower()}"
    )


def _unsigned(path: str, signed: set[str], ignored: tuple[str, ...]) -> Iterator[Contradiction]:
    """Yield files that were not signed, and were not to be left out."""
    left_out = (_BUNDLE, ".git", ".gitattributes", ".github", ".gitignore", *ignored)
    for name in files_below(path, hidden=True):
        is_left_out = any(name == each or name.startswith(f"{each}/") for each in left_out)
        if name not in signed and not is_left_out:
            mismatch = Mismatch(
                expected="a file that was signed", found=f"{quoted(name)}, which was not"
            )
            yield Contradiction(name, mismatch)


FORMAT = Format(
    name="model-signing",
    description="a model with a signature of OpenSSF's model_signing",
    manifest_file=_BUNDLE,
    recognizes=_recognizes,
    read_manifest=_read_manifest,
    complete="that no file is there that was not signed",
    valid="the digest of each file; of those that were signed in parts none",
    blind_spots="who signed it: `model_signing verify` proves that",
    includes=("safetensors",),
)
