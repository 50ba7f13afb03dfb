"""Files that lists tell of."""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ._readers import reader

_SECRET = 18
_CHECKS = {
    "digests": ["sha256sum", "--check", "--strict", "SHA256SUMS"],
    "digests-tag": ["sha256sum", "--check", "--strict", "SHA256SUMS"],
    "digests-md5": ["md5sum", "--check", "--strict", "MD5SUMS"],
    "digests-b2": ["b2sum", "--check", "--strict", "B2SUMS"],
    "digests-b3": ["b3sum", "--check", "B3SUMS"],
}


@reader(*_CHECKS)
def digests(root: Path) -> Iterable[object]:
    done = subprocess.run(_CHECKS[root.name], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr or done.stdout)
    return done.stdout.splitlines()


@reader("bagit")
def bagit(root: Path) -> Iterable[object]:
    import bagit as library

    bag = library.Bag(str(root))
    bag.validate()
    return [(name, (root / name).read_bytes()) for name in bag.payload_files()]


@reader("croissant")
def croissant(root: Path) -> Iterable[object]:
    """The library reads the metadata; of files without records it would read nothing."""
    import mlcroissant as mlc

    for file in mlc.Dataset(jsonld=str(root / "croissant.json")).metadata.distribution:
        data = (root / file.content_url).read_bytes()
        assert hashlib.sha256(data).hexdigest() == file.sha256
        yield file.name, data


@reader("model-signing", "model-signing-shards")
def model_signing(root: Path) -> Iterable[object]:
    import model_signing as library
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.derive_private_key(_SECRET, ec.SECP256R1()).public_key()
    kind = serialization.PublicFormat.SubjectPublicKeyInfo
    with tempfile.NamedTemporaryFile() as pem:
        pem.write(key.public_bytes(serialization.Encoding.PEM, kind))
        pem.flush()
        hashing = library.hashing.Config()
        if root.name.endswith("-shards"):
            hashing.use_shard_serialization(shard_size=256)
        hashing.set_ignored_paths(paths=[root / "model.sig"])
        verifying = library.verifying.Config().use_elliptic_key_verifier(public_key=pem.name)
        verifying.set_hashing_config(hashing).verify(str(root), str(root / "model.sig"))
    files = [path for path in root.iterdir() if path.name != "model.sig"]
    return [(path.name, path.read_bytes()) for path in files]


@reader("dvc", "dvc-pipeline")
def dvc(root: Path) -> Iterable[object]:
    """What is tracked, if `dvc status` has nothing to say of it, as of locks that are left."""
    from dvc.repo import Repo

    shutil.rmtree(root / ".dvc/tmp", ignore_errors=True)
    with Repo(str(root)) as repo:
        changed = repo.status()
        if changed:
            raise ValueError(changed)
        for place, _, names in repo.dvcfs.walk("/", dvc_only=True):
            for name in names:
                path = f"{place.rstrip('/')}/{name}"
                yield path, repo.dvcfs.read_bytes(path)
