"""Plans, receipts and claims: a resumed data-prep run repeats nothing and loses nothing.

::

    from shardproof import receipts

    files = receipts.input_files("/data/corpus", "*.txt")
    plan = receipts.make_plan("corpus", files, n_shards=8, config={"max_tokens": 2048})
    store = receipts.open_run("/project/out", datasets=["corpus"]).store(plan)
    for work in store.claim_pending():
        with work:
            write_tokens(work.files, work.output_path(f"shard_{work.index:06d}.bin"))
"""

from shardproof._base.holds import ObservedHold
from shardproof.receipts._claimed_shard import ClaimedShard
from shardproof.receipts._claims import claims_in
from shardproof.receipts._directories import plan_dirs
from shardproof.receipts._input_files import InputFile, input_files
from shardproof.receipts._pins import Pin, pin_files, pin_hub
from shardproof.receipts._plan import Assignment, Plan, make_plan
from shardproof.receipts._plan_receipts import read_manifest as read_manifest
from shardproof.receipts._records import Receipt
from shardproof.receipts._runs import Run, open_run
from shardproof.receipts._store import ReceiptStore, slurm_array
from shardproof.receipts._verdict import Verdict

__all__ = [
    "Assignment",
    "ClaimedShard",
    "InputFile",
    "ObservedHold",
    "Pin",
    "Plan",
    "Receipt",
    "ReceiptStore",
    "Run",
    "Verdict",
    "claims_in",
    "input_files",
    "make_plan",
    "open_run",
    "pin_files",
    "pin_hub",
    "plan_dirs",
    "slurm_array",
]
