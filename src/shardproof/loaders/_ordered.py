"""Batches in the file's order."""

import os

from shardproof._base.arguments import checked
from shardproof.loaders._loader import BatchLoader, LoaderOptions
from shardproof.loaders._reader import Framework
from shardproof.loaders.io._row_source import open_source
from shardproof.loaders.order._orders import Order
from shardproof.loaders.order._selection import LayerChoice, TokenChoice


class OrderedDataLoader(BatchLoader):
    """Delivers the activations of a saev directory in the file's order: example, layer, token.

    Args:
        shards_dir: The directory.
        layer: A recorded layer, or ``"all"``.
        tokens: ``"content"``, ``"special"`` or ``"all"``.
        batch_size: Rows of a batch.
        drop_last: Leave out a last batch that is not full.
        rank: Which of the ranks this is.
        world_size: Among how many ranks the rows are dealt, batch by batch.
        even_batches: Leave out last batches that not every rank has.
        workers: How many threads read ahead, and so how many batches.
        framework: ``"numpy"`` for arrays, ``"torch"`` for tensors over the same memory.

    Raises:
        ShardValidationError: Something in the directory is not as promised.
        ManifestError: What it promises can't be read.
        ValueError: A layer that was not recorded, special tokens where there are none, a number out
            of range.
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
        rank: int = 0,
        world_size: int = 1,
        even_batches: bool = False,
        workers: int = 2,
        framework: Framework = "numpy",
    ) -> None:
        options = LoaderOptions(
            batch_size=batch_size,
            drop_last=drop_last,
            even_batches=even_batches,
            rank=rank,
            world_size=world_size,
            workers=workers,
            framework=framework,
        )
        source = open_source(shards_dir, layer, tokens)
        order = Order(n_rows=source.selection.n_rows, window_rows=batch_size)
        super().__init__(source, order, options)
