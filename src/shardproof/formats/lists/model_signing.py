"""Models that were signed by OpenSSF's ``model_signing``: a list of digests, and who made it.

``model.sig`` is a bundle of Sigstore; its payload is an in-toto statement that lists resources with
digests: files, or parts of files, ``<name>:<begin>:<end>``
(https://github.com/sigstore/model-transparency). It is signed as DSSE says
(https://github.com/secure-systems-lab/dsse/blob/v1.0.0/protocol.md).
"""

import contextlib
import functools
import hashlib
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from shardproof._base import digest, digest_lists, json
from shardproof._base.messages import quoted, shown, told
from shardproof._base.names import spelled
from shardproof._base.opening import Read, files_below, real_path, status_of
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.formats._format import SignerKey
from shardproof.manifest import Contradiction, ExpectedFile, Manifest, Mismatch

_BUNDLE = "model.sig"
_PART = re.compile(r"(.+):(\d{1,18}):(\d{1,18})", re.DOTALL)
_Hex = Annotated[str, msgspec.Meta(pattern=r"^(?:[0-9A-Fa-f]{2})*\Z")]
_Paths = Annotated[set[str], msgspec.Meta(max_length=100_000)]
_PAYLOAD_TYPE = b"application/vnd.in-toto+json"
_OF_GIT = (".git", ".gitattributes", ".github", ".gitignore")  # left out, where no list says what
_A_KEY = "to check who signed it: expected a public key or a certificate in PEM"


class _Signature(msgspec.Struct):
    sig: bytes = b""


class _Envelope(msgspec.Struct):
    payload: bytes
    type: Literal["application/vnd.in-toto+json"] = msgspec.field(name="payloadType")
    signatures: list[_Signature] = []


class _SigstoreBundle(msgspec.Struct):
    envelope: _Envelope = msgspec.field(name="dsseEnvelope")


class _SignedResource(msgspec.Struct):
    name: str
    digest: _Hex
    algorithm: str


class _Serialization(msgspec.Struct):
    method: Literal["files", "shards"]
    hash_type: Literal["sha256", "blake2b", "blake3"]
    links: bool = msgspec.field(name="allow_symlinks")
    part_bytes: Annotated[float, msgspec.Meta(ge=1)] = msgspec.field(default=1, name="shard_size")
    left_out: _Paths = msgspec.field(default_factory={*_OF_GIT}.copy, name="ignore_paths")

    def __post_init__(self) -> None:
        self.left_out = {_BUNDLE, *(str(PurePosixPath(each)) for each in self.left_out)}

    def leaves_out(self, name: str) -> bool:
        """Whether a name, or that of a folder that it is in, is not to be signed."""
        path = PurePosixPath(name)
        return any(str(each) in self.left_out for each in (path, *path.parents))


class _SignedModel(msgspec.Struct):
    serialization: _Serialization
    resources: list[_SignedResource]


class _Sha256(msgspec.Struct):
    sha256: _Hex


class _SignedSubject(msgspec.Struct):
    name: str
    digest: _Sha256


class _InTotoStatement(msgspec.Struct, tag_field="predicateType"):
    type: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(name="_type")
    subject: list[_SignedSubject]


class _Statement(_InTotoStatement, tag="https://model_signing/signature/v1.0"):
    predicate: _SignedModel


class _StatementBefore1(_InTotoStatement, tag="https://model_signing/Digests/v0.1"):
    @property
    def predicate(self) -> _SignedModel:
        """Each file is a subject of its own."""
        how = _Serialization("files", "sha256", links=False)
        files = [(each.name, each.digest.sha256) for each in self.subject]
        return _SignedModel(how, [_SignedResource(*each, "sha256") for each in files])


_AnyStatement = _Statement | _StatementBefore1


class _SignedPart(NamedTuple):
    """The digest of some of a file's bytes."""

    begin: int
    end: int
    digest: str | None


