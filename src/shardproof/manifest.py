"""What is expected in a shards directory."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from shardproof._base import digest as _digest
from shardproof._base.addresses import path_of
from shardproof._base.messages import listed, quoted, told
from shardproof._base.names import Refusal, entries_of, refusals, refuse_unspelled
from shardproof._base.opening import Read
from shardproof.errors import ManifestError

__all__ = [
    "Contradiction",
    "Count",
    "ExpectedFile",
    "Manifest",
    "Mismatch",
    "Probe",
    "Prove",
    "disagreements",
]

_MOST_TOLD = 50
"""Refused entries that are findings of their own; one more says how many others there are."""


class ExpectedFile(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One file that a manifest lists.

    Attributes:
        name: Path relative to the directory, with ``/`` between parts; untrusted.
        size: Size in bytes where the manifest states or implies it.
        digest: ``"<algorithm>:<hex>"`` where the manifest states it.
        digest_from: Where the bytes begin of which that is the digest; those before are the
            probe's.
        n_items: Samples, rows, tokens or examples in it, where the manifest states how many.
        further: Digests that are stated besides, each with where its bytes begin.
        is_listed_only: Whether a list of digests beside the manifest is all that names it: then it
            is none of the format's shards, and its probe is not asked.
    """

    name: str
    size: int | None = None
    digest: str | None = None
    digest_from: int = 0
    n_items: int | None = None
    further: tuple[tuple[str, int], ...] = ()
    is_listed_only: bool = False

    @classmethod
    def by_digest(cls, name: str, digest: str | None = None, *further: str) -> "ExpectedFile":
        """Return what is expected by digests of a whole file: by that of nothing, an empty file."""
        is_empty = digest is not None and _digest.is_of_nothing(digest)
        others = tuple((text, 0) for text in further)
        return cls(name=name, digest=digest, size=0 if is_empty else None, further=others)

    @property
    def digests(self) -> tuple[tuple[str, int], ...]:
        """All digests that are stated, each with where its bytes begin."""
        own = () if self.digest is None else ((self.digest, self.digest_from),)
        return own + self.further


class Mismatch(NamedTuple):
    """What was expected and what is there instead, in words."""

    expected: str
    found: str


class Contradiction(NamedTuple):
    """A file of the manifest that disagrees with another one, known from reading them alone."""

    name: str
    expected: str
    found: str


class RefusedEntry(Contradiction):
    """One entry of a file of the manifest by which no file can be looked for."""

    __slots__ = ()

    @classmethod
    def of(cls, error: ManifestError, root: str | Path) -> "RefusedEntry":
        """Return what an error says of an entry as a finding about the file that has it."""
        name, line = f"{error.path}/".removeprefix(f"{root}/").rstrip("/"), error.line
        is_other = "://" in name  # a list at an address of its own
        where = f"{quoted(name)}: " * is_other + ("" if line is None else f"line {line}: ")
        return cls("" if is_other else name, "an entry that names a file", where + error.problem)


def disagreements(files: Iterable[ExpectedFile]) -> Iterator[Contradiction]:
    """Yield each file of which two digests by one algorithm are stated."""
    for file in files:
        first: dict[tuple[str, int], str] = {}
        for text, begin in file.digests if file.further else ():
            algorithm = text.partition(":")[0]
            known = first.setdefault((algorithm, begin), text)
            if known != text:
                expected = f"one digest by {algorithm}"
                yield Contradiction(file.name, expected, f"{known} and {text}")


Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""What JSON states of bytes or samples: exact in every reader (RFC 8259, section 6)."""

Probe = Callable[[ExpectedFile, Read, int], Mismatch | None]
"""A format's structural probe: ``probe(promised, read, size)``, with few and bounded reads.

``read(n_bytes, offset)`` returns so many bytes of the file from a position on, which is 0 by
default, or fewer where it ends. Of a file on this machine it is the descriptor as well.

It must be picklable, so that it can be sent to another process: a module-level function, or a
`functools.partial` or frozen dataclass of plain data.
"""

Prove = Callable[[ExpectedFile, Read, int], Mismatch | Literal["agreed"] | bool]
"""What reads the checksums that a file has in itself: ``prove(promised, read, size)``.

