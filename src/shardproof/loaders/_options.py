"""What the loaders take besides the rows and their order; and torch, where there is one."""

import dataclasses
from types import ModuleType
from typing import Literal

from shardproof._base.arguments import count, rank_of
from shardproof.loaders.order._epoch_plan import RankShare
from shardproof.loaders.order._orders import Order

__all__ = ["Framework", "LoaderOptions", "refuse_no_torch", "torch_module"]

Framework = Literal["numpy", "torch"]
"""Of which library the delivered arrays are."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoaderOptions:
    """How both loaders of batches deliver; their docstrings say what each option means.

    Raises:
        ValueError: A number is out of range.
        TypeError: A number is none.
        ModuleNotFoundError: Tensors are wanted, and there is no torch.
    """

    batch_size: int
    drop_last: bool
    rank: int
    world_size: int
    even_batches: bool
    workers: int
    framework: Framework

    def __post_init__(self) -> None:
        count("batch_size", self.batch_size, 1)
        count("workers", self.workers, 1)
        rank_of(self.rank, self.world_size)
        refuse_no_torch(self.framework)

    def share_of(self, order: Order) -> RankShare:
        """Return what this rank is dealt of an order."""
        return RankShare(
            order, self.rank, self.world_size, self.batch_size, self.drop_last, self.even_batches
        )


def refuse_no_torch(framework: Framework) -> None:
    """Raise if tensors are wanted, and there is no torch.

    Raises:
        ModuleNotFoundError: There is no torch.
    """
    if framework == "torch":
        torch_module("framework='torch'")


def torch_module(wanted: str) -> ModuleType:
    """Return our module that needs torch.

    Args:
        wanted: What needs it, for the message.

    Raises:
        ModuleNotFoundError: There is no torch.
    """
    try:
        from shardproof.loaders import _torch  # noqa: PLC0415 - only where it is asked for
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        problem = f"{wanted} needs torch, which is not installed: pip install torch"
        raise ModuleNotFoundError(problem, name="torch") from error
    return _torch
