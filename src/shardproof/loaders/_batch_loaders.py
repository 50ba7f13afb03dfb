"""The two loaders of batches: in the file's order, and in an order that a seed decides."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shardproof._base.arguments import checked, count
from shardproof.loaders._delivery import DeviceName, Dtype, delivery_of
from shardproof.loaders._loader import BatchLoader, rank_for
from shardproof.loaders.io._row_source import UNLABELLED, Framework_co, RowSource, open_source
from shardproof.loaders.order._epoch_plan import RankShare
from shardproof.loaders.order._orders import Order, ShuffledOrder
from shardproof.loaders.order._selection import LayerChoice, TokenChoice

if TYPE_CHECKING:
    Labels = Sequence[int]
else:
    # For an item's type beartype looks at one by chance, and so moves the global generator of the
    # module `random`, which belongs to the user.
    Labels = Sequence


class OrderedDataLoader(BatchLoader[Framework_co]):
    """Delivers the activations of a saev directory in the file's order: example, layer, token.

    Args:
        shards_dir: The directory.
        layer: A recorded layer, or ``"all"``.
        tokens: ``"content"``, ``"special"`` or ``"all"``.
        batch_size: Rows of a batch.
        drop_last: Leave out a last batch that is not full.
        rank: Which of the ranks this is; by default that of the group, or 0.
        world_size: Among how many ranks the rows are dealt, batch by batch; by default those of the
            group, or 1.
        even_batches: Leave out last batches that not every rank has.
        workers: How many threads read ahead, and so how many batches. None for as many as help: one
            for each processor, 2 to 8, and 8 where the file system is on a network.
        framework: ``"numpy"`` for arrays, ``"torch"`` for tensors over the same memory.
        device: Where the tensors are: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or a ``torch.device``.
        dtype: Of ``act``, cast there: ``"float32"``, ``"float16"``, ``"bfloat16"``. By default that
            of the directory.
        n_ahead: How many batches are on the device before they are asked for.
        pin_memory: Whether tensors on the host are in pinned memory.
        group: The ranks that open it at once, as for `shardproof.distributed.validate`: they share
            one check, or one on each host where hosts see directories of their own.

    Raises:
        ShardValidationError: Something in the directory is not as expected.
        ManifestError: Its manifest can't be read.
        ValueError: A layer that was not recorded, special tokens where there are none, a number out
            of range, a device that is not there.
        TypeError: An argument of another type.
        ModuleNotFoundError: ``framework="torch"``, and there is no torch.

    Example:
        >>> loader = OrderedDataLoader(shards_dir, layer=6, batch_size=5)
        >>> loader.n_samples, len(loader)
        (33, 7)
        >>> tuple(len(batch["act"]) for batch in loader)
        (5, 5, 5, 5, 5, 5, 3)
    """

    @checked
    def __init__(
        self,
        shards_dir: str | os.PathLike[str],
        *,
        layer: LayerChoice,
        tokens: TokenChoice = "content",
        batch_size: int = 16384,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        even_batches: bool = False,
        workers: int | None = None,
        framework: Framework_co = "numpy",  # type: ignore[assignment] # it is what a checker infers
        device: DeviceName = "cpu",
        dtype: Dtype | None = None,
        n_ahead: int = 2,
        pin_memory: bool = False,
        group: Any = None,
    ) -> None:
        share_of = rank_for(batch_size, rank, world_size, workers, group)
        delivery = delivery_of(framework, device, dtype, pin_memory=pin_memory, n_ahead=n_ahead)
        source = open_source(shards_dir, layer, tokens, group)
        order = Order(n_rows=source.selection.n_rows, window_rows=batch_size)
        share = RankShare(order, *share_of, batch_size, drop_last, even_batches)
        super().__init__(source, share, workers, delivery)


class ShuffledDataLoader(BatchLoader[Framework_co]):
    """Delivers the activations of a saev directory shuffled, the same way for the same seed.

    Examples are permuted over the whole directory, and the rows of half the buffer are permuted
    among each other while the other half is read. The order depends on seed and epoch alone: not on
    threads, time or machine. ``buffer_size=None`` permutes all rows, each of which then is a read
    of its own.

    Args:
        shards_dir: The directory.
        layer: A recorded layer, or ``"all"``.
        tokens: ``"content"``, ``"special"`` or ``"all"``.
        batch_size: Rows of a batch.
        seed: Of the order, 0 or more.
        ignore_labels: Rows whose ``token_label`` is one of these are left out, unread. (That of
            a special token is 255.)
        buffer_size: Rows in memory; at least two batches are. None for a true permutation.
        workers: How many threads read; 1024 at most do. None as for `OrderedDataLoader`.
        drop_last: Leave out a last batch that is not full.
        rank: Which of the ranks this is; by default that of the group, or 0.
        world_size: Among how many ranks the rows are dealt; by default those of the group, or 1.
        even_batches: Leave out last batches that not every rank has.
        framework: ``"numpy"`` for arrays, ``"torch"`` for tensors over the same memory.
        device: Where the tensors are: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or a ``torch.device``.
        dtype: Of ``act``, as for `OrderedDataLoader`.
        n_ahead: How many batches are on the device before they are asked for.
        pin_memory: Whether tensors on the host are in pinned memory.
        group: As for `OrderedDataLoader`.

    Raises:
        ValueError: Labels to ignore where there are none; else it raises as `OrderedDataLoader`.

    Example:
        >>> loader = ShuffledDataLoader(shards_dir, layer=6, batch_size=5, seed=1)
        >>> first = next(iter(loader))
        >>> first["act"].shape, len(set(first["example_idx"].tolist())) > 1
        ((5, 8), True)
    """

    @checked
    def __init__(
        self,
        shards_dir: str | os.PathLike[str],
        *,
        layer: LayerChoice,
        tokens: TokenChoice = "content",
        batch_size: int = 16384,
        seed: int = 17,
        ignore_labels: Labels = (),
        buffer_size: int | None = 2**17,
        workers: int | None = None,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        even_batches: bool = False,
        framework: Framework_co = "numpy",  # type: ignore[assignment] # it is what a checker infers
        device: DeviceName = "cpu",
        dtype: Dtype | None = None,
        n_ahead: int = 2,
        pin_memory: bool = False,
        group: Any = None,
    ) -> None:
        share_of = rank_for(batch_size, rank, world_size, workers, group)
        delivery = delivery_of(framework, device, dtype, pin_memory=pin_memory, n_ahead=n_ahead)
        count("seed", seed)
        if buffer_size is not None:
            count("buffer_size", buffer_size, 1)
        ignored = sorted({count("ignore_labels", label, 0, UNLABELLED) for label in ignore_labels})
        source = open_source(shards_dir, layer, tokens, group)
        kept = _rows_kept(source, ignored) if ignored else None
        n_batches = 1 if buffer_size is None else max(1, buffer_size // 2 // batch_size)
        order = ShuffledOrder(
            n_rows=int(source.selection.n_rows if kept is None else kept.sum()),
            window_rows=n_batches * batch_size,
            window_seed=None if buffer_size is None else seed,
            settings={"seed": seed, "buffer_size": buffer_size, "ignore_labels": ignored},
            seed=seed,
            selection=source.selection,
            kept=kept,
        )
        share = RankShare(order, *share_of, batch_size, drop_last, even_batches)
        super().__init__(source, share, workers, delivery)


def _rows_kept(source: RowSource, ignored: list[int]) -> npt.NDArray[np.bool_]:
    """Return which rows of which example have a label that is not ignored."""
    if source.labels is None:
        raise ValueError("ignore_labels: there is no labels.bin in the directory")
    selection = source.selection
    kept = ~np.isin(source.labels, ignored)
    if selection.tokens == "special":
        kept = kept[:, :0]
    n_special = selection.n_tokens - kept.shape[1]
    kept = np.pad(kept, ((0, 0), (n_special, 0)), constant_values=UNLABELLED not in ignored)
    return np.tile(kept, (1, selection.n_layers))
