"""A promise from elsewhere: what a source lists, a list of digests, or another directory."""

import contextlib
import errno
import fnmatch
import functools
import os
from collections.abc import Sequence
from typing import Any

from shardproof import formats
from shardproof._base import digest, digest_lists, fanout
from shardproof._base.messages import shown
from shardproof._base.names import (
    NotRegularError,
    open_inside,
    open_regular,
    open_root,
    real_root,
    spelled,
)
from shardproof._base.opening import closing_fd, files_below, is_directory, is_of_a_desktop, mode_of
from shardproof._base.work import Deadline, go_on
from shardproof.errors import ManifestError
from shardproof.fetching import Limits, open_source, sources
from shardproof.fetching.transfer import listed, read_range
from shardproof.manifest import ExpectedFile

_MAX_LIST_BYTES = 256 * 2**20


def expected_at(address: str, root: str, *, reads: bool) -> dict[str, Any]:
    """Return the fields of the manifest at an address, or at a path, of a directory."""
    is_address = "://" in address
    where = shown_address(address) if is_address else os.path.abspath(address)
    if is_address:
        fields = _stated_at(address, root)
    elif is_directory(address):
        fields = {"files": _in_directory(real_root(address), reads=reads)}
    else:
        (folder, name), remarks = os.path.split(where), digest_lists.Remarks([], [])
        entries = digest_lists.read(real_root(folder), name, remarks, at=root)
        fields = _fields_of(entries, remarks, name, root)
    if not fields["files"]:
        problem = "expected a manifest, but it lists no files: is it the right one? On a "
        problem += "web server, give a list of digests that is there"
        raise ManifestError(problem, path=where)
    return fields


def shown_address(address: str) -> str:
    """Return an address, or a path, as a message may show it: without passwords and tokens."""
    return sources.bare(address) if "://" in address else shown(address)


def _fields_of(
    entries: Sequence[tuple[str, str]], remarks: digest_lists.Remarks, list_name: str, root: str
) -> dict[str, Any]:
    """Return what a list promises, but for itself, as `digest_lists.stated_by` does."""
    stated: dict[str, list[str]] = {}
    for name, text in entries:
        stated.setdefault(name, []).append(text)
    stated.pop(list_name, None)
    return formats.fields_of(stated, remarks, root)


def _stated_at(address: str, root: str) -> dict[str, Any]:
    """Return what a list of digests at an address states, or what the source there lists."""
    limits, remarks = Limits(max_unsized_bytes=_MAX_LIST_BYTES), digest_lists.Remarks([], [])
    list_name = shown_address(address).rpartition("/")[2]
    is_named_so = digest_lists.is_list(list_name) or list_name.endswith((".txt", ".asc"))
    if is_named_so and not sources.is_repository(address):
        folder, name = sources.split_name(address)
        with contextlib.closing(open_source(folder)) as source:
            data = read_range(source, name, limits=limits)
            path = f"{source.url}/{name}"
            entries = digest_lists.parse(data, path=path, remarks=remarks, at=root)
            return _fields_of(entries, remarks, name, root)
    with contextlib.closing(open_source(address)) as source:
        files = listed(source, limits, Deadline(None), source.url)
    return {"files": [ExpectedFile(name=f.name, size=f.size, digest=f.digest) for f in files]}


def _in_directory(root: str, *, reads: bool) -> list[ExpectedFile]:
    """Return the files of another directory; what they hash to, if asked."""
    with closing_fd(open_root(root)) as dir_fd:
        n_threads = fanout.available_cpus() if reads else None
        work = functools.partial(_as_they_are, root, dir_fd, reads)
        return fanout.collected(work, _names_in(root), n_threads, chunk=1 if reads else 64)


def _names_in(root: str) -> list[str]:
    """Return what lies in a directory; of hidden files those that are part of its format."""
    names, parts = files_below(root), set[str]()
    with contextlib.suppress(ManifestError):  # it is of no format, or of two, or is not whole
        form = formats.detect(root)
        patterns = [each for each in (form.manifest_file, *form.further_parts) if each[0] == "."]
        below = files_below(root, hidden=True) if patterns else []
        found = (name for pattern in patterns for name in fnmatch.filter(below, pattern))
        parts.update(name for name in found if not is_of_a_desktop(os.path.basename(name)))
        parts.update(file.name for file in form.read_manifest(root).files)
    names = spelled(names, parts, root)
    hidden = sorted(parts.difference(names))
    return names + [name for name in hidden if mode_of(os.path.join(root, name))]


def _as_they_are(root: str, dir_fd: int, reads: bool, names: Sequence[str]) -> list[ExpectedFile]:
    files = []
    for name in names:
        try:
            with closing_fd(_opened(root, dir_fd, name)) as fd:
                size = os.fstat(fd).st_size
                found = str(digest.of_file(fd, "sha256", size, go_on=go_on)) if reads else None
        except OSError as error:  # which has the name at most
            raise OSError(error.errno, os.strerror(error.errno or 0), f"{root}/{name}") from error
        files.append(ExpectedFile(name=name, size=size, digest=found))
    return files


def _opened(root: str, dir_fd: int, name: str) -> int:
    """Open a file of a directory that the user has named: behind a link too, wherever it leads."""
    try:
        return open_inside(name, root=root, dir_fd=dir_fd)
    except NotRegularError as error:
        found = error.found
        with contextlib.suppress(NotRegularError):
            fd = None if error.outside is None else open_regular(error.outside)
            if fd is not None:
                return fd
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ELOOP}:
            raise
        found = "link to nothing"
    raise ManifestError(f"expected regular files, found a {found}", path=os.path.join(root, name))
