"""What hypothesis calls when it is imported (its entry point ``hypothesis``)."""

from typing import TYPE_CHECKING

from shardproof.testing.samples.checkpoint import (
    CheckpointLayout,
    CheckpointMetadataState,
    CheckpointShardState,
)
from shardproof.testing.samples.receipts import ReceiptsLayout, ReceiptState
from shardproof.testing.samples.saev._layout import Layout
from shardproof.testing.samples.saev._states import ShardState

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["register"]


def register() -> None:
    """Let ``st.from_type(Layout)``, and annotations of ``@given(...)``, find the strategies."""
    from hypothesis import strategies as st  # noqa: PLC0415 - it is being imported: not above

    st.register_type_strategy(Layout, _layouts)
    st.register_type_strategy(ShardState, _shard_states)
    st.register_type_strategy(ReceiptsLayout, _receipts_layouts)
    st.register_type_strategy(ReceiptState, _receipt_states)
    st.register_type_strategy(CheckpointLayout, _checkpoint_layouts)
    st.register_type_strategy(CheckpointShardState, _checkpoint_shard_states)
    st.register_type_strategy(CheckpointMetadataState, _checkpoint_metadata_states)


def _layouts(_: type[Layout]) -> "SearchStrategy[Layout]":
    from shardproof.testing.contracts import strategies  # noqa: PLC0415 - not before it is needed

    return strategies.layouts()


def _shard_states(_: type[ShardState]) -> "SearchStrategy[ShardState]":
    from shardproof.testing.contracts import strategies  # noqa: PLC0415 - not before it is needed

    return strategies.shard_states()


def _receipts_layouts(_: type[ReceiptsLayout]) -> "SearchStrategy[ReceiptsLayout]":
    from shardproof.testing.contracts import strategies  # noqa: PLC0415 - not before it is needed

    return strategies.receipts_layouts()


def _receipt_states(_: type[ReceiptState]) -> "SearchStrategy[ReceiptState]":
    from shardproof.testing.contracts import strategies  # noqa: PLC0415 - not before it is needed

    return strategies.receipt_states()


def _checkpoint_layouts(_: type[CheckpointLayout]) -> "SearchStrategy[CheckpointLayout]":
    from shardproof.testing.contracts import strategies  # noqa: PLC0415 - not before it is needed

    return strategies.checkpoint_layouts()


def _checkpoint_shard_states(
    _: type[CheckpointShardState],
) -> "SearchStrategy[CheckpointShardState]":
    from shardproof.testing.contracts import strategies  # noqa: PLC0415 - not before it is needed

    return strategies.checkpoint_shard_states()


def _checkpoint_metadata_states(
    _: type[CheckpointMetadataState],
) -> "SearchStrategy[CheckpointMetadataState]":
    from shardproof.testing.contracts import strategies  # noqa: PLC0415 - not before it is needed

    return strategies.checkpoint_metadata_states()
