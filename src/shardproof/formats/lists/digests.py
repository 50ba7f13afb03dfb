"""A directory with a list of digests, as ``sha256sum`` and its kin write it."""

from pathlib import Path

from shardproof._base import digest, digest_lists
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.formats._format import Format
from shardproof.manifest import Manifest, PromisedFile, RefusedEntry

__all__ = ["FORMAT"]


def _recognizes(path: str) -> bool:
    return bool(digest_lists.lists_in(path) or digest_lists.seals_in(path))  # or what can be none


def _read_manifest(path: str) -> Manifest:
    lists = digest_lists.lists_in(path)
    if not lists:
        problem = "there is no list of digests, such as SHA256SUMS"
        raise ManifestNotFoundError(problem, path=path)
    wrong: list[ManifestError] = []
    stated = digest_lists.stated_by(path, lists, wrong)
    files = [
        PromisedFile.by_digest(name, *digest.provable(texts)) for name, texts in stated.items()
    ]
    if not files:
        raise ManifestError("expected a digest of a file, found none", path=Path(path, lists[0]))
    return Manifest(
        root=Path(path),
        path=Path(path, lists[0]),
        format=FORMAT.name,
        files=files,
        damaged=[RefusedEntry.of(error, path) for error in wrong],
    )


FORMAT = Format(
    name="digests",
    description="any files, and a list of their digests, as sha256sum writes it",
    manifest_file="*SUMS",
    beside=("*sums", "*sum.txt", "*sums.txt", "*.sha256", "*.sha512", "*.md5", "*.b3"),
    recognizes=_recognizes,
    read_manifest=_read_manifest,
    complete="that no two lists state different digests of a file; a list states no size",
    valid="the digest of each file; MD5, SHA-1 and xxHash only tell accidents",
    blind_spots="files that no line names, also where a list was cut between two lines",
)
