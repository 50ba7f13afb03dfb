"""What both loaders of batches take beside what they choose rows and an order by."""

from types import ModuleType
from typing import TypedDict

from shardproof._base.arguments import as_int

__all__ = ["Options", "refuse", "refuse_number", "torch_module"]


class Options(TypedDict):
    """As the loaders' docstrings tell of them."""

    batch_size: int
    drop_last: bool
    even_batches: bool
    rank: int
    world_size: int
    n_threads: int
    as_torch: bool


def refuse(options: Options) -> None:
    """Raise for a number that is none or out of range, and for tensors without torch."""
    for name, least in (("batch_size", 1), ("world_size", 1), ("n_threads", 1), ("rank", 0)):
        refuse_number(name, options[name], least=least)  # type: ignore[literal-required]
    if options["rank"] >= options["world_size"]:
        raise ValueError(
            f"rank: expected one below world_size={options['world_size']}, found {options['rank']}"
        )
    if options["as_torch"]:
        torch_module("as_torch=True")


def refuse_number(name: str, value: object, *, least: int) -> None:
    """Raise for what is no integer, as True is none, or is too small."""
    if as_int(name, value) < least:
        raise ValueError(f"{name}: expected {least} or more, found {value}")


def torch_module(wanted: str) -> ModuleType:
    """Return our module that needs torch.

    Raises:
        ModuleNotFoundError: There is no torch; the text names what was wanted of it.
    """
    try:
        from shardproof.loaders import _torch  # noqa: PLC0415 - only where it is asked for
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        problem = f"{wanted} needs torch, which is not installed: pip install torch"
        raise ModuleNotFoundError(problem, name="torch") from error
    return _torch
