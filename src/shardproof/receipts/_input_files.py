"""The files that a data-prep run reads, and by what each is known again."""

import fnmatch
import os
import re
import stat
from pathlib import Path
from typing import Literal

import msgspec

from shardproof._base import digest
from shardproof._base.arguments import checked
from shardproof._base.files import telling_where
from shardproof._base.messages import quoted, shown
from shardproof._base.names import OPEN_FLAGS, refusals
from shardproof._base.opening import closing_fd, is_directory, is_regular, real_path, refuse_no_path
from shardproof.errors import ReceiptError
from shardproof.receipts._canonical import canonical_path

_ANYWHERE = "**"
_HAS_PATTERN = re.compile(r"[*?\[]")

Identity = Literal["mtime", "digest", "size"]  # by what a file is known again, beside its path


class InputFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file that a run reads, or some rows of it.

    Attributes:
        path: What names it: relative to the corpus, or a URL. The same on every machine.
        local_path: Where it is on this machine; no part of any hash.
        size: In bytes; 0 where it isn't known.
        etag: What a server or ``identity="digest"`` says of its content.
        mtime: Time of its last change, in seconds, for a local file.
        version_id: That of an object in a store with versions.
        hf_repo_id: The repository of the Hugging Face Hub that it is in.
        hf_filename: Its name there.
        hf_revision: The commit there, as `pin_hub` gives it.
        row_modulus: With ``row_remainder``: only rows whose number, counted from 0, leaves this
            remainder are meant. None: all rows.
        row_remainder: See ``row_modulus``.
    """

    path: str
    size: int
    local_path: str | None
    etag: str | None = None
    mtime: float | None = None
    version_id: str | None = None
    hf_repo_id: str | None = None
    hf_filename: str | None = None
    hf_revision: str | None = None
    row_modulus: int | None = None
    row_remainder: int | None = None

    def has_row(self, number: int) -> bool:
        """Whether a row of the file, counted from 0, is one of those that are meant."""
        return self.row_modulus is None or number % self.row_modulus == self.row_remainder


def identity_of(file: InputFile) -> dict[str, object]:
    """Return what a hash takes of a file: all but where it is and which rows are meant."""
    said = msgspec.structs.asdict(file)
    for name in ("local_path", "row_modulus", "row_remainder"):
        del said[name]
    return said | {"path": canonical_path(file.path)}


@checked
def input_files(
    path: str | os.PathLike[str], pattern: str = "**/*", *, identity: Identity = "mtime"
) -> list[InputFile]:
    """Return the files below a directory, sorted by path; hidden ones are left out.

    All of them or none: a directory that can't be listed is an error, and no plan is made of the
    rest.

    Args:
        path: The directory. Where it is doesn't matter to any hash, what is in it does.
        pattern: Which files: ``*``, ``?`` and ``[abc]`` as in a shell, and ``**`` for any number of
            directories. Links to files are files; a link to a directory is followed where a part of
            the pattern names it, and not by ``**``.
        identity: By what a changed file is told from an unchanged one of its size: the time of its
            last change; ``"digest"`` reads each file and takes its SHA-256, which a copy to another
            machine does not change; ``"size"`` trusts the size.

    Raises:
        ReceiptError: There are none, or a name that no plan can hold; every one is listed.
        ValueError: A pattern that is empty or absolute.
        OSError: One can't be checked, or a directory not be listed.

    Example:
        >>> from shardproof import receipts
        >>> corpus = receipts.input_files(text_dir, "*.txt")
        >>> tuple(file.path for file in corpus)
        ('a.txt', 'b.txt')
    """
    refuse_no_path(path=path)
    base = Path(real_path(path))
    names = files_below(os.fspath(base), pattern)
    files = [describe(base / name, name, identity) for name in names]
    if not files:
        problem = f"expected files '{shown(pattern)}' below '{shown(base)}', found none"
        raise ReceiptError(problem, path=base)
    if refused := refusals(names):
        lines = "".join(f"\n  - {quoted(name)}: {reason}" for _, name, reason in refused)
        raise ReceiptError(f"names below '{shown(base)}' that no plan can hold:{lines}", path=base)
    return files


def files_below(root: str, pattern: str) -> list[str]:
    """Return the relative paths of the regular files that a pattern means, sorted."""
    # Not by `pathlib.Path.glob`, which takes a directory that may not be listed for an empty one.
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    if not parts or pattern.startswith("/"):
        problem = "expected a pattern relative to the directory"
        raise ValueError(f"pattern: {problem}, such as '**/*.txt', found {quoted(pattern)}")
    if pattern.endswith("/") or not is_directory(root):
        return []
    parts += ["*"] if parts[-1] == _ANYWHERE else []
    found: set[str] = set()
    waiting, seen = [("", 0)], set()
    while waiting:
        place, n = waiting.pop()
        if (place, n) in seen:  # several `**` lead to one place by many ways
            continue
        seen.add((place, n))
        if parts[n] == _ANYWHERE:
            entries = _entries(os.path.join(root, place))
            below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            waiting += [(place, n + 1), *((os.path.join(place, name), n) for name in below)]
            continue
        if _HAS_PATTERN.search(parts[n]):
            fits = re.compile(fnmatch.translate(parts[n])).match
            entries = _entries(os.path.join(root, place))
            names = [entry.name for entry in entries if fits(entry.name)]
        else:
            names = [] if parts[n].startswith(".") else [parts[n]]
        paths = [os.path.join(place, name) for name in names]
        if n + 1 == len(parts):
            found.update(paths)
        else:
            waiting += [(path, n + 1) for path in paths if is_directory(os.path.join(root, path))]
    return sorted(name for name in found if is_regular(os.path.join(root, name)))


def _entries(directory: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(directory) as found:
            return [entry for entry in found if not entry.name.startswith(".")]
    except OSError as error:
        problem = "the directory could not be listed, and what is in it may belong to the plan"
        text = f"{error.strerror}: {problem}; make it readable, or leave it out by the pattern"
        raise type(error)(error.errno, text, directory) from error


def describe(path: Path, name: str, identity: Identity) -> InputFile:
    """Return one local file under a name of its own; refuse what is no regular file."""
    flags = OPEN_FLAGS & ~os.O_NOFOLLOW  # a corpus may be a directory of links
    with telling_where(path), closing_fd(os.open(path, flags)) as fd:
        status = os.fstat(fd)
        size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            problem = f"expected a regular file, found something else at '{shown(path)}'"
            raise ReceiptError(problem, path=path)
        etag = str(digest.of_file(fd, "sha256", size)) if identity == "digest" else None
    mtime = status.st_mtime if identity == "mtime" else None
    return InputFile(path=name, size=size, local_path=str(path), mtime=mtime, etag=etag)
