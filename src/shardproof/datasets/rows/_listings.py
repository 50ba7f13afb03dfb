"""What a source says of itself before anything is fetched: its files, and its dataset card."""

from collections.abc import Sequence
from typing import NamedTuple

from shardproof._base.deadline import Deadline
from shardproof._base.messages import quoted, shown, told
from shardproof._base.threads import Stop
from shardproof._base.work import apart
from shardproof.datasets.rows._card import CARD_FILES, yaml_block
from shardproof.errors import FetchError, SourceError
from shardproof.fetching.sources import HubSource, RemoteFile, Source
from shardproof.fetching.transfer import Limits, listed, read_range

__all__ = ["Listing", "UnreachableError", "ask_listing"]

_MAX_CARD_BYTES = 8 * 2**20
_MARK = "\ufeff"


class UnreachableError(SourceError):
    """The source can't be asked, and has not refused either."""


class Listing(NamedTuple):
    """What there is.

    Attributes:
        files: All files; none of a source that doesn't list.
        card: The YAML of the dataset card, by the file that it is in; None if nobody has looked.
        commit: Of a repository of the Hub.
    """

    files: Sequence[RemoteFile] = ()
    card: dict[str, str] | None = None
    commit: str | None = None


def ask_listing(source: Source, limits: Limits, *, with_card: bool) -> Listing:
    """Return what a source says, asked as often as ``limits`` say.

    Raises:
        UnreachableError: It can't be asked.
        SourceError: It refuses to tell, or its card is none.
    """
    return apart(lambda stop: _asked(source, limits, stop, with_card=with_card))


def _asked(source: Source, limits: Limits, stop: Stop, *, with_card: bool) -> Listing:
    deadline = Deadline(limits.deadline, stop)
    try:
        files = listed(source, limits, deadline, "memory")
        card = _card(source, files, limits) if with_card else None
    except FetchError as error:
        raise _not_listed(source.url, error) from error
    return Listing(files, card, source.commit if isinstance(source, HubSource) else None)


def _not_listed(url: str, error: FetchError) -> SourceError:
    cause = error.__cause__
    reason = error.causes[-1] if error.causes else told(error)
    n = len(error.causes)
    problem = f"'{shown(url)}' can't be listed, after {n} attempt{'s' * (n != 1)}: {reason}"
    is_refused = isinstance(cause, SourceError) and cause.kind in {"refused", "astray"}
    kind = SourceError if is_refused else UnreachableError
    return kind(problem, kind="refused" if is_refused else "broken")


def _card(source: Source, files: Sequence[RemoteFile], limits: Limits) -> dict[str, str]:
    there = {file.name: file for file in files if file.name in CARD_FILES}
    texts = {name: _text(source, there[name], limits) for name in CARD_FILES if name in there}
    if "README.md" in texts:
        texts["README.md"] = yaml_block(texts["README.md"].removeprefix(_MARK))
    return texts


def _text(source: Source, file: RemoteFile, limits: Limits) -> str:
    """What a file of the card holds, which is the one that was listed."""
    where = f"the dataset card '{shown(source.url)}/{shown(file.name)}'"
    if file.size is None or file.size > _MAX_CARD_BYTES:
        problem = f"expected at most {_MAX_CARD_BYTES} bytes, found {file.size or 'no size'}"
        raise SourceError(f"{where}: {problem}. Name the files: data_files", kind="unusable")
    known = file if file.digest is None else None
    data = b""
    if file.size:
        data = read_range(
            source, file.name, 0, file.size, known=known, digest=file.digest, limits=limits
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        problem = f"expected UTF-8, found {quoted(data[error.start : error.end])}"
        raise SourceError(f"{where}: {problem}", kind="unusable") from None
