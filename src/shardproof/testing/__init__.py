"""The kit with which projects prove that their own code survives damaged shards directories.

Five rooms, each imported when it is used:

- ``samples``: directories as values, written and judged; ``Layout(format="receipts")`` are the
  receipts of a data-prep run, ``Layout(format="checkpoint")`` a checkpoint in one file a rank
- ``faults``: damage to a file, file-system calls that fail, a fake file system, a server
- ``strategies``: the same for Hypothesis
- ``contracts``: classes of tests for loaders, validators, formats and writers
- ``stateful``: a state machine for validators

What builds samples, and the oracle, import nothing else of shardproof: they must not share the code
that they help to judge. But for checkpoints, which nobody else reads: those the library writes.
"""

from shardproof._base.imports import attached

_NAMES = {
    "": ["contracts", "faults", "samples", "stateful", "strategies"],
    "contracts._child": ["time_limit"],
    "faults": ["Damage", "DamageKind", "DamageRecord", "damage", "damaged"],
    "samples._directories": [
        *("MakeCheckpoint", "MakeShardsDir"),
        *("shards_dir", "without_root_override", "write_layout"),
    ],
    "samples._layout": ["Layout", "SampleFormat", "SampleOptions"],
    "samples._oracle": [
        *("ExpectedFinding", "expected_findings", "expected_unproven"),
        *("reported_kinds", "wrong_kinds"),
    ],
    "samples._states": ["ShardState", "apply_states"],
    "strategies": ["layouts"],
}
"""Which module of the kit has which names; those of the first line are modules."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - type checkers read __init__.pyi

__getattr__, __dir__ = attached(__name__, _HOMES)
