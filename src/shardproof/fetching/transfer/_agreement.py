"""Whether what a source answers is of the file that is wanted."""

import msgspec

from shardproof._base.messages import quoted
from shardproof.errors import SourceError
from shardproof.fetching.sources._source import RemoteFile
from shardproof.fetching.transfer._partial_file import PartialFile
from shardproof.fetching.transfer._relay import ResponseStarted

__all__ = ["agree", "as_given"]


def agree(part: PartialFile, event: ResponseStarted, wanted: RemoteFile, *, is_alone: bool) -> None:
    """Compare what a response says with what is known, before any byte of it is taken.

    Raises:
        SourceError: They are not of the same file, or not the bytes that were requested.
    """
    file, start = event.response.file, event.response.start
    if start != event.asked:
        if start or not is_alone:
            problem = f"asked for bytes from {event.asked} on, it gives bytes from {start} on"
            raise SourceError(problem, kind="no-parts")
        part.restart()  # the whole file instead: it has changed, or there are no ranges
    part.expect(wanted.size)
    part.expect(file.size)
    if part.identity not in {None, file.identity}:
        raise SourceError("the file has changed at the source", kind="other-bytes")
    if wanted.digest is None and _are_two(wanted.identity, file.identity):
        found = f"expected the file that is {_name_of(wanted)}, the source gives {_name_of(file)}"
        raise SourceError(found, kind="other-bytes")
    part.identity = file.identity
    if not is_alone and file.identity is None and wanted.digest is None:
        problem = "parts of a file that has neither entity tag nor digest may be of two files"
        raise SourceError(problem, kind="no-parts")
    if event.response.is_page and wanted.digest is None:
        raise SourceError("it gives a web page: a login, or an error", kind="other-bytes")
    if not event.response.is_framed and part.size is None and wanted.digest is None:
        problem = "nobody says how long it is, so that nobody could say whether all of it came"
        raise SourceError(f"{problem}: give its digest", kind="unusable")


def as_given(wanted: RemoteFile, identity: str | None) -> RemoteFile:
    """Return the wanted file as the source names it: proven bytes are it, whatever their name."""
    is_other = _are_two(wanted.identity, identity)
    return msgspec.structs.replace(wanted, identity=identity) if is_other else wanted


def _are_two(one: str | None, other: str | None) -> bool:
    """Whether two identities are of two files; those of two kinds can't be compared."""
    if one is None or other is None:
        return False
    one, other = str(one), str(other)  # a source of the user's may say a number
    if _kind_of(one) != _kind_of(other):
        return False
    # Some stores list a tag without the quotes that it has elsewhere.
    return one.replace('"', "") != other.replace('"', "")


def _kind_of(identity: str) -> str:
    """An entity tag, what a store calls by a name of its own, or what has none: a digest."""
    if identity.startswith('"'):
        return '"'
    return identity.partition("=")[0] if "=" in identity else ""


def _name_of(file: RemoteFile) -> str:
    return quoted(str(file.identity), 100)
