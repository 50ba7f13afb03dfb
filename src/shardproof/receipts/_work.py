"""The work on one claimed shard, from ``started`` to ``completed`` or ``failed``."""

import contextlib
import errno
import itertools
import logging
import os
import stat
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec

from shardproof._base import digest as _digest
from shardproof._base import files as _files
from shardproof._base.arguments import checked
from shardproof._base.beneath import OutsideError, open_beneath
from shardproof._base.messages import printable, quoted, said, shown, told
from shardproof._base.names import OPEN_FLAGS, file_type, open_root, refusals
from shardproof._base.opening import mode_of
from shardproof.errors import ClaimLostError, ReceiptError, UnsyncedError
from shardproof.receipts.claims._claims import Claim
from shardproof.receipts.claims._heartbeat import Heartbeat
from shardproof.receipts.plan._canonical import plain
from shardproof.receipts.plan._input_files import SourceFile
from shardproof.receipts.plan._layout import CLAIMS, RECEIPTS, receipt_name, reserved, told_of
from shardproof.receipts.verdict._outputs import beside_files, is_empty, kind_of, why_lacking
from shardproof.receipts.verdict._records import OWN_FIELDS, Receipt, encode_receipt

__all__ = ["Work"]

logger = logging.getLogger("shardproof.receipts")

_MAX_TEXT = 50_000

_MAX_RECORDED = 2**16
"""Most bytes of further fields: with an error's text they fit into a receipt that is read again."""

_NO_FOLDER = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}

_PASSING = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
"""How a folder is opened on the way to another: what may be searched need not be readable."""


