"""Plan directories with an end: for ``@given``, and what the pytest fixture hands out."""

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, Unpack

from shardproof.testing.samples._capabilities import without_root_override
from shardproof.testing.samples.receipts._layout import (
    ReceiptsKeywords,
    ReceiptsLayout,
    receipts_layout_of,
)
from shardproof.testing.samples.receipts._states import ReceiptState
from shardproof.testing.samples.receipts._writing import write_receipts
from shardproof.testing.samples.saev._directories import restore_modes

__all__ = ["MakeReceiptsDir", "receipts_dir", "receipts_dir_maker"]


class MakeReceiptsDir(Protocol):
    """What the fixture ``make_receipts_dir`` gives: call it for a path."""

    def __call__(
        self,
        n_shards: int = 3,
        *,
        missing_outputs: Iterable[int] | None = None,
        **keywords: Unpack[ReceiptsKeywords],
    ) -> Path:
        """Write a new plan directory of a data-prep run and return its path.

        Args:
            n_shards: How many shards the plan has.
            missing_outputs: Indices of shards whose receipt says completed, and whose outputs are
                gone (``missing_both``).
            **keywords: Those of `receipts_layout`: other states (``started``, ``torn``, ...).

        Returns:
            An absolute path that ends in ``runs/<run>/datasets/corpus/<plan>``; each call has an
            output directory of its own, ``path.parents[4]``.

        Raises:
            TypeError: An argument that it does not have; a number or an index that is no integer.
            ValueError: No shards, or an index out of range or named twice.
        """
        ...


@contextlib.contextmanager
def receipts_dir(value: ReceiptsLayout) -> Iterator[Path]:
    """Write a plan directory in a temporary place, and remove it at the end.

    For use inside a property test, where a fixture would be shared by all examples. A layout with
    unreadable outputs is unreadable for root too, inside the context (`without_root_override`).

    Args:
        value: What to write; see `receipts_layout`.

    Yields:
        The plan directory's absolute path.

    Example:
        >>> import os
        >>> with receipts_dir(receipts_layout(n_shards=2, missing_bin=[1])) as path:
        ...     sorted(os.listdir(path))
        ['plan.json', 'receipts', 'shard_000000.bin', 'shard_000000.idx', 'shard_000001.idx']
    """
    with contextlib.ExitStack() as stack:
        base = stack.enter_context(tempfile.TemporaryDirectory(prefix="shardproof-"))
        if value.indices(ReceiptState.UNREADABLE):
            stack.enter_context(without_root_override())
        yield write_receipts(value, base)


@contextlib.contextmanager
def receipts_dir_maker(new_base: Callable[[], Path]) -> Iterator[MakeReceiptsDir]:
    """Yield what the fixture gives; restore the modes of all that it made at the end.

    The first directory with unreadable outputs makes the rest of the context one
    `without_root_override`.

    Args:
        new_base: Makes a new, empty directory; called for each plan directory.
    """
    with contextlib.ExitStack() as stack:

        def make(n_shards: int = 3, **keywords: Any) -> Path:
            value = receipts_layout_of(
                "make_receipts_dir",
                {"n_shards": n_shards, **keywords},
                missing_outputs=ReceiptState.MISSING_BOTH,
            )
            base = new_base()
            stack.callback(restore_modes, base)
            if value.indices(ReceiptState.UNREADABLE):
                stack.enter_context(without_root_override())
            return write_receipts(value, base)

        yield make
