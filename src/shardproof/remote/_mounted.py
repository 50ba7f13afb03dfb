"""List what is at an address, and let the listing answer for it."""

import contextlib
from collections.abc import Iterator

from shardproof._base.addresses import mounted_at, mounting, remote_at
from shardproof._base.messages import shown
from shardproof._base.work import Deadline, apart
from shardproof.errors import FetchError, ManifestError, ManifestNotFoundError, RevisionError
from shardproof.fetching import HttpSource, Limits, Source, open_source, sources
from shardproof.fetching.transfer import listed
from shardproof.remote._directory import ListedDirectory, unseen

_NOTHING = (
    "no object lies below this address. Are bucket and folder right? A store keeps no empty folders"
)


@contextlib.contextmanager
def at_address(address: str) -> Iterator[str]:
    """List an address, and yield the path that it then is; see `mounted`."""
    if (known := sources.bare(address)) and mounted_at(known):
        yield known
        return
    if sources.is_on_disk(address):
        remote_at(address)  # which says what to give instead
    with contextlib.closing(open_source(address)) as source:
        directory = _listed(source)
        with mounting(directory):
            yield directory.root


def _listed(source: Source) -> ListedDirectory:
    if isinstance(source, HttpSource):
        problem = "a web server lists no files: give hf://, s3://, gs:// or another store, or fetch"
        raise ValueError(f"{problem} the files and check them here; found '{shown(source.url)}'")
    limits = Limits()
    try:
        files = apart(lambda stop: listed(source, limits, Deadline(None, stop), source.url))
    except FetchError as error:
        cause = error.__cause__
        is_gone = isinstance(getattr(cause, "__cause__", None), FileNotFoundError)
        if is_gone or isinstance(cause, RevisionError):
            said = f"the store says that it is not there: {error.causes[-1]}"
            raise ManifestNotFoundError(said, path=source.url) from error
        raise unseen(error, source.url) from error
    if [file.name for file in files] == [""]:
        raise ManifestError("expected the address of a directory, found a file", path=source.url)
    if not files:
        raise ManifestNotFoundError(_NOTHING, path=source.url)
    return ListedDirectory(source, files, limits)
