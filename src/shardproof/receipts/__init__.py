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

from shardproof._base.imports import attached

__all__, __getattr__, __dir__ = attached(__name__)
