"""Plans, receipts and claims: a resumed data-prep run repeats nothing and loses nothing.

::

    from shardproof import receipts

    files = receipts.source_files("/data/corpus", "*.txt")
    plan = receipts.make_plan("corpus", files, n_shards=8, config={"max_tokens": 2048})
    store = receipts.open_run("/project/out", datasets=["corpus"]).open(plan)
    for work in store.claim_pending():
        with work:
            write_tokens(work.files, work.output(f"shard_{work.index:06d}.bin"))
"""

from shardproof.receipts._indices import as_ranges
from shardproof.receipts._runs import Run, open_run
from shardproof.receipts._store import ReceiptStore
from shardproof.receipts._work import Work
from shardproof.receipts.claims._claim_files import claims_in
from shardproof.receipts.plan._assignment import Assignment
from shardproof.receipts.plan._input_files import Identity, SourceFile, source_files
from shardproof.receipts.plan._layout import PLAN_FILE, RECEIPTS
from shardproof.receipts.plan._pins import Offline, Pin, RepoType, pin_files, pin_hub
from shardproof.receipts.plan._plan import Plan, make_plan, read_plan
from shardproof.receipts.plan._search import plan_dirs
from shardproof.receipts.verdict._manifest import promise
from shardproof.receipts.verdict._records import Receipt, Status
from shardproof.receipts.verdict._verdict import Verdict, VerdictStatus

__all__ = [
    "PLAN_FILE",
    "RECEIPTS",
    "Assignment",
    "Identity",
    "Offline",
    "Pin",
    "Plan",
    "Receipt",
    "ReceiptStore",
    "RepoType",
    "Run",
    "SourceFile",
    "Status",
    "Verdict",
    "VerdictStatus",
    "Work",
    "as_ranges",
    "claims_in",
    "make_plan",
    "open_run",
    "pin_files",
    "pin_hub",
    "plan_dirs",
    "promise",
    "read_plan",
    "source_files",
]
