"""What a format is: a value that says how a directory is recognised, read and what that proves."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile

__all__ = ["Contradiction", "Format", "Manifest", "Mismatch", "PromisedFile", "SignerKey"]


class SignerKey(NamedTuple):
    """A public key, or a certificate, of whoever signed a promise.

    Attributes:
        path: Where it is.
        text: It, in PEM.
    """

    path: str
    text: bytes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One on-disk convention.

    Attributes:
        name: Its name, such as ``"saev"``.
        description: What such a directory holds, in a line.
        manifest_file: The file that lists the shards; a pattern where its name varies, or where
            the shards' own names are the promise.
        recognizes: Called with the real absolute path of a directory: does it look like one of this
            format? By one listing of it at most, and a small read. An `OSError` says that it could
            not be looked at.
        read_manifest: Called with the same path: what does the directory promise? No shard is
            opened, unless it holds the promise itself. A `ManifestError` says that the promise
            can't be read or that nothing can keep it.
        complete: What the level ``complete`` proves, in a line.
        valid: What the level ``valid`` proves, in a line.
        blind_spots: Damage that no level sees, in a line; empty where there is none.
        further_parts: Patterns of further files that the promise consists of.
        beside: Patterns of files that may lie beside, such as a description; a strict look passes
            over them.
        includes: Names of formats whose laws this one applies as well: a directory that both
            recognise is of this one.
        store: Where its files are links to, relative to the directory: they are followed there too.
        name_at_source: What a promised file is called where it comes from.
        read_signed: Called with the path and a key: what did its owner sign? A `ManifestError` says
            that it was somebody else, too. None where nothing is signed.
    """

    name: str
    description: str
    manifest_file: str
    recognizes: Callable[[str], bool]
    read_manifest: Callable[[str], Manifest]
    complete: str = "sizes and structures that the manifest states or implies"
    valid: str = "digests that the manifest states"
    blind_spots: str = ""
    further_parts: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    store: str = ""
    name_at_source: Callable[[str], str] = str
    read_signed: Callable[[str, SignerKey], Manifest] | None = None

    def __repr__(self) -> str:
        return f"<format {self.name}: {self.manifest_file}>"
