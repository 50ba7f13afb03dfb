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

__all__, __getattr__, __dir__ = attached(__name__)
