"""The kit with which projects prove that their own code survives damaged shards directories.

::

    from shardproof.testing import layout, shards_dir

    with shards_dir(layout(n_shards=3, missing=[1])) as path:
        ...  # path ends in saev/shards/<hash> and lacks acts000001.bin

`receipts_layout` and `receipts_dir` do the same for the receipts of a data-prep run,
`checkpoint_layout` and `checkpoint_dir` for checkpoints in one file a rank.

What needs more than the standard library is in modules of its own: in ``shardproof.testing``,
``strategies``, ``stateful`` and ``receipts_stateful`` (hypothesis), ``contracts`` (pytest),
``fake`` (pyfakefs). So are ``faults`` and ``hub``, because most tests need neither.

What builds sample directories here, and the oracle, import nothing else of shardproof: they must
not share the code that they help to judge.
"""

from shardproof.testing.contracts._time_limit import time_limit
from shardproof.testing.faults.damage import Damage, DamageDone, DamageKind, damage, damaged
from shardproof.testing.samples._capabilities import without_root_override
from shardproof.testing.samples.checkpoint import (
    CheckpointKeywords,
    CheckpointLayout,
    CheckpointMetadataState,
    CheckpointShardState,
    CheckpointTensor,
    ExpectedProblem,
    MakeCheckpoint,
    checkpoint_dir,
    checkpoint_dir_maker,
    checkpoint_layout,
    checkpoint_metadata_bytes,
    checkpoint_shard_bytes,
    checkpoint_tensor_bytes,
    expected_problems,
    is_whole_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from shardproof.testing.samples.receipts import (
    MakeReceiptsDir,
    ReceiptsKeywords,
    ReceiptsLayout,
    ReceiptState,
    expected_pending,
    output_bytes,
    plan_bytes,
    receipt_bytes,
    receipts_dir,
    receipts_dir_maker,
    receipts_layout,
    write_receipts,
)
from shardproof.testing.samples.saev._content import content, manifest_files
from shardproof.testing.samples.saev._directories import MakeShardsDir, shards_dir, shards_dir_maker
from shardproof.testing.samples.saev._layout import Layout, LayoutKeywords, layout
from shardproof.testing.samples.saev._oracle import (
    ExpectedFinding,
    Promise,
    expected_findings,
    expected_unproven,
    promises,
)
from shardproof.testing.samples.saev._states import ShardState, apply_states
from shardproof.testing.samples.saev._writing import write_layout

__all__ = [
    "CheckpointKeywords",
    "CheckpointLayout",
    "CheckpointMetadataState",
    "CheckpointShardState",
    "CheckpointTensor",
    "Damage",
    "DamageDone",
    "DamageKind",
    "ExpectedFinding",
    "ExpectedProblem",
    "Layout",
    "LayoutKeywords",
    "MakeCheckpoint",
    "MakeReceiptsDir",
    "MakeShardsDir",
    "Promise",
    "ReceiptState",
    "ReceiptsKeywords",
    "ReceiptsLayout",
    "ShardState",
    "apply_states",
    "checkpoint_dir",
    "checkpoint_dir_maker",
    "checkpoint_layout",
    "checkpoint_metadata_bytes",
    "checkpoint_shard_bytes",
    "checkpoint_tensor_bytes",
    "content",
    "damage",
    "damaged",
    "expected_findings",
    "expected_pending",
    "expected_problems",
    "expected_unproven",
    "is_whole_checkpoint",
    "layout",
    "manifest_files",
    "output_bytes",
    "plan_bytes",
    "promises",
    "read_checkpoint",
    "receipt_bytes",
    "receipts_dir",
    "receipts_dir_maker",
    "receipts_layout",
    "shards_dir",
    "shards_dir_maker",
    "time_limit",
    "without_root_override",
    "write_checkpoint",
    "write_layout",
    "write_receipts",
]
