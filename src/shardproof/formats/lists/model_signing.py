"""Models that were signed by OpenSSF's ``model_signing``: a list of digests, and who made it.

``model.sig`` is a bundle of Sigstore; its payload is an in-toto statement that lists resources with
digests: files, or parts of files, ``<name>:<begin>:<end>``
(https://github.com/sigstore/model-transparency). It is signed as DSSE says
(https://github.com/secure-systems-lab/dsse/blob/v1.0.0/protocol.md).
"""

import base64
import binascii
import dataclasses
import functools
import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from shardproof._base import digest, digest_lists, json
from shardproof._base.messages import quoted, told
from shardproof._base.opening import files_below
from shardproof.errors import ManifestError
from shardproof.formats._format import Format, SignerKey
from shardproof.formats._signed import require_signature
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile
from shardproof.report import is_conclusive

__all__ = ["FORMAT", "SignedParts"]

_BUNDLE = "model.sig"
_PARTS = "shards"
_PART = re.compile(r"(.+):(\d{1,18}):(\d{1,18})", re.DOTALL)
_PAYLOAD_TYPE = b"application/vnd.in-toto+json"
_BEFORE_1 = "https://model_signing/Digests/v0.1"


class _Signature(msgspec.Struct):
    sig: str = ""


class _Envelope(msgspec.Struct):
    payload: str
    signatures: list[_Signature] = []


class _SigstoreBundle(msgspec.Struct):
    envelope: _Envelope = msgspec.field(name="dsseEnvelope")


class _SignedResource(msgspec.Struct):
    name: str
    digest: str
    algorithm: str


class _Serialization(msgspec.Struct):
    method: str = "files"
    ignored: list[str] = msgspec.field(default_factory=list, name="ignore_paths")


class _SignedModel(msgspec.Struct):
    resources: list[_SignedResource] = []
    serialization: _Serialization = msgspec.field(default_factory=_Serialization)


class _SignedSubject(msgspec.Struct):
    digest: dict[str, str]
    name: str = ""


class _InTotoStatement(msgspec.Struct):
    predicate: _SignedModel
    subject: list[_SignedSubject] = []
    predicate_type: str = msgspec.field(default="", name="predicateType")


class _SignedPart(NamedTuple):
    """The digest of some of a file's bytes."""

    begin: int
    end: int
    digest: str | None


def _recognizes(path: str) -> bool:
    try:
        return b'"dsseEnvelope"' in json.read_bytes(path, _BUNDLE, max_bytes=json.MAX_BYTES)
    except ManifestError:
        return False


def _read_manifest(path: str, key: SignerKey | None = None) -> Manifest:
    where = os.path.join(path, _BUNDLE)
    statement = _statement(path, where, key)
    model = statement.predicate
    resources = _resources(statement)
    if not resources:
        raise ManifestError("it lists no file", path=where)
    if model.serialization.method == _PARTS:
        parts = _parts(resources, where)
        files, prove = list(map(_in_parts, parts.items())), SignedParts(parts)
    else:
        files = [PromisedFile.by_digest(each.name, _provable(each)) for each in resources]
        prove = None
    signed = {file.name for file in files}
    return Manifest(
        root=Path(path),
        path=Path(where),
        format=FORMAT.name,
        files=files,
        prove=prove,
        contradictions=functools.partial(_contradictions, path, statement, signed),
    )


def _statement(path: str, where: str, key: SignerKey | None) -> _InTotoStatement:
    bundle = json.read(path, _BUNDLE, _SigstoreBundle)
    try:
        text = base64.b64decode(bundle.envelope.payload, validate=True)
        signatures = [base64.b64decode(each.sig) for each in bundle.envelope.signatures if key]
    except (binascii.Error, ValueError):
        problem = "expected a payload and signatures in base64"
        raise ManifestError(problem, path=where, field="$.dsseEnvelope") from None
    if key:
        require_signature([_signed_text(text), _signed_before_1(text)], signatures, key, path=where)
    return json.decode(text, _InTotoStatement, path=where)


def _signed_text(payload: bytes) -> bytes:
    """Return what is signed: the protocol of DSSE, "pre-authentication encoding"."""
    return b"DSSEv1 %d %b %d %b" % (len(_PAYLOAD_TYPE), _PAYLOAD_TYPE, len(payload), payload)


def _signed_before_1(payload: bytes) -> bytes:
    """Return what was signed before version 1.0: it took bytes for the text that shows them."""
    return b"DSSEV1 %d %b %d %a" % (len(_PAYLOAD_TYPE), _PAYLOAD_TYPE, len(payload), payload)


def _resources(statement: _InTotoStatement) -> Sequence[_SignedResource]:
    """Return what was signed; before version 1.0 each file was a subject of its own."""
    if statement.predicate_type != _BEFORE_1:
        return statement.predicate.resources
    return [
        _SignedResource(subject.name, subject.digest.get("sha256", ""), "sha256")
        for subject in statement.subject
    ]


