"""What the Hub and its client say of a file, wherever the client put it: digest, size, listing."""

import contextlib
import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from shardproof._base import json
from shardproof._base.names import refusals
from shardproof._base.opening import names_in, status_of
from shardproof.errors import ManifestError, ManifestNotFoundError, ManifestPermissionError
from shardproof.manifest import Contradiction, Count, ExpectedFile, Manifest, Mismatch
from shardproof.probes.safetensors import WeightsIndex

Listing = Mapping[str, ExpectedFile]  # by paths: what the client kept of the Hub's, of a commit
A_PART = Mismatch(
    "the whole file",
    "a part: its download is under way or was cut off; run it again, or remove the part",
)
"""What is said of a file into which a download writes."""

_A_LISTING = "a listing of the repository (without it the client asks the Hub anew)"

_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PART = re.compile(r"(?:\.[0-9a-f]{8})?\.incomplete")
_INDEX = ".index.json"

_Digits = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{40}|[0-9a-f]{64})$")]


class _ListedAtHub(msgspec.Struct, gc=False):
    """A file, as the Hub lists it: with ``lfs_sha256`` it is large, and not in git itself."""

    size: Count
    blob_id: _Digits
    lfs_sha256: _Digits | None = None


class _VersionOfTree(msgspec.Struct):
    format_version: int


class _RepositoryTree(msgspec.Struct):
    """All files of a commit, in the one version of listings that is known."""

    files: dict[str, _ListedAtHub]
    format_version: Literal[1]


def digest_of(name: str) -> str | None:
    """Return the digest that an entity tag of the Hub is; None for those of other servers."""
    kind = "git-sha1" if len(name) == 40 else "sha256"
    return f"{kind}:{name}" if _DIGEST.fullmatch(name) else None


def promise(name: str, digest: str | None, listed: ExpectedFile | None = None) -> ExpectedFile:
    """Return the promise of a file with what is listed of it, unless that is about other bytes."""
    if listed is None or is_another(digest, listed.digest):
        return ExpectedFile.by_digest(name, digest)
    return ExpectedFile(name=name, digest=listed.digest or digest, size=listed.size)


def is_another(digest: str | None, other: str | None) -> bool:
    """Whether two digests are of one kind and differ."""
    if digest is None or other is None:
        return False
    return digest != other and digest.partition(":")[0] == other.partition(":")[0]


def without_part(name: str) -> str | None:
    """Return what a file is a part of that a download makes; None where it is none."""
    return _PART.sub("", name) if name.endswith(".incomplete") else None


def listings_in(
    root: str, folder: str, commits: Collection[str], torn: list[Contradiction]
) -> dict[str, Listing]:
    """Return the listings of commits that the client kept in a folder; ``torn`` gets the others."""
    kept, listings = {*names_in(os.path.join(root, folder))}, dict[str, Listing]()
    for commit in (each for each in commits if f"{each}.json" in kept):
        name = f"{folder}/{commit}.json"
        try:
            tree = json.read(root, name, _RepositoryTree)
        except ManifestPermissionError:
            raise
        except ManifestNotFoundError:  # a link that leads nowhere: the client asks the Hub anew
            continue
        except ManifestError as error:
            if not _may_be_sound(root, name):
                torn.append(Contradiction(name, _A_LISTING, error.problem))
            continue
        listings[commit] = {
            path: ExpectedFile(
                name=path, size=file.size, digest=digest_of(file.lfs_sha256 or file.blob_id)
            )
            for path, file in tree.files.items()
        }
    return listings


def _may_be_sound(root: str, name: str) -> bool:
    """Whether a listing is none that is torn: it is of another version, or of a million files."""
    with contextlib.suppress(ManifestError):
        return json.read(root, name, _VersionOfTree).format_version != 1
    status = status_of(os.path.join(root, name))
    return status is not None and status.st_size > json.MAX_BYTES


def owed_weights(
    root: str, folder: str, here: Collection[str], listing_of: Callable[[str], Listing]
) -> Iterator[str]:
    """Yield weights that an index names beside others that are here, and the Hub lists."""
    for index in [path for path in here if path.endswith(_INDEX)]:
        with contextlib.suppress(ManifestError):  # its own digest tells what is wrong with it
            weights = json.read(root, folder + index, WeightsIndex).weight_map.values()
            named = {posixpath.join(posixpath.dirname(index), each) for each in weights}
            listed = listing_of(index)
            if not named.isdisjoint(here):
                owed = sorted(named.difference(here))
                yield from (path for path in owed if not listed or path in listed)


def manifest_of(
    root: str, listed_in: str, form: str, files: Mapping[str, ExpectedFile], **others: Any
) -> Manifest:
    """Return a manifest, without names that none may have; files are by their other names."""
    refused = {refusal.entry for refusal in refusals([file.name for file in files.values()])}
    named = []
    for entry, (other, file) in enumerate(files.items()):
        if entry not in refused:
            named.append(file)
        elif other != file.name and not refusals([other]):
            named.append(msgspec.structs.replace(file, name=other))
    return Manifest.at(root, listed_in, form, named, **others)
