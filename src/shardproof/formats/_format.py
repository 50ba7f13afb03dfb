"""What a format is: a value that recognizes and reads a directory, and says what that verifies."""

import dataclasses
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # every test run loads this module, also where there are no shards
    from shardproof.manifest import Manifest


class SignerKey(NamedTuple):
    """A public key, or a certificate, of whoever signed a manifest.

    Attributes:
        path: Path of its file.
        text: The key or certificate, in PEM.
    """

    path: str
    text: bytes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One on-disk convention.

    Attributes:
        name: Its name, such as ``"saev"``.
        description: What such a directory holds, in a line.
        manifest_file: The file that lists the shards. A pattern if its name varies, or if the
            shards' own names are the manifest.
        recognizes: Called with the real absolute path of a directory: does it look like this
            format? Uses at most one listing and a small read. Raises an `OSError` if the directory
            could not be read.
        read_manifest: Called with the same path: what is expected in the directory? Opens no shard,
            unless it holds the manifest itself. Raises a `ManifestError` if the manifest can't be
            read, or states something impossible.
        complete: What the level ``complete`` verifies, in a line.
        valid: What the level ``valid`` verifies, in a line.
        blind_spots: Damage that no level detects, in a line; empty if there is none.
        marks: Paths in a directory. If one exists, ``recognizes`` is called first.
        suffixes: Ends of names, or whole names, that identify it if no format's mark exists.
        folders: Patterns of names of folders that identify it, too.
        only_its_own: Pattern of names that only this format uses: its manifest is then missing.
        near: Patterns of further names that speak for it where no format recognizes a directory.
        further_parts: Patterns of further files that the manifest consists of.
        beside: Patterns of other files, such as a description, that a strict check ignores.
        includes: Names of formats whose files it may hold. A directory that both recognize has this
            format.
        yields: Whether its files lie beside others in all kinds of directories: it is then asked
            only where no other format, and no list but a seal, recognizes one.
        states_digests: Whether its manifest may state digests, which a seal takes over.
        store: The place that its files are links to, relative to the directory. Links to it are
            followed.
        only_here: What to do instead of checking such a directory in a bucket, where that is not
            possible.
        name_at_source: Returns the name of an expected file at its source.
        read_signed: Called with the path and a key: what did the key's owner sign? Raises a
            `ManifestError` if somebody else signed it. None if nothing is signed.
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
    folders: tuple[str, ...] = ()
    only_its_own: str = ""
    near: tuple[str, ...] = ()
    further_parts: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    yields: bool = False
    states_digests: bool = False
    store: str = ""
    only_here: str = ""
    name_at_source: Callable[[str], str] = str
    read_signed: "Callable[[str, SignerKey], Manifest] | None" = None

    @classmethod
    def of_module(cls, module: str, **fields: Any) -> "Format":
        """Return a format whose functions are in a module of `formats`, which may name it, too."""
        name = module.rpartition(".")[2].replace("_", "-")
        functions = ("recognizes", "read_manifest")
        found = {function: later(f"formats.{module}", function) for function in functions}
        return cls(**{"name": name, **found, **fields})

    def __repr__(self) -> str:
        return f"<format {self.name}: {self.manifest_file}>"


def later(module: str, function: str) -> Callable[..., Any]:
    """Return a function of a module of this package that is imported when it is called."""

    def call(*args: object) -> object:
        return getattr(import_module(f"shardproof.{module}"), function)(*args)

    return call
