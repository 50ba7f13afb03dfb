"""A small stage of data preparation, as users write them: text files become tokens.

::

    python -m tests.helpers.pipeline OUTPUT_DIR CORPUS_DIR [PAUSE]

It makes 8 shards for Megatron-LM, a document a file, a sequence a line. It may be killed at any
moment and started again, as often as need be; it ends with 0 when nothing is left to do. ``PAUSE``
are seconds that it waits after each file, to be interrupted there.
"""

import signal
import sys
import time
import zlib
from pathlib import Path

from shardproof import receipts
from tests.helpers import megatron

N_SHARDS = 8
DTYPE = "<u2"


def tokenized(line: str) -> list[int]:
    """Each word is one token."""
    return [zlib.crc32(word.encode()) % 65521 for word in line.split()]


def documents(files: "tuple[receipts.InputFile, ...]", pause: float) -> list[list[list[int]]]:
    """Return the tokens of those rows of the files that the shard is made of."""
    made = []
    for file in files:
        lines = Path(file.local_path).read_text().splitlines()
        mine = [tokenized(line) for number, line in enumerate(lines) if file.has_row(number)]
        made.append([tokens for tokens in mine if tokens])
        time.sleep(pause)
    return [document for document in made if document]


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main(output_dir: str, corpus_dir: str, pause: str = "0") -> int:
    files = receipts.input_files(corpus_dir, "**/*.txt")
    config = {"dtype": DTYPE, "tokenizer": "crc32 of words"}
    plan = receipts.make_plan("corpus", files, n_shards=N_SHARDS, config=config)
    run = receipts.open_run(output_dir, datasets=["corpus"], output=config)
    store = run.store(plan)
    say("plan", store.path)
    for work in store.claim_pending():
        with work:
            say("begin", work.index)
            made = documents(work.files, float(pause))
            name = f"shard_{work.index:06d}"
            if made:
                outputs = work.output_path(f"{name}.bin"), work.output_path(f"{name}.idx")
                counts = megatron.write(*outputs, made, DTYPE)
                work.stats.update(num_sequences=counts.sequences, num_tokens=counts.tokens)
            else:
                work.mark_empty()
            say("end", work.index)
        say("done", work.index)
    return 1 if store.pending() else 0


if __name__ == "__main__":
    # What a job's manager sends before its time is over: the shard is given back.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(*sys.argv[1:]))