def _provable(resource: _SignedResource) -> str | None:
    """Return the digest of a resource; None if there is nothing here that computes it."""
    text = f"{resource.algorithm.partition('-sharded-')[0]}:{resource.digest.lower()}"
    is_ours = text.partition(":")[0] in digest.ALGORITHMS
    return text if is_ours else next(iter(digest.provable([text])), None)


def _parts(resources: Sequence[_SignedResource], where: str) -> Mapping[str, Sequence[_SignedPart]]:
    """Return the parts of each file, from its begin to its end.

    Raises:
        ManifestError: They are not all of a file.
    """
    parts: dict[str, list[_SignedPart]] = {}
    for resource in resources:
        found = _PART.fullmatch(resource.name)
        if found is None:
            problem = f"expected a name with its first and last byte, found {quoted(resource.name)}"
            raise ManifestError(problem, path=where)
        part = _SignedPart(int(found[2]), int(found[3]), _checked(_provable(resource), where))
        parts.setdefault(found[1], []).append(part)
    for name, some in parts.items():
        some.sort(key=lambda part: part[:2])
        ends = [0, *(part.end for part in some)]
        if any(part.begin != end or part.end <= end for part, end in zip(some, ends, strict=False)):
            problem = f"expected parts of {quoted(name)} one after the other, found others"
            raise ManifestError(problem, path=where)
    return parts


def _checked(text: str | None, where: str) -> str | None:
    try:
        return text and str(digest.parse(text))
    except ValueError as error:
        raise ManifestError(told(error), path=where) from None


def _in_parts(item: tuple[str, Sequence[_SignedPart]]) -> PromisedFile:
    name, parts = item
    return PromisedFile(name=name, size=parts[-1].end)


@dataclasses.dataclass(frozen=True, slots=True)
class SignedParts:
    """Proves files by the digests of their parts.

    Attributes:
        parts: Those of each file.
    """

    parts: Mapping[str, Sequence[_SignedPart]]

    def __call__(self, promised: PromisedFile, fd: int, size: int) -> Mismatch | bool:
        """Return what is wrong with a file, or whether all of its bytes are proven."""
        parts = self.parts[promised.name]
        for begin, end, text in parts:
            if text is not None:
                stated = digest.parse(text)
                found = digest.of_file(fd, stated.algorithm, min(end, size), start=begin, threads=1)
                if not digest.same(stated, found):
                    where = f"from byte {begin} to byte {end}"
                    return Mismatch(expected=f"{stated} {where}", found=str(found))
        return all(part.digest is not None for part in parts)


def _contradictions(
    path: str, statement: _InTotoStatement, signed: Collection[str]
) -> Iterator[Contradiction]:
    yield from _another_sum(statement)
    yield from _unsigned(path, statement.predicate.serialization, signed)


def _another_sum(statement: _InTotoStatement) -> Iterator[Contradiction]:
    """Yield where the digest of all digests is not the one that the subject has."""
    stated = statement.subject[0].digest.get("sha256") if len(statement.subject) == 1 else None
    if stated is None or statement.predicate_type == _BEFORE_1:
        return
    try:
        digests = [bytes.fromhex(each.digest) for each in statement.predicate.resources]
    except ValueError:  # of an algorithm that nobody knows
        return
    found = hashlib.sha256(b"".join(digests)).hexdigest()
    if found != stated.lower():
        expected = f"files whose digests together have the digest {quoted(stated)}"
        yield Contradiction(_BUNDLE, Mismatch(expected=expected, found=quoted(found)))


def _unsigned(
    path: str, serialization: _Serialization, signed: Collection[str]
) -> Iterator[Contradiction]:
    """Yield files that were not signed, and were not to be left out.

    Hidden ones are passed over: clients keep theirs beside a model, and so does git.
    """
    left_out = (_BUNDLE, *digest_lists.NAMES.values(), *serialization.ignored)
    for name in files_below(path):
        if name in signed or any(name == each or name.startswith(f"{each}/") for each in left_out):
            continue
        if _would_be_signed(os.path.join(path, name), serialization):
            mismatch = Mismatch(expected="a file that was signed", found="one that was not")
            yield Contradiction(name, mismatch)


def _would_be_signed(path: str, serialization: _Serialization) -> bool:
    """Whether a signer would take a file: of no link to a folder, nor a file without parts."""
    try:
        status = os.stat(path)
    except OSError as error:
        if is_conclusive(error.errno):  # a link that leads nowhere
            return False
        raise
    is_owed = serialization.method != _PARTS or status.st_size > 0
    return stat.S_ISREG(status.st_mode) and is_owed


FORMAT = Format(
    name="model-signing",
    description="a model with a signature of OpenSSF's model_signing",
    manifest_file=_BUNDLE,
    recognizes=_recognizes,
    read_manifest=_read_manifest,
    read_signed=_read_manifest,
    complete="that no file is there that was not signed, and the list is the one that was; sizes, "
    "where parts of files were signed",
    valid="the digest of each file, or of all its parts; with `--against KEY.pem`, as each level, "
    "that the owner of the key signed the list",
    blind_spots="who signed it, without a key; who issued a certificate, and models that Sigstore "
    "signed without a key: `model_signing verify` proves these; hidden files",
    includes=("safetensors",),
)
