"""The attempts at one file: what is requested, what comes, and what is begun anew."""

import contextlib
import logging
from collections.abc import Callable

import msgspec

from shardproof._base.deadline import Deadline
from shardproof._base.messages import printable, shown
from shardproof.errors import SourceError
from shardproof.fetching.sources._source import RemoteFile, Response, Source
from shardproof.fetching.transfer._agreement import agree, as_given
from shardproof.fetching.transfer._asking import stat_once
from shardproof.fetching.transfer._attempts import NEXT_STEPS, Goal, NextStep, retry
from shardproof.fetching.transfer._limits import Limits
from shardproof.fetching.transfer._partial_file import PartialFile
from shardproof.fetching.transfer._record import Provenance
from shardproof.fetching.transfer._relay import ResponseStarted, relay
from shardproof.fetching.transfer._spans import Spans, is_worth_sharing

__all__ = ["FileFetch", "OnBytes"]

logger = logging.getLogger("shardproof.fetching")

OnBytes = Callable[[int, int | None], None]
"""Called with how many bytes are here, and of how many, where that is known."""


class FileFetch:
    """Fetches one file into a part, and counts what that costs.

    Args:
        source: Where it comes from.
        name: What it is called there.
        limits: How long and how often to try.
        on_bytes: Called with how far it is.
        is_asked: Whether what is known of the file is the source's word, which may be asked again.

    Attributes:
        n_attempts: How many attempts it took until now.
        n_bytes: How many bytes came, those for nothing too.
    """

    def __init__(
        self,
        source: Source,
        name: str,
        limits: Limits,
        on_bytes: OnBytes | None,
        *,
        is_asked: bool,
    ) -> None:
        self._source, self._name, self._limits = source, name, limits
        self._is_asked = is_asked
        self._on_bytes = on_bytes or _ignore
        self._connections = limits.connections
        self._asked: RemoteFile | None = None
        self.n_attempts = self.n_bytes = 0

    def run(
        self, part: PartialFile, wanted: RemoteFile, goal: Goal, deadline: Deadline
    ) -> tuple[RemoteFile, str]:
        """Return which file is in the part, whole and proven, and ``"sha256:<hex>"`` of it.

        Raises:
            FetchError: No attempt brought it.
            Cancelled: It is not wanted any more.
        """
        self._asked = wanted
        if part.is_left:
            logger.info(
                "Going on with %s: %d bytes of it are here", shown(goal.label), part.n_bytes
            )
            self._on_bytes(part.n_bytes, part.size)

        def attempt(deadline: Deadline) -> tuple[RemoteFile, str]:
            self.n_attempts += 1
            return self._attempt(part, wanted, goal, deadline)

        return retry(attempt, goal, self._limits, deadline)

    def _attempt(
        self, part: PartialFile, wanted: RemoteFile, goal: Goal, deadline: Deadline
    ) -> tuple[RemoteFile, str]:
        was_left = part.is_left
        try:
            self._asked = self._asked or self._ask_again(wanted, deadline)
            self._transfer(part, self._asked, deadline)
            return as_given(self._asked, part.identity), part.prove(self._asked, deadline)
        except SourceError as error:
            step = NEXT_STEPS[error.kind]
            if step is NextStep.RESTART_WHOLE:
                self._connections = 1
            if step.keeps_bytes:
                raise
            part.restart()
            self._asked = None
            if not was_left:
                raise
            logger.info(
                "What was left of %s is of no use: %s", shown(goal.label), printable(error.problem)
            )
        # What an earlier fetch has left was wrong: that is no attempt of this one.
        return self._attempt(part, wanted, goal, deadline)

    def provenance_of(self, wanted: RemoteFile) -> Provenance:
        """Return which file a part is of, as far as that is known before it comes."""
        url = self._source.url.encode(errors="backslashreplace").decode()
        return Provenance(
            source=url,
            resource=getattr(self._source, "resource", url),
            name=self._name,
            size=wanted.size,
            digest=wanted.digest,
        )

    def _ask_again(self, wanted: RemoteFile, deadline: Deadline) -> RemoteFile:
        """What the source said has turned out to be wrong; what a caller said stays."""
        if not self._is_asked:
            return wanted
        asked = stat_once(self._source, self._name, self._limits, deadline)
        return msgspec.structs.replace(asked, digest=wanted.digest or asked.digest)

    def _transfer(self, part: PartialFile, wanted: RemoteFile, deadline: Deadline) -> None:
        if part.n_bytes and part.identity is None and wanted.digest is None:
            part.restart()  # nobody can say whether the rest would be of the same file
        part.expect(wanted.size)
        if part.n_bytes and part.size is not None and not part.missing():
            return
        known = RemoteFile(self._name, part.size, part.identity) if part.n_bytes else None
        connections = self._connections if wanted.has_ranges else 1
        gaps = part.missing()
        if gaps in ([], [(0, wanted.size)]) and not is_worth_sharing(wanted.size, connections):
            gaps = [(0, None)]
        spans = Spans(gaps, connections)
        events = relay(
            self._source, self._name, spans, known=known, limits=self._limits, deadline=deadline
        )
        with contextlib.closing(events):
            for event in events:
                if isinstance(event, ResponseStarted):
                    agree(part, event, wanted, is_alone=spans.connections == 1)
                    self._write_down(part, event.response, wanted)
                else:
                    self.n_bytes += part.write(event.at, event.chunks)
                    self._on_bytes(part.n_bytes, part.size)
        if part.size is not None and part.missing():
            raise SourceError(f"it ended after {part.n_bytes} of {part.size} bytes")

    def _write_down(self, part: PartialFile, response: Response, wanted: RemoteFile) -> None:
        """Let another fetch go on from here, if it could tell that it is the same file."""
        identity = response.file.identity if response.file.is_lasting else None
        if response.has_ranges and (identity is not None or wanted.digest is not None):
            known = self.provenance_of(wanted)
            part.begin_record(msgspec.structs.replace(known, size=part.size, identity=identity))


def _ignore(n_bytes: int, size: int | None) -> None:
    """Do nothing with it."""
