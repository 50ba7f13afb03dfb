"""Checkpoints with an end: for ``@given``, and what the pytest fixture hands out."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, Unpack

from shardproof.testing.samples._capabilities import without_root_override
from shardproof.testing.samples.checkpoint._layout import (
    CheckpointKeywords,
    CheckpointLayout,
    checkpoint_layout_of,
)
from shardproof.testing.samples.checkpoint._writing import write_checkpoint
from shardproof.testing.samples.saev._directories import restore_modes

__all__ = ["MakeCheckpoint", "checkpoint_dir", "checkpoint_dir_maker"]


class MakeCheckpoint(Protocol):
    """What the fixture ``make_checkpoint`` gives: call it for a prefix."""

    def __call__(
        self,
        world_size: int = 3,
        step: int = 1,
        *,
        directory: str | os.PathLike[str] | None = None,
        **keywords: Unpack[CheckpointKeywords],
    ) -> Path:
        """Write a new checkpoint and return its prefix.

        Args:
            world_size: How many ranks there are.
            step: When in the training it was saved.
            directory: Where, made if need be; so several checkpoints share a tree. By default a new
                directory ``step_<step>``.
            **keywords: Those of `checkpoint_layout`: states (``missing_ranks``,
                ``truncated_ranks``, ..., ``metadata``), ``tensors``, ``prefix``, ``digest``,
                ``seed``.

        Returns:
            An absolute path that ends in ``step_1/model``: the paths of all files begin with it.

        Raises:
            TypeError: An argument that it does not have; a number or a rank that is no integer.
            ValueError: No ranks, or a rank out of range or named twice; a state that these tensors
                can't be in.
            FileExistsError: There is a checkpoint of this prefix in the directory.
        """
        ...


@contextlib.contextmanager
def checkpoint_dir(value: CheckpointLayout) -> Iterator[Path]:
    """Write a checkpoint in a temporary place, and remove it at the end.

    For use inside a property test, where a fixture would be shared by all examples. A layout with
    unreadable files is unreadable for root too, inside the context (`without_root_override`).

    Args:
        value: What to write; see `checkpoint_layout`.

    Yields:
        The checkpoint's prefix, absolute.

    Example:
        >>> with checkpoint_dir(checkpoint_layout(world_size=2, metadata="missing")) as prefix:
        ...     sorted(os.listdir(prefix.parent))
        ['model_shard_0.shard', 'model_shard_1.shard']
    """
    with contextlib.ExitStack() as stack:
        base = stack.enter_context(tempfile.TemporaryDirectory(prefix="shardproof-"))
        stack.callback(restore_modes, base)
        if value.is_unreadable():
            stack.enter_context(without_root_override())
        yield write_checkpoint(value, Path(base, f"step_{value.step}"))


@contextlib.contextmanager
def checkpoint_dir_maker(new_base: Callable[[], Path]) -> Iterator[MakeCheckpoint]:
    """Yield what the fixture gives; restore the modes of all that it made at the end.

    The first checkpoint with unreadable files makes the rest of the context one
    `without_root_override`.

    Args:
        new_base: Makes a new, empty directory; called for each checkpoint without a directory of
            its own.
    """
    with contextlib.ExitStack() as stack:

        def make(
            world_size: int = 3,
            step: int = 1,
            *,
            directory: str | os.PathLike[str] | None = None,
            **keywords: Unpack[CheckpointKeywords],
        ) -> Path:
            said = {"world_size": world_size, "step": step, **keywords}
            value = checkpoint_layout_of("make_checkpoint", said, also=["directory"])
            place = new_base() / f"step_{value.step}" if directory is None else Path(directory)
            stack.callback(restore_modes, os.path.abspath(place))
            if value.is_unreadable():
                stack.enter_context(without_root_override())
            return write_checkpoint(value, place)

        yield make
