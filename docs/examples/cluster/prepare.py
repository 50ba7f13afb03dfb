"""prepare.py CORPUS OUTPUT: make eight shards of a directory of texts, together with others."""

import signal
import sys

from shardproof import receipts

# Before SLURM kills a job, it sends SIGTERM: the shard is given back, and the next job takes it.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

corpus = receipts.input_files(sys.argv[1], "*.txt", identity="digest")
plan = receipts.make_plan("corpus", corpus, n_shards=8, kinds=["bin"])
run = receipts.open_run(sys.argv[2], datasets=["corpus"])
for work in run.store(plan).claim_pending():
    with work:
        with open(work.output_path(f"shard_{work.index:06d}.bin"), "wb") as tokens:
            for file in work.files:
                with open(file.local_path, "rb") as text:
                    tokens.write(text.read())
        work.stats["num_sequences"] = len(work.files)
    print("made shard", work.index, flush=True)
