"""Attempt to fetch one file: what is requested, what is believed, and what is begun anew."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable

import msgspec

from shardproof._base.messages import printable, quoted, shown
from shardproof._base.work import Deadline
from shardproof.errors import SourceError
from shardproof.fetching.sources._source import RemoteFile, Source
from shardproof.fetching.transfer._attempts import DISTRUSTED, Goal, Limits, retry
from shardproof.fetching.transfer._partial_file import PartialFile, Provenance
from shardproof.fetching.transfer._relay import ResponseStarted, Spans, is_worth_sharing, relay
from shardproof.fetching.transfer._requests import stat_once, tells_when_read

logger = logging.getLogger("shardproof.fetching")

OnBytes = Callable[[int, int | None], None]  # how many bytes are here; of how many, if known


@dataclasses.dataclass(slots=True)
class FileFetch:
    """Fetches one file into a part, and counts the attempts and bytes that it takes."""

    source: Source
    name: str
    limits: Limits
    on_bytes: OnBytes
    is_asked: bool
    n_attempts: int = 0
    n_bytes: int = 0
    _gives_no_parts: bool = False
    _is_unasked: bool = False
    _asked: RemoteFile | None = None
    _answered: RemoteFile | None = None

    def run(
        self, part: PartialFile, wanted: RemoteFile, goal: Goal, deadline: Deadline
    ) -> tuple[RemoteFile, str]:
        """Return which file is in the part, whole and proven, and ``"sha256:<hex>"`` of it."""
        self._asked = wanted
        is_unknown = wanted == RemoteFile(self.name)
        self._is_unasked = self.is_asked and is_unknown and tells_when_read(self.source)
        if part.is_left:
            text = "Going on with %s: %d bytes of it are here"
            logger.info(text, shown(goal.label), part.n_bytes)
            self.on_bytes(part.n_bytes, part.size)

        def attempt(deadline: Deadline) -> tuple[RemoteFile, str]:
            self.n_attempts += 1
            return self._attempt(part, wanted, goal, deadline)

        return retry(attempt, goal, self.limits, deadline)

    def _attempt(
        self, part: PartialFile, wanted: RemoteFile, goal: Goal, deadline: Deadline
    ) -> tuple[RemoteFile, str]:
        was_left = part.is_left
        try:
            if self._asked is None and not self.is_asked:
                self._asked = wanted  # what the caller said stays
            elif self._asked is None:  # what the source said has turned out to be wrong
                asked = stat_once(self.source, self.name, self.limits, deadline)
                self._asked = msgspec.structs.replace(asked, digest=wanted.digest or asked.digest)
            self._transfer(part, self._asked, deadline)
            return self._fetched(part, self._asked), part.prove(self._asked, deadline)
        except SourceError as error:
            if error.kind == "no-parts":
                self._gives_no_parts = True
            learns_size = self._learns_size(error, deadline)
            if error.kind not in DISTRUSTED and not learns_size:
                raise
            part.restart()
            if not learns_size:
                self._asked = None
            if not was_left and not learns_size:
                raise
            text = "What was left of %s, or known, is of no use: %s"
            logger.info(text, shown(goal.label), printable(error.problem))
        # What an earlier fetch has left was wrong: that is no attempt of this one.
        return self._attempt(part, wanted, goal, deadline)

    def _learns_size(self, error: SourceError, deadline: Deadline) -> bool:
        """Ask for the size, once, where a file came without one; say whether that was done."""
        if not (isinstance(error, _NoSizeError) and self._is_unasked):
            return False
        self._asked = stat_once(self.source, self.name, self.limits, deadline)
        self._is_unasked = False  # only now: after one that failed it is asked again
        return True

    def _fetched(self, part: PartialFile, asked: RemoteFile) -> RemoteFile:
        """Return which file has come: what was told of it before, or else as it came."""
        if self._answered is not None and asked == RemoteFile(self.name, digest=asked.digest):
            return msgspec.structs.replace(self._answered, digest=asked.digest)
        if _are_two(asked.identity, part.identity):  # the proven bytes are it, by another name
            return msgspec.structs.replace(asked, identity=part.identity)
        return asked

    def provenance_of(self, wanted: RemoteFile) -> Provenance:
        """Return which file a part is of, as far as that is known before it comes."""
        url = self.source.url.encode(errors="backslashreplace").decode()
        resource = getattr(self.source, "resource", url)
        return Provenance(
            source=url, resource=resource, name=self.name, size=wanted.size, digest=wanted.digest
        )

    def _transfer(self, part: PartialFile, wanted: RemoteFile, deadline: Deadline) -> None:
        if part.n_bytes and part.identity is None and wanted.digest is None:
            part.restart()  # the rest might be of another file
        part.expect(wanted.size)
        if part.n_bytes and part.size is not None and not part.missing():
            return
        known = RemoteFile(self.name, part.size, part.identity) if part.n_bytes else None
        has_parts = wanted.has_ranges and not self._gives_no_parts
        connections = self.limits.connections if has_parts else 1
        gaps = part.missing()
        if gaps in ([], [(0, wanted.size)]) and not is_worth_sharing(wanted.size, connections):
            gaps = [(0, None)]
        spans = Spans(gaps, connections)
        events = relay(
            self.source, self.name, spans, known=known, limits=self.limits, deadline=deadline
        )
        with contextlib.closing(events):
            for event in events:
                if isinstance(event, ResponseStarted):
                    is_alone = spans.connections == 1
                    _agree(part, event, wanted, is_alone=is_alone, may_ask=self._is_unasked)
                    self._begin(part, event, wanted, spans)
                else:
                    most = self.limits.max_unsized_bytes
                    if part.size is None and part.n_bytes + event.n_bytes > most:
                        problem = f"at most {most} bytes of a file of unknown size, found more"
                        advice = "give its size, or raise Limits.max_unsized_bytes"
                        raise SourceError(f"expected {problem}: {advice}", kind="other-bytes")
                    self.n_bytes += part.write(event.at, event.chunks)
                    self.on_bytes(part.n_bytes, part.size)
        if part.size is not None and part.missing():
            raise SourceError(f"it ended after {part.n_bytes} of {part.size} bytes")

    def _begin(
        self, part: PartialFile, event: ResponseStarted, wanted: RemoteFile, spans: Spans
    ) -> None:
        """Let another fetch, and further connections, go on where they can tell that it is it."""
        self._answered = file = event.response.file
        size, connections = file.size, self.limits.connections
        identity = file.identity if file.is_lasting else None
        if event.response.has_ranges and (identity is not None or wanted.digest is not None):
            known = self.provenance_of(wanted)
            part.begin_record(msgspec.structs.replace(known, size=part.size, identity=identity))
        if event.asked or spans.connections > 1 or not file.has_ranges or self._gives_no_parts:
            return
        can_be_told = file.identity is not None or wanted.digest is not None
        # Only the response tells that the file is large.
        if can_be_told and size is not None and is_worth_sharing(size, connections):
            spans.share(size, connections)


class _NoSizeError(SourceError):
    """Nobody has said how long the file is."""


def _agree(
    part: PartialFile, event: ResponseStarted, wanted: RemoteFile, *, is_alone: bool, may_ask: bool
) -> None:
    """Compare what a response says with what is known, before any byte of it is taken."""
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
        expected, found = quoted(str(wanted.identity), 100), quoted(str(file.identity), 100)
        problem = f"expected the file that is {expected}, the source gives {found}"
        raise SourceError(problem, kind="other-bytes")
    part.identity = file.identity
    if not is_alone and file.identity is None and wanted.digest is None:
        problem = "parts of a file that has neither entity tag nor digest may be of two files"
        raise SourceError(problem, kind="no-parts")
    if event.response.is_page and wanted.digest is None:
        raise SourceError("it gives a web page: a login, or an error", kind="other-bytes")
    if part.size is None and wanted.digest is None and (may_ask or not event.response.is_framed):
        problem = "its length is unknown, so a truncated answer would look complete"
        raise _NoSizeError(f"{problem}: give its digest", kind="unusable")


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
    # An entity tag, a store's own word such as "generation=1", or a digest.
    if identity.startswith('"'):
        return '"'
    return identity.partition("=")[0] if "=" in identity else ""