def recognizes(path: str) -> bool:
    try:
        return b'"dsseEnvelope"' in json.read_bytes(path, _BUNDLE, max_bytes=json.MAX_BYTES)
    except ManifestNotFoundError:
        return False
    except ManifestError:  # too large, or may not be read: to read it says which
        return True


def read_manifest(path: str, key: SignerKey | None = None) -> Manifest:
    where = os.path.join(path, _BUNDLE)
    statement = _statement(path, where, key)
    how = statement.predicate.serialization
    digests = list(_digests(statement.predicate, where, key))
    if not digests:
        raise ManifestError("it lists no file", path=where)
    if how.method == "shards":
        parts = _parts(digests, int(how.part_bytes), where)
        files = [ExpectedFile(name=name, size=some[-1].end) for name, some in parts.items()]
        prove = functools.partial(_prove, parts)
    else:
        files, prove = [ExpectedFile.by_digest(*each) for each in digests], None
    signed = {file.name for file in files}
    permits = functools.partial(_permits, path, how, signed)
    return Manifest.at(
        path,
        _BUNDLE,
        "model-signing",
        files,
        prove=prove,
        damaged=list(_another_sum(statement)),
        contradictions=tuple if key else functools.partial(_unsigned, path, signed, permits),
        links=key is None or how.links,
        permits=permits if key else None,
    )


def _statement(path: str, where: str, key: SignerKey | None) -> _AnyStatement:
    envelope = json.read(path, _BUNDLE, _SigstoreBundle).envelope
    if key:
        # What is signed: the protocol of DSSE, "pre-authentication encoding"; and as it was before
        # version 1.0, which took bytes for the text that shows them.
        about = len(_PAYLOAD_TYPE), _PAYLOAD_TYPE, len(envelope.payload), envelope.payload
        texts = (b"DSSEv1 %d %b %d %b" % about, b"DSSEV1 %d %b %d %a" % about)
        signature, *_ = envelope.signatures or [_Signature()]
        _require_signature(texts, signature.sig, key, path=where)
    kind: type[_AnyStatement] = _AnyStatement  # type: ignore[assignment] # it takes unions too
    return json.decode(envelope.payload, kind, path=where)


def _require_signature(
    texts: Iterable[bytes], signature: bytes, key: SignerKey, *, path: str
) -> None:
    """Raise unless a signature, of ECDSA as DER, is by the owner of a key, of one of some texts."""
    try:
        from cryptography import exceptions, x509  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above
    except ImportError as error:
        problem = "signatures need the package cryptography: pip install 'shardproof[signing]'"
        raise ImportError(problem) from error
    is_certificate = b"-----BEGIN CERTIFICATE-----" in key.text
    load = x509.load_pem_x509_certificate if is_certificate else serialization.load_pem_public_key
    try:
        found: Any = load(key.text)
        public = found.public_key() if is_certificate else found
    except (ValueError, exceptions.UnsupportedAlgorithm) as error:
        problem = f"{_A_KEY}; it can't be read: {told(error)}"
        raise ManifestError(problem, path=key.path) from None
    sums = hashes.SHA256(), hashes.SHA384(), hashes.SHA512()
    hash_of = dict(zip(("secp256r1", "secp384r1", "secp521r1"), sums, strict=True))
    if not isinstance(public, ec.EllipticCurvePublicKey) or public.curve.name not in hash_of:
        raise ManifestError(f"{_A_KEY}, of P-256, P-384 or P-521; found another", path=key.path)
    algorithm = ec.ECDSA(hash_of[public.curve.name])
    for text in texts:
        with contextlib.suppress(exceptions.InvalidSignature):
            public.verify(signature, text, algorithm)
            return
    problem = (
        f"expected a signature by the key of '{shown(key.path)}', found none: the list was "
        "changed, or somebody else signed it; do not use these files before you know which"
    )
    raise ManifestError(problem, path=path)


