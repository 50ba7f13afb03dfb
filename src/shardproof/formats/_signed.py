"""A promise that somebody signed: it counts only if it was the owner of a key that the user has."""

import contextlib
import os
import re
from collections.abc import Iterable

from shardproof._base import json
from shardproof._base.messages import shown, told
from shardproof._base.opening import is_regular, real_path
from shardproof.errors import ManifestError
from shardproof.formats._format import Format, SignerKey
from shardproof.manifest import Manifest

_MAX_BYTES = 2**16
_BEGIN = re.compile(rb"(?m)^-----BEGIN (?:CERTIFICATE|(?:[A-Z]+ )*(?:PUBLIC|PRIVATE) KEY)-----")
_EXPECTED = "to look who signed it: expected a public key or a certificate in PEM"


def key_at(address: str) -> SignerKey | None:
    """Return the public key or the certificate in PEM that is in a file; None for all else."""
    if "://" in address or not is_regular(address):
        return None
    folder, name = os.path.split(real_path(address))
    try:
        text = json.read_bytes(folder, name, max_bytes=_MAX_BYTES)
    except ManifestError:
        return None
    return SignerKey(os.path.join(folder, name), text) if _BEGIN.search(text) else None


def read_signed(form: Format, path: str, key: SignerKey) -> Manifest:
    """Return what a directory promises, if a key's owner signed it; no list beside it counts."""
    if form.read_signed is None:
        problem = (
            f"expected a signed promise, since a key is given; the format {form.name} has none"
        )
        raise ManifestError(problem, path=path)
    return form.read_signed(path, key)


def require_signature(
    texts: Iterable[bytes], signature: bytes, key: SignerKey, *, path: str
) -> None:
    """Raise unless a signature, of ECDSA as DER, is by the owner of a key, of one of some texts."""
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above
    except ImportError as error:
        problem = "signatures need the package cryptography: pip install shardproof[signing]"
        raise ImportError(problem) from error
    public = _public_key(key)
    hash_of = {
        "secp256r1": hashes.SHA256(),
        "secp384r1": hashes.SHA384(),
        "secp521r1": hashes.SHA512(),
    }
    if not isinstance(public, ec.EllipticCurvePublicKey) or public.curve.name not in hash_of:
        raise ManifestError(f"{_EXPECTED}, of P-256, P-384 or P-521; found another", path=key.path)
    algorithm = ec.ECDSA(hash_of[public.curve.name])
    for text in texts:
        with contextlib.suppress(InvalidSignature):
            public.verify(signature, text, algorithm)
            return
    problem = (
        f"expected a signature by the key of '{shown(key.path)}', found none: the list was "
        "changed, or somebody else signed it; do not use these files before you know which"
    )
    raise ManifestError(problem, path=path)


def _public_key(key: SignerKey) -> object:
    from cryptography import x509  # noqa: PLC0415 - an extra
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - as above

    try:
        if b"-----BEGIN CERTIFICATE-----" in key.text:
            return x509.load_pem_x509_certificate(key.text).public_key()
        return serialization.load_pem_public_key(key.text)
    except (ValueError, UnsupportedAlgorithm) as error:
        problem = f"{_EXPECTED}; it can't be read: {told(error)}"
        raise ManifestError(problem, path=key.path) from None
