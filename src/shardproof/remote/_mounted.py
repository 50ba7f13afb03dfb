"""List what is at an address, and let the listing answer for it."""

import contextlib
from collections.abc import Iterator

from shardproof._base.addresses import RemoteDirectory, mounted, mounted_at, remote_at
from shardproof._base.work import apart
from shardproof.errors import ManifestError, ManifestNotFoundError, RevisionError
from shardproof.fetching import HttpSource, Source, open_source, sources
from shardproof.remote._directory import ListedFiles, asking, files_of

_NOTHING = (
    "no object lies below this address. Are bucket and folder right? A store keeps no empty folders"
)
_NO_LINKS = (
    "the page at this address links to no file below it. Does the server list its folders? If not, "
    "give the address of a store, or fetch the files and check them here"
)


@contextlib.contextmanager
def at_address(address: str) -> Iterator[str]:
    """List an address, and yield the path that it then is; see `mounted`."""
    if mounted_at(known := sources.bare(address)):
        yield known
        return
    if sources.is_on_disk(address):
        remote_at(address)  # which says what to give instead
    with contextlib.closing(open_source(address)) as source:
        before, directory = mounted.directories, _listed(source)
        mounted.directories = (*before, directory)
        try:
            yield directory.root
        finally:
            mounted.directories = before


def _listed(source: Source) -> RemoteDirectory:
    try:
        with asking(source.url):
            files = apart(lambda stop: files_of(source, stop))
    except OSError as error:
        cause = getattr(error.__cause__, "__cause__", None)  # of the fetch that failed
        is_gone = isinstance(getattr(cause, "__cause__", None), FileNotFoundError)
        if is_gone or isinstance(cause, RevisionError):
            said = f"the store says that it is not there: {error.strerror}"
            raise ManifestNotFoundError(said, path=source.url) from error
        raise
    if [file.name for file in files] == [""]:
        raise ManifestError("expected the address of a directory, found a file", path=source.url)
    if not files:
        what = _NO_LINKS if isinstance(source, HttpSource) else _NOTHING
        raise ManifestNotFoundError(what, path=source.url)
    return ListedFiles(source, files).directory()