def _digests(
    model: _SignedModel, where: str, key: SignerKey | None
) -> Iterator[tuple[str, str | None]]:
    """Yield each name with its digest; None, unless a key is given, if nothing here computes it."""
    how, algorithm = model.serialization, model.serialization.hash_type
    name = f"{algorithm}-sharded-{how.part_bytes:.0f}" if how.method == "shards" else algorithm
    for each in model.resources:
        if each.algorithm != name:
            problem = f"expected digests by {name}, found {quoted(each.algorithm)}"
            raise ManifestError(problem, path=where)
        text: str | None = f"{algorithm}:{each.digest.lower()}"
        if text and not key and algorithm == "blake3":
            text = next(iter(digest.provable([text])), None)
        yield each.name, text


def _parts(
    digests: Sequence[tuple[str, str | None]], n_bytes: int, where: str
) -> Mapping[str, Sequence[_SignedPart]]:
    """Return the parts of each file, all of it, from its begin to its end."""
    parts: dict[str, list[_SignedPart]] = {}
    for name, text in digests:
        found = _PART.fullmatch(name)
        if found is None:
            problem = f"expected a name with its first and last byte, found {quoted(name)}"
            raise ManifestError(problem, path=where)
        try:
            stated = text and str(digest.parse(text))
        except ValueError as error:
            raise ManifestError(told(error), path=where) from None
        parts.setdefault(found[1], []).append(_SignedPart(int(found[2]), int(found[3]), stated))
    for name, some in parts.items():
        some.sort(key=lambda part: part[:2])
        size = some[-1].end
        begins = range(0, size, n_bytes)
        spans = ((begin, min(begin + n_bytes, size)) for begin in begins)
        if len(begins) != len(some) or [*spans] != [part[:2] for part in some]:
            problem = f"expected parts of {quoted(name)} one after the other, found others"
            raise ManifestError(problem, path=where)
    return parts


def _prove(
    parts: Mapping[str, Sequence[_SignedPart]], promised: ExpectedFile, read: Read, size: int
) -> Mismatch | bool:
    """Return what is wrong with a file, by its parts, or whether all of its bytes are proven."""
    for begin, end, text in parts[promised.name]:
        if text is not None:
            stated = digest.parse(text)
            found = digest.of_file(read, stated.algorithm, min(end, size), start=begin, threads=1)
            if stated != found:
                return Mismatch(f"{stated} from byte {begin} to byte {end}", str(found))
    return all(part.digest is not None for part in parts[promised.name])


def _another_sum(statement: _AnyStatement) -> Iterator[Contradiction]:
    """Yield where the digest of all digests is not the one that the subject has."""
    stated = [each.digest.sha256.lower() for each in statement.subject]
    digests = (bytes.fromhex(each.digest) for each in statement.predicate.resources)
    found = hashlib.sha256(b"".join(digests)).hexdigest()
    if stated != [found] and isinstance(statement, _Statement):
        expected = f"files whose digests together have the digest {quoted(', '.join(stated))}"
        yield Contradiction(_BUNDLE, expected, quoted(found))


def _permits(path: str, how: _Serialization, signed: set[str], name: str, follow: bool) -> bool:
    """Whether something may lie in a signed model, by the rules of who signs, links too."""
    if name in signed:
        return True
    place = os.path.join(path, name)
    status = status_of(place, follow=follow or how.links)
    if status is None:  # a link that leads nowhere
        return False
    if stat.S_ISDIR(status.st_mode):
        real = os.path.relpath(real_path(place), path)
        is_inside = real != name and not f"{real}/".startswith("../")  # if it is a link even now
        return is_inside and not how.leaves_out(real)
    is_owed = how.method == "files" or status.st_size > 0
    return stat.S_ISREG(status.st_mode) and (not is_owed or how.leaves_out(name))


def _unsigned(
    path: str, signed: Collection[str], permits: Callable[[str, bool], bool]
) -> Iterator[Contradiction]:
    """Yield files that were not signed, but for hidden ones of clients, and lists of digests."""
    for name in spelled(files_below(path, hidden=True), signed, path):
        is_left_out = "/." in f"/{name}" or name in digest_lists.NAMES.values()
        if not is_left_out and not permits(name, True):
            yield Contradiction(name, "a file that was signed", "one that was not")