True where every byte is proven by them, False where not all have one; ``"agreed"`` where only what
lies beside it says so. It must be picklable too.
"""

_Line = Callable[[Refusal], str]  # says which entry is refused, and why


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What is expected in one shards directory, as a format read it.

    Attributes:
        root: Real absolute path of the directory.
        path: Absolute path of the file that lists the shards, or its address; refusals name it.
        format: Name of the format.
        files: The expected files, in the manifest's order.
        probe: The format's structural probe, if it has one; asked from level ``complete`` on.
        contradictions: Asked from ``complete`` on: which laws does the manifest itself break?
        damaged: Parts and entries of the manifest that can't be read, or that no file can be looked
            for by, where others can: findings at every level, since what they list is unknown.
        stores: Real absolute paths of directories outside the root into which files may be links,
            because the format keeps bytes there (DVC's cache).
        links: Whether files may be links, as far as the manifest says.
        permits: Whether something may lie in the directory, asked with its name and whether links
            are followed, where the manifest says that all else may not; asked at every level.
        twins: Whether two names may be equal but for case, since a listing found both.
        n_to_make: How many shards are planned, where none is completed yet: nothing is expected.
        notes: How something in it was taken, which a report repeats.

    Raises:
        RefusedEntriesError: A name that could lead out of the root or to two files at once, a size
            below zero, a digest that can't be parsed; all of them in one error.
        OSError: The locale has no bytes for a name (EILSEQ), so that no look at it is possible.
    """

    root: Path
    path: Path | str
    format: str
    files: Sequence[ExpectedFile]
    probe: Probe | None = None
    prove: Prove | None = None
    contradictions: Callable[[], Iterable[Contradiction]] = tuple
    damaged: Sequence[Contradiction] = ()
    stores: Sequence[str] = ()
    links: bool = True
    permits: Callable[[str, bool], bool] | None = None
    twins: bool = False
    n_to_make: int = 0
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        names = [file.name for file in self.files]
        self._refuse("names that are refused", refusals(names, twins=self.twins), _refused_name)
        refuse_unspelled(names, self.path)
        impossible = [
            Refusal(entry, file.name, problem)
            for entry, file in enumerate(self.files)
            if (file.digest is not None or (file.size or 0) < 0)
            and (problem := _why_impossible(file))
        ]
        self._refuse(
            "entries that can't be met",
            impossible,
            lambda each: f"{quoted(each.name)}: {each.reason}",
        )

    @classmethod
    def at(
        cls, root: str, listed_in: str, form: str, files: Sequence[ExpectedFile], **others: Any
    ) -> "Manifest":
        """Return that of a directory; ``listed_in`` is relative to it, and may be empty."""
        path = path_of(root, listed_in)
        return cls(root=path_of(root), path=path, format=form, files=files, **others)

    def _refuse(self, title: str, refused: Sequence[Refusal], line: _Line) -> None:
        if refused:
            error = RefusedEntriesError(listed(title, refused, line), path=self.path)
            error.others = functools.partial(_others, self, refused, line)
            raise error

    @staticmethod
    def without_refused(
        make: Callable[..., "Manifest"], *args: Any, listed_in: Path | None = None, **fields: Any
    ) -> "Manifest":
        """Return a manifest that is made so; entries that are refused are findings, if not all are.

        They are findings about the file that lists them, if that is not the manifest's own.

        Raises:
            ManifestError: It can't be read, or all entries are refused.
        """
        try:
            return make(*args, **fields)
        except RefusedEntriesError as error:
            rest = Manifest.without_refused(error.others, listed_in, listed_in=listed_in)
            if not rest.files:
                raise
            return rest


class RefusedEntriesError(ManifestError):
    """No file can be looked for by some entries; ``others(None)`` is that of all others."""

    __slots__ = ("others",)  # so it is not pickled
    others: Callable[[Path | None], Manifest]


def _others(
    manifest: Manifest, refused: Sequence[Refusal], line: _Line, listed_in: Path | None
) -> Manifest:
    gone = entries_of(refused, [file.name for file in manifest.files])
    names = {manifest.files[entry].name for entry in gone}
    n_more = len(refused) - _MOST_TOLD
    lines = [*map(line, refused[:_MOST_TOLD]), *([f"{n_more} more"] if n_more > 0 else [])]
    errors = (ManifestError(line, path=listed_in or manifest.path) for line in lines)
    return dataclasses.replace(
        manifest,
        files=[file for entry, file in enumerate(manifest.files) if entry not in gone],
        contradictions=lambda: (c for c in manifest.contradictions() if c.name not in names),
        damaged=[*manifest.damaged, *(RefusedEntry.of(each, manifest.root) for each in errors)],
    )


def refuse_names(names: Sequence[str], path: Path | str) -> None:
    """Raise one `ManifestError` that lists every name that no path may be made of."""
    if refused := refusals(names):
        raise ManifestError(listed("names that are refused", refused, _refused_name), path=path)


def _refused_name(refusal: Refusal) -> str:
    return f"{quoted(refusal.name)} (entry {refusal.entry}): {refusal.reason}"


def _why_impossible(file: ExpectedFile) -> str | None:
    if file.size is not None and file.size < 0:
        return f"size {file.size}"
    for text, _ in file.digests:
        try:
            _digest.parse(text)
        except ValueError as error:
            return told(error)
    return None
