"""A directory with a list of digests, as ``sha256sum`` and its kin write it."""

from pathlib import Path

from shardproof._base import digest, digest_lists
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.formats._reading import seals_in
from shardproof.manifest import ExpectedFile, Manifest, RefusedEntry


def recognizes(path: str) -> bool:
    return bool(digest_lists.lists_in(path) or seals_in(path))  # or what can be none


def read_manifest(path: str) -> Manifest:
    lists = digest_lists.lists_in(path)
    if not lists:
        raise ManifestNotFoundError("there is no list of digests, such as SHA256SUMS", path=path)
    wrong: list[ManifestError] = []
    stated = digest_lists.stated_by(path, lists, wrong)
    files = [
        ExpectedFile.by_digest(name, *digest.provable(texts)) for name, texts in stated.items()
    ]
    if not files:
        raise ManifestError("expected a digest of a file, found none", path=Path(path, lists[0]))
    return Manifest.at(
        path, lists[0], "digests", files, damaged=[RefusedEntry.of(error, path) for error in wrong]
    )
