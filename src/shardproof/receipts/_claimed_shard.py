"""The work on one claimed shard: outputs, further fields, and the receipt that says how it went."""

import logging
import os
import stat
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from shardproof._base import digest, files
from shardproof._base.arguments import checked
from shardproof._base.holds import Heartbeat
from shardproof._base.messages import printable, quoted, said, shown, told
from shardproof._base.names import OPEN_FLAGS, file_type, refusals
from shardproof._base.opening import closing_fd
from shardproof.errors import ClaimLostError, ReceiptError, UnsyncedError
from shardproof.receipts._canonical import plain
from shardproof.receipts._claims import Claim
from shardproof.receipts._directories import RECEIPTS, RESERVED, PlanHeader, receipt_name
from shardproof.receipts._input_files import InputFile
from shardproof.receipts._records import (
    OWN_FIELDS,
    Receipt,
    beside_files,
    encode_receipt,
    is_empty,
    kind_of,
    why_lacking,
)
from shardproof.receipts._workspace import Workspace

logger = logging.getLogger("shardproof.receipts")

_MAX_TEXT = 50_000

_MAX_RECORDED = 2**16  # bytes of further fields: with an error's text they fit into a receipt


class ClaimedShard:
    """A shard that this worker claimed, to be entered: ``with work:`` begins the work on it.

    `ReceiptStore.claim` and `ReceiptStore.claim_pending` make it. What is written outside the block
    would be recorded nowhere, so `output_path` gives it no place.

    Attributes:
        index: The shard.
        stats: Counts to record with it, such as ``num_sequences``; values of JSON.

    Example:
        >>> import shardproof
        >>> store = shardproof.ReceiptStore(plan_dir)
        >>> with store.claim(1) as work:
        ...     n_bytes = work.output_path("shard_000001.bin").write_bytes(b"tokens")
        ...     work.stats["num_sequences"] = 1
        >>> store.receipt(1).stats
        {'num_sequences': 1}
    """

    def __init__(
        self,
        claim: Claim,
        header: PlanHeader,
        heartbeat: float,
        input_files: Callable[[], Sequence[InputFile]],
    ) -> None:
        self.index = claim.index
        self.stats: dict[str, Any] = {}
        self._claim = claim
        self._receipt = Receipt(
            status="started",
            plan_hash=header.plan_hash,
            shard_index=claim.index,
            run_hash=header.run_hash,
            dataset_name=header.dataset_name,
        )
        self._kinds, self._root = header.kinds, header.root
        self._input_files = input_files
        self._workspace = Workspace(claim.workspace, header.root)
        self._names: dict[str, str] = {}
        self._seconds_between_beats = heartbeat
        self._heartbeat: Heartbeat | None = None
        self._lost: ClaimLostError | None = None
        self._pid = os.getpid()
        self._is_over = self._is_given_back = False

    @property
    def files(self) -> Sequence[InputFile]:
        """The source files that the plan gives to the shard, or the rows of them."""
        return self._input_files()

    @checked
    def output_path(self, name: str, kind: str | None = None) -> Path:
        """Return where to write an output; it gets its name when the block ends.

        The place is in a directory of this claim alone, under the output's own file name.

        Args:
            name: Its path relative to the plan directory.
            kind: What the receipt calls it; by default the name's suffix without the dot, and
                ``"jsonl"`` also for ``.jsonl.zst``. An output of that kind stands at the top of the
                receipt too, as ``output_file``, by which Nemotron goes.

        Raises:
            ReceiptError: Outside the ``with`` block; a name that no output can have, or another
                output of this kind, or of a name that differs in case alone; or where its directory
                is to be is no directory, or a link that leads out.
            OSError: It could not be checked (EIO, ESTALE, ...).
        """
        if self._is_over or self._heartbeat is None:
            state = "the work is over" if self._is_over else "the work has not begun"
            raise self._problem(f"{state}; write `with work:` around it, or its outputs are lost")
        kind = kind or kind_of(name)
        others = {*self._names.values()} - {name}  # of which none is refused
        reasons = [reason for _, _, reason in refusals([*others, name])]
        if name.split("/", 1)[0].lower() in RESERVED:
            reasons.append("the plan directory needs it")
        if reasons:
            raise self._problem(f"no output can be called {quoted(name)}: {reasons[0]}")
        if self._names.setdefault(kind, name) != name:
            found = f"found {quoted(self._names[kind])} and {quoted(name)}; give each its kind"
            raise self._problem(f"expected one output of kind {quoted(kind)}, {found}")
        if list(self._names.values()).count(name) > 1:
            raise self._problem(f"the output {quoted(name)} is of another kind already")
        self._workspace.refuse_links(name)  # before the work; what comes later, `move` refuses
        return self._workspace.place(name)

    @checked
    def record(self, /, **fields: object) -> None:
        """Write further fields at the top of the receipt, be it completed or failed.

        Args:
            **fields: Values of JSON, 64 KiB in all; what is named again is replaced.

        Raises:
            ReceiptError: A field of the receipt's own, too many bytes, or the work is over.
            TypeError: A value that JSON has no word for.
            ValueError: NaN, infinity, text that is no Unicode, or an integer that other readers of
                JSON would round.

        Example:
            >>> import shardproof
            >>> store = shardproof.ReceiptStore(plan_dir)
            >>> with store.claim(0) as work:
            ...     work.record(split="train")
            ...     work.mark_empty()
            >>> store.receipt(0).extra
            {'split': 'train'}
        """
        if self._is_over:
            raise self._problem("the work is over, and its receipt is written")
        if taken := OWN_FIELDS.intersection(fields):
            problem = f"the field {quoted(min(taken))} is the receipt's own; use another name"
            raise self._problem(problem)
        extra = self._receipt.extra | {name: plain(fields[name], name) for name in fields}
        try:
            size = len(msgspec.json.encode(extra))
        except UnicodeEncodeError as error:
            raise ValueError(f"fields: expected Unicode, found {quoted(error.object)}") from None
        if size > _MAX_RECORDED:
            problem = f"expected at most {_MAX_RECORDED} bytes of further fields, found {size}"
            raise self._problem(problem)
        self._receipt = msgspec.structs.replace(self._receipt, extra=extra)

    def mark_empty(self) -> None:
        """Say that the shard holds nothing, and that no outputs are owed."""
        self.stats["num_sequences"] = 0

    def raise_if_lost(self) -> None:
        """Raise if another worker took the shard over; call it now and then in long work.

        Raises:
            ClaimLostError: Another worker took the shard over.
            OSError: The file system failed.
        """
        if self._lost is not None:
            raise self._lost
        self._claim.raise_if_lost()

    def _beat(self) -> bool:
        """Show life; return whether the claim still holds, as far as is known."""
        try:
            self._claim.beat()
        except ClaimLostError as error:
            logger.warning("What this worker does for it no longer counts: %s", told(error))
            self._lost = error
        except OSError as error:
            # The next one may succeed; if none does, others take the shard over.
            logger.warning("No sign of life of shard %d: %s", self.index, told(error))
        return self._lost is None

    def close(self) -> None:
        """Give the shard back, if that was not done yet."""
        if self._is_given_back or os.getpid() != self._pid:  # a child's copy is its parent's claim
            return
        try:
            self._end()
        finally:
            self._claim.give_back()  # whatever became of the work stays true
        self._is_given_back = True

    def abandon(self) -> None:
        """Leave everything as if the process had been killed; for tests."""
        self._is_given_back = True
        self._end()

    def _end(self) -> None:
        self._is_over = True
        if self._heartbeat is not None:
            self._heartbeat.stop()

    def __enter__(self) -> "ClaimedShard":
        if self._is_over:
            raise self._problem("the work is over; claim the shard again")
        if self._heartbeat is not None:
            raise self._problem("the work has begun already; enter it once")
        try:
            self._claim.raise_if_lost()  # there were no signs of life since it was made
            self._receipt = msgspec.structs.replace(self._receipt, started_at=time.time())
            self._write(self._receipt)
            name = f"shardproof-claim-{self.index}"
            self._heartbeat = Heartbeat(self._beat, self._seconds_between_beats, name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> Literal[False]:
        if self._is_over or os.getpid() != self._pid:
            self.close()
            return False  # a forked child leaves its parent's block too
        try:
            if error is None:
                self._complete()
            elif isinstance(error, Exception):
                self._fail(error)
        finally:
            self.close()
        return False

    def _complete(self) -> None:
        receipt = None
        try:
            receipt = self._with_outputs()
            self._write(receipt)
        except Exception as error:
            if receipt is None or not isinstance(error, UnsyncedError):
                self._fail(error)  # or the receipt is there, and says completed
            raise
        logger.info("Shard %d of '%s' is completed", self.index, shown(self._root))

    def _with_outputs(self) -> Receipt:
        """Move the outputs to their names; return the receipt that says so."""
        self.raise_if_lost()
        receipt = msgspec.structs.replace(
            self._receipt, status="completed", completed_at=time.time(), stats=self.stats
        )
        described = {kind: self._described(name) for kind, name in self._names.items()}
        outputs = {kind: output for kind, output in described.items() if output is not None}
        if not is_empty(receipt):
            if not outputs:
                problem = "expected outputs, found none; mark_empty() says that it is empty"
                raise self._problem(problem)
            if lacking := why_lacking(outputs, self._kinds or outputs):
                raise self._problem(lacking)
        extra = receipt.extra | beside_files(outputs)
        kinds = tuple(outputs) if outputs and not self._kinds else None
        receipt = msgspec.structs.replace(receipt, files=outputs, kinds=kinds, extra=extra)
        encode_receipt(receipt)  # what can't be recorded is refused before any output is replaced
        self.raise_if_lost()
        try:
            for output in outputs.values():
                self._workspace.move(output["path"])
        finally:
            self.raise_if_lost()  # then another worker may have removed them
        return receipt

    def _described(self, name: str) -> dict[str, Any] | None:
        """Sync and hash an output; return None for one that an empty shard has not written."""
        path = self._workspace.path_of(name)
        try:
            fd = os.open(path, OPEN_FLAGS)
        except FileNotFoundError as error:
            if self.stats.get("num_sequences") == 0:
                return None
            raise self._problem(f"expected an output at '{shown(path)}', found nothing") from error
        with closing_fd(fd):
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                found = file_type(status.st_mode)
                raise self._problem(f"expected a regular file at '{shown(path)}', found a {found}")
            checksum = str(digest.of_file(fd, "sha256", status.st_size))
            files.sync(fd)
        return {"path": name, "bytes": status.st_size, "checksum": checksum}

    def _fail(self, error: Exception) -> None:
        """Write the receipt that says failed, if the claim still holds; never raise an error."""
        try:
            self._claim.raise_if_lost()
            failed = msgspec.structs.replace(
                self._receipt,
                status="failed",
                failed_at=time.time(),
                error_type=type(error).__name__,
                error_message=_text(said(error)),
                traceback=_text("".join(traceback.format_exception(error))),
            )
            self._write(failed)
        except ClaimLostError as lost:
            if lost is not error:
                _note(error, f"Nothing was recorded: {told(lost)}")
        except UnsyncedError as second:
            _note(error, f"That it failed is recorded: {told(second)}")
        except Exception as second:
            _note(error, f"That it failed could not be recorded: {told(second)}")

    def _write(self, receipt: Receipt) -> None:
        self._workspace.write(f"{RECEIPTS}/{receipt_name(self.index)}", encode_receipt(receipt))

    def _problem(self, problem: str) -> ReceiptError:
        text = f"shard {self.index} of '{shown(self._root)}': {problem}"
        return ReceiptError(text, path=self._root, index=self.index)


def _note(error: Exception, note: str) -> None:
    """Add a note to an error, or log it where the error takes none, as a frozen one."""
    try:
        error.add_note(note)
    except Exception:
        logger.warning("%s", printable(note))


def _text(text: str) -> str:
    """Return the end of a text, without what JSON can't hold."""
    return text[-_MAX_TEXT:].encode(errors="backslashreplace").decode()
