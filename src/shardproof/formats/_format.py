"""What a format is: a value that says how a directory is recognised, read, and what that proves."""

import dataclasses
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # every test run loads this module, also where there are no shards
    from shardproof.manifest import Manifest


class SignerKey(NamedTuple):
    """A public key, or a certificate, of whoever signed a manifest.

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
            the shards' own names are the manifest.
        recognizes: Called with the real absolute path of a directory: does it look like one of this
            format? By one listing of it at most, and a small read. An `OSError` says that it could
            not be looked at.
        read_manifest: Called with the same path: what is expected in the directory? No shard is
            opened, unless it holds the manifest itself. A `ManifestError` says that it can't be
            read or that nothing can be as it says.
        complete: What the level ``complete`` proves, in a line.
        valid: What the level ``valid`` proves, in a line.
        blind_spots: Damage that no level sees, in a line; empty where there is none.
        marks: Paths in a directory; ``recognizes`` is asked first where one of them is there.
        suffixes: Ends of names, or whole names, by which it is known where no format's mark is.
        only_its_own: Pattern of names that no other format gives: without a manifest it is lost.
        further_parts: Patterns of further files that the manifest consists of.
        beside: Patterns of files that may lie beside, such as a description; a strict check passes
            over them.
        includes: Names of formats whose files it may hold: a directory that both recognise is of
            this one.
        states_digests: Whether its manifest may state digests, which a seal takes over.
        store: Where its files are links to, relative to the directory: they are followed there too.
        name_at_source: What an expected file is called where it comes from.
        read_signed: Called with the path and a key: what did its owner sign? A `ManifestError` says
            that it was somebody else, too. None where nothing is signed.
    """

    name: str
    description: str
    manifest_file: str
    recognizes: Callable[[str], bool]
    read_manifest: "Callable[[str], Manifest]"
    complete: str = "sizes and structures that the manifest states or implies"
    valid: str = "nothing more: the format has no digests; seal it"
    blind_spots: str = ""
    marks: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    only_its_own: str = ""
    further_parts: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    states_digests: bool = False
    store: str = ""
    name_at_source: Callable[[str], str] = str
    read_signed: "Callable[[str, SignerKey], Manifest] | None" = None

    @classmethod
    def of_module(cls, module: str, **fields: Any) -> "Format":
        """Return a format whose functions are in a module of `formats`, imported when needed."""
        module = f"formats.{module}"
        functions = {name: later(module, name) for name in ("recognizes", "read_manifest")}
        return cls(**{**functions, **fields})

    def __repr__(self) -> str:
        return f"<format {self.name}: {self.manifest_file}>"


def later(module: str, function: str) -> Callable[..., Any]:
    """Return a function of a module of this package that is imported when it is called."""

    def call(*args: object) -> object:
        return getattr(import_module(f"shardproof.{module}"), function)(*args)

    return call
