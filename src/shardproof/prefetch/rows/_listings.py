"""What a source says of itself before anything is fetched: its files, and its dataset card."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from shardproof._messages import quoted, shown, told
from shardproof._threads import Stop
from shardproof.errors import FetchError, SourceError
from shardproof.prefetch.rows._card import CARD_FILES, yaml_block
from shardproof.prefetch.sources._hub import HubSource
from shardproof.prefetch.sources._source import Cut, RemoteFile, Source
from shardproof.prefetch.transfer._attempts import Goal, try_again
from shardproof.prefetch.transfer._clock import Clock
from shardproof.prefetch.transfer._fetch import read_range
from shardproof.prefetch.transfer._limits import Limits
from shardproof.prefetch.transfer._relay import call

__all__ = ["Listing", "UnreachableError", "ask_listing"]

_MAX_CARD_BYTES = 8 * 2**20
Result = TypeVar("Result")

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
    try:
        files = _files(source, limits)
        card = _card(source, files, limits) if with_card else None
    except FetchError as error:
        raise _not_listed(source.url, error) from error
    return Listing(files, card, source.commit if isinstance(source, HubSource) else None)


def _files(source: Source, limits: Limits) -> Sequence[RemoteFile]:
    goal = Goal("the listing", source.url, "memory")
    all_time = Clock(limits.deadline, Stop())

    def ask(request: Callable[[float, Cut | None], Result], /) -> Result:
        def once(clock: Clock) -> Result:
            timeout = clock.left(limits.stall_after)
            return call(lambda cut: request(timeout, cut), limits, clock)

        return try_again(once, goal, limits, all_time)

    if isinstance(source, HubSource):
        return source.files(ask)
    # Of others nobody can say how far they are.
    limits = dataclasses.replace(limits, stall_after=limits.download_timeout)
    return ask(lambda *_: source.files())


def _not_listed(url: str, error: FetchError) -> SourceError:
    cause = error.__cause__
    reason = error.causes[-1] if error.causes else told(error)
    n = len(error.causes)
    problem = f"'{shown(url)}' can't be listed, after {n} attempt{'s' * (n != 1)}: {reason}"
    is_refused = isinstance(cause, SourceError) and cause.again == "once"
    kind = SourceError if is_refused else UnreachableError
    return kind(problem, again="once" if is_refused else "yes")


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
        raise SourceError(f"{where}: {problem}. Name the files: data_files", again="no")
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
        raise SourceError(f"{where}: {problem}", again="no") from None
