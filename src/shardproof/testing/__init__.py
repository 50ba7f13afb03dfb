"""The kit with which projects prove that their own code survives damaged shards directories.

::

    from shardproof.testing import Layout, shards_dir

    with shards_dir(Layout(n_shards=3, missing=[1])) as path:
        ...  # path ends in saev/shards/<hash> and lacks acts000001.bin

``Layout(format="receipts")`` does the same for the receipts of a data-prep run, and
``Layout(format="checkpoint")`` for checkpoints in one file a rank; what only one format has is in
``shardproof.testing.samples.receipts`` and ``samples.checkpoint``.

Nothing is imported before it is used. What needs more than the standard library is in modules of
its own: ``contracts`` (pytest and hypothesis), with ``strategies`` and the state machines, and
``faults``.

What builds sample directories here, and the oracle, import nothing else of shardproof: they must
not share the code that they help to judge.
"""

from shardproof._base.imports import attached

TYPE_CHECKING = False  # that of typing takes longer than all else here
if TYPE_CHECKING:
    from shardproof.testing.contracts._time_limit import time_limit
    from shardproof.testing.faults import Damage, DamageKind, DamageRecord, damage, damaged
    from shardproof.testing.samples._capabilities import without_root_override
    from shardproof.testing.samples._directories import MakeShardsDir, shards_dir, write_layout
    from shardproof.testing.samples._layout import Layout, SampleFormat, SampleOptions
    from shardproof.testing.samples._oracle import (
        ExpectedFile,
        ExpectedFinding,
        expected_files,
        expected_findings,
        expected_unproven,
    )
    from shardproof.testing.samples._refusals import reported_kinds, wrong_kinds
    from shardproof.testing.samples._states import ShardState, apply_states

__all__ = [
    "Damage",
    "DamageKind",
    "DamageRecord",
    "ExpectedFile",
    "ExpectedFinding",
    "Layout",
    "MakeShardsDir",
    "SampleFormat",
    "SampleOptions",
    "ShardState",
    "apply_states",
    "damage",
    "damaged",
    "expected_files",
    "expected_findings",
    "expected_unproven",
    "reported_kinds",
    "shards_dir",
    "time_limit",
    "without_root_override",
    "write_layout",
    "wrong_kinds",
]

_ORACLE = ["ExpectedFile", "ExpectedFinding"]
_ORACLE += ["expected_files", "expected_findings", "expected_unproven"]
_HOMES = {
    **dict.fromkeys(["contracts", "faults", "samples"], ""),
    **dict.fromkeys(["Damage", "DamageKind", "DamageRecord", "damage", "damaged"], "faults"),
    **dict.fromkeys(["MakeShardsDir", "shards_dir", "write_layout"], "samples._directories"),
    **dict.fromkeys(["Layout", "SampleFormat", "SampleOptions"], "samples._layout"),
    **dict.fromkeys(_ORACLE, "samples._oracle"),
    **dict.fromkeys(["ShardState", "apply_states"], "samples._states"),
    **dict.fromkeys(["reported_kinds", "wrong_kinds"], "samples._refusals"),
    "time_limit": "contracts._time_limit",
    "without_root_override": "samples._capabilities",
}
"""Which module of the kit has a name; none where the name is a room."""

__getattr__, __dir__ = attached(__name__, _HOMES)