class Work:
    """The work on one shard that was claimed; `ReceiptStore.claim` makes it, ``with`` begins it.

    Attributes:
        index: The shard.
        stats: Counts to record with it, such as ``num_sequences``; values of JSON.
    """

    def __init__(
        self,
        claim: Claim,
        receipt: Receipt,
        kinds: Sequence[str],
        files_of: Callable[[int], Sequence[SourceFile]],
    ) -> None:
        self.index = claim.index
        self.stats: dict[str, Any] = {}
        self._claim = claim
        self._receipt = receipt
        self._kinds = kinds
        self._files_of = files_of
        self._root = Path(claim.claims.root)
        self._names: dict[str, str] = {}
        self._heartbeat: Heartbeat | None = None
        self._pid = os.getpid()
        self._is_over = False
        self._is_given_back = False

    @property
    def files(self) -> Sequence[SourceFile]:
        """The source files that the plan gives to the shard, or the rows of them."""
        return self._files_of(self.index)

    @checked
    def output(self, name: str, kind: str | None = None) -> Path:
        """Return where to write an output; it gets its name when the block ends.

        The place is in a directory of this claim alone, under the output's own file name.

        Args:
            name: Its path relative to the plan directory.
            kind: What the receipt calls it; by default the name's suffix without the dot, and
                ``"jsonl"`` also for ``.jsonl.zst``. An output of that kind stands at the top of the
                receipt too, as ``output_file``, by which Nemotron goes.

        Raises:
            ReceiptError: A name that no output can have, or another output of this kind; or where
                its directory is to be is no directory, or a link that leads out.
            OSError: Nobody could look at that.
        """
        kind = kind or kind_of(name)
        reasons = [reason for _, _, reason in refusals([name])]
        if reserved(name):
            reasons.append("the plan directory needs it")
        if reasons:
            raise self._problem(f"no output can be called {quoted(name)}: {reasons[0]}")
        if self._names.setdefault(kind, name) != name:
            problem = (
                f"expected one output of kind {quoted(kind)}, found {quoted(self._names[kind])}"
            )
            raise self._problem(f"{problem} and {quoted(name)}; give each its kind")
        if list(self._names.values()).count(name) > 1:
            raise self._problem(f"the output {quoted(name)} is of another kind already")
        self._refuse_links(name)
        return self._place(name)

    def _refuse_links(self, name: str) -> None:
        """Look before any work is done; whatever comes later, `_put` refuses."""
        with contextlib.suppress(FileNotFoundError), _folder_of(name, self._root, make=False):
            pass

    def _place(self, name: str) -> Path:
        """Return where to write what is to have a name later: in the claim's own directory."""
        path = Path(self._claim.workspace, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

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
            >>> store.read(0).extra
            {'split': 'train'}
        """
        if self._is_over:
            raise self._problem("the work is over, and its receipt is written")
        if taken := OWN_FIELDS.intersection(fields):
            raise self._problem(
                f"the field {quoted(min(taken))} is the receipt's own; use another name"
            )
        extra = self._receipt.extra | {name: plain(fields[name], name) for name in fields}
        if (size := _encoded_size(extra)) > _MAX_RECORDED:
            problem = f"expected at most {_MAX_RECORDED} bytes of further fields, found {size}"
            raise self._problem(problem)
        self._receipt = msgspec.structs.replace(self._receipt, extra=extra)

    def mark_empty(self) -> None:
        """Say that the shard holds nothing, and that no outputs are owed."""
        self.stats["num_sequences"] = 0

    def check(self) -> None:
        """Do nothing while the claim holds; to be called now and then in long work.

        Raises:
            ClaimLostError: Another worker took the shard over.
            OSError: The file system failed.
        """
        if self._heartbeat is not None and self._heartbeat.lost is not None:
            raise self._heartbeat.lost
        self._claim.check()

    def close(self) -> None:
        """Give the shard back, if that was not done yet."""
        if self._is_given_back or os.getpid() != self._pid:
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
        self._claim.close()

    def _end(self) -> None:
        self._is_over = True
        if self._heartbeat is not None:
            self._heartbeat.stop()

    def __enter__(self) -> "Work":
        if self._is_over:
            raise self._problem("the work is over; claim the shard again")
        try:
            self._claim.check()  # there were no signs of life since it was made
            self._receipt = msgspec.structs.replace(self._receipt, started_at=time.time())
            self._write(self._receipt)
            self._heartbeat = Heartbeat(self._claim)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
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
        try:
            receipt = self._with_outputs()
        except Exception as error:
            self._fail(error)
            raise
        try:
            self._write(receipt)
        except UnsyncedError:
            raise  # it is completed, as far as anybody can see
        except Exception as error:
            self._fail(error)
            raise
        logger.info("Shard %d of '%s' is completed", self.index, shown(self._root))

    def _with_outputs(self) -> Receipt:
        """Move the outputs to their names; return the receipt that says so."""
        self.check()
        receipt = msgspec.structs.replace(
            self._receipt, status="completed", completed_at=time.time(), stats=self.stats
        )
        files = {
            kind: said for kind, name in self._names.items() if (said := self._described(name))
        }
        self._refuse_too_few(receipt, files)
        extra = receipt.extra | beside_files(files)
        kinds = tuple(files) if files and not self._kinds else None
        receipt = msgspec.structs.replace(receipt, files=files, kinds=kinds, extra=extra)
        encode_receipt(receipt)  # what can't be recorded is refused before any output is replaced
        self.check()
        for file in files.values():
            self._put(file["path"])
        self.check()
        return receipt

    def _refuse_too_few(self, receipt: Receipt, kinds: Collection[str]) -> None:
        if is_empty(receipt):
            return
        if not kinds:
            raise self._problem("expected outputs, found none; mark_empty() says that it is empty")
        if problem := why_lacking(kinds, self._kinds or kinds):
            raise self._problem(problem)

    def _described(self, name: str) -> dict[str, Any] | None:
        """Sync and hash an output; None for one that an empty shard has not written."""
        path = Path(self._claim.workspace, name)
        try:
            fd = os.open(path, OPEN_FLAGS)
        except FileNotFoundError as error:
            if self.stats.get("num_sequences") == 0:
                return None
            raise self._problem(f"expected an output at '{shown(path)}', found nothing") from error
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                found = file_type(status.st_mode)
                raise self._problem(f"expected a regular file at '{shown(path)}', found a {found}")
            digest = _digest.of_file(fd, "sha256", status.st_size)
            _files.sync(fd)
        finally:
            os.close(fd)
        return {"path": name, "bytes": status.st_size, "checksum": str(digest)}

    def _fail(self, error: Exception) -> None:
        """Write what went wrong, if it is this worker's business; the error itself goes on."""
        try:
            self._claim.check()
            self._write(self._failed(error))
        except ClaimLostError as lost:
            if lost is not error:
                _note(error, f"Nothing was recorded: {told(lost)}")
        except UnsyncedError as second:
            _note(error, f"That it failed is recorded: {told(second)}")
        except Exception as second:
            _note(error, f"That it failed could not be recorded: {told(second)}")

    def _failed(self, error: Exception) -> Receipt:
        return msgspec.structs.replace(
            self._receipt,
            status="failed",
            failed_at=time.time(),
            error_type=type(error).__name__,
            error_message=_text(said(error)),
            traceback=_text("".join(traceback.format_exception(error))),
        )

    def _write(self, receipt: Receipt) -> None:
        """Write a receipt whole, as outputs are: it gets its name when it is on the disk."""
        name, data = f"{RECEIPTS}/{receipt_name(self.index)}", encode_receipt(receipt)
        path = self._place(name)
        with _files.telling_where(path), open(path, "wb") as file:
            file.write(data)
            file.flush()
            _files.sync(file.fileno())
        self._put(name)

    def _put(self, name: str) -> None:
        """Move what was written and synced to its name, through no link, for good."""
        path = os.path.join(self._root, name)
        with _folder_of(name, self._root) as fd, told_of(path):
            base = os.path.basename(name)
            _files.move(os.path.join(self._claim.workspace, name), base, target_fd=fd)
            try:
                _files.sync(fd)
            except OSError as error:
                raise UnsyncedError(path, error.errno) from error

    def _problem(self, problem: str) -> ReceiptError:
        return ReceiptError(f"shard {self.index} of '{shown(self._root)}': {problem}")


@contextlib.contextmanager
def _folder_of(name: str, root: str | os.PathLike[str], *, make: bool = True) -> Iterator[int]:
    """Yield a descriptor of the directory that a name of the plan directory is in.

    Each directory on the way is made if it is not there and that is wanted. None is entered through
    a link that leads out of the plan directory, be it one that is put there meanwhile.
    """
    root = os.fspath(root)
    root_fd = fd = open_root(root)
    try:
        for folder in itertools.accumulate(name.split("/")[:-1], os.path.join):
            outer, fd = fd, _entered(folder, fd, make, root=root, root_fd=root_fd)
            if outer != root_fd:
                os.close(outer)
        if make and fd != root_fd:
            outer, fd = fd, _readable(fd, os.path.join(root, os.path.dirname(name)))
            os.close(outer)
        yield fd
    finally:
        for each in {fd, root_fd}:
            os.close(each)


def _entered(folder: str, outer: int, make: bool, *, root: str, root_fd: int) -> int:
    """Open a folder of the plan directory, or make it in the one before it."""
    path = os.path.join(root, folder)
    with told_of(path):
        try:
            return _opened(folder, path, root=root, root_fd=root_fd)
        except FileNotFoundError:
            if not make:
                raise
        _make(os.path.basename(folder), outer, path)
        return _opened(folder, path, root=root, root_fd=root_fd)


def _opened(folder: str, path: str, *, root: str, root_fd: int) -> int:
    """Open a folder to pass through it; a link is followed where it stays inside."""
    try:
        fd = open_beneath(folder, _open_folder, root=root, dir_fd=root_fd)
    except OutsideError as error:
        raise _refusal(path, f"symbolic link to '{shown(error.path)}'") from error
    except OSError as error:
        if error.errno in _NO_FOLDER and (mode := mode_of(path)) and not stat.S_ISDIR(mode):
            raise _refusal(path, file_type(mode)) from error
        raise
    try:
        _refuse_needed(folder, fd, path, root_fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _open_folder(part: str, dir_fd: int) -> int | None:
    """Open a directory, for which it need not be readable; None for a symbolic link."""
    try:
        return os.open(part, _PASSING, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _NO_FOLDER and stat.S_ISLNK(mode_of(part, dir_fd=dir_fd)):
            return None
        raise


def _refuse_needed(folder: str, fd: int, path: str, root_fd: int) -> None:
    """Raise if a link led to where the plan, the receipts or claims are, or from the receipts."""
    status = os.fstat(fd)
    for name in (".", RECEIPTS, CLAIMS):
        if _is_at(status, name, root_fd) is not (name == folder):
            raise _refusal(path, "symbolic link")


def _is_at(status: os.stat_result, name: str, dir_fd: int) -> bool:
    try:
        return os.path.samestat(status, os.stat(name, dir_fd=dir_fd, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _readable(dir_fd: int, path: str) -> int:
    """Open a directory again, to sync it."""
    with told_of(path):
        return os.open(".", OPEN_FLAGS | os.O_DIRECTORY, dir_fd=dir_fd)


def _make(part: str, dir_fd: int, path: str) -> None:
    """Make a directory if nothing is there; it is there after a power cut too, or it goes again."""
    fd = _readable(dir_fd, os.path.dirname(path))
    try:
        os.mkdir(part, dir_fd=fd)
        _sync_or_remove(part, fd)
    except FileExistsError:
        pass
    finally:
        os.close(fd)


def _sync_or_remove(part: str, dir_fd: int) -> None:
    try:
        _files.sync(dir_fd)
    except OSError:
        _files.remove_empty(part, dir_fd=dir_fd)
        raise


def _refusal(path: str, found: str) -> ReceiptError:
    return ReceiptError(
        f"expected a directory at '{shown(path)}', found a {found}: put a directory in its place, "
        "since a link is followed only to a folder of outputs in the plan directory, or open the "
        "run where the outputs are to be"
    )


def _note(error: Exception, note: str) -> None:
    """Add a note to an error; of one that takes none, as it is frozen, the log has it."""
    try:
        error.add_note(note)
    except Exception:
        logger.warning("%s", printable(note))


def _encoded_size(fields: dict[str, Any]) -> int:
    try:
        return len(msgspec.json.encode(fields))
    except UnicodeEncodeError as error:
        raise ValueError(f"fields: expected Unicode, found {quoted(error.object)}") from None


def _text(text: str) -> str:
    """The end of a text, without what JSON can't hold."""
    return text[-_MAX_TEXT:].encode(errors="backslashreplace").decode()
