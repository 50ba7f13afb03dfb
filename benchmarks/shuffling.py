"""How well ShuffledDataLoader mixes, by the size of its buffer, beside a true permutation.

::

    python benchmarks/shuffling.py

The order of a loader depends on its seed, not on what a row holds or on the machine: rows of one
value tell as much as rows of a thousand, and every run prints the same table.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shardproof import Metadata, Shard, ShardInfo
from shardproof.loaders import ShuffledDataLoader

N_EXAMPLES, N_TOKENS = 4000, 196
N_ROWS = N_EXAMPLES * N_TOKENS
BATCH = 4096
BUFFERS = (2**14, 2**16, 2**17, 2**19, None)
QUANTILES = (0.1, 0.5, 0.9)

Order = npt.NDArray[np.int64]


def make_shards_dir(shards_dir: Path) -> Path:
    """Write a directory of rows of one value, all of them 0."""
    metadata = Metadata(
        family="clip",
        ckpt="ViT-B-32/openai",
        layers=(0,),
        content_tokens_per_example=N_TOKENS,
        cls_token=False,
        d_model=1,
        n_examples=N_EXAMPLES,
        max_tokens_per_shard=N_ROWS,
        data="",
        dataset="/data/images",
    )
    metadata.dump(shards_dir)
    np.zeros(metadata.shard_shape, np.float32).tofile(shards_dir / "acts000000.bin")
    ShardInfo([Shard("acts000000.bin", N_EXAMPLES)]).dump(shards_dir)
    return shards_dir


def delivered(shards_dir: Path, buffer_size: int | None, seed: int) -> Order:
    """Return the row numbers of the first epoch as they come; each of them once."""
    options = {"buffer_size": buffer_size, "seed": seed, "batch_size": BATCH}
    loader = ShuffledDataLoader(shards_dir, layer=0, **options)  # type: ignore[arg-type, type-var]
    batches = [batch["example_idx"] * N_TOKENS + batch["token_idx"] for batch in loader]
    order: Order = np.concatenate(batches)
    if not np.array_equal(np.sort(order), np.arange(N_ROWS)):
        raise SystemExit(f"buffer_size={buffer_size}: not each row once")
    return order


def distinct_examples(order: Order) -> float:
    """Return how many examples a full batch has rows of, in the mean."""
    n_batches = len(order) // BATCH
    batches = order[: n_batches * BATCH].reshape(n_batches, BATCH) // N_TOKENS
    return float(np.mean([len(np.unique(batch)) for batch in batches]))


def moves(order: Order) -> list[float]:
    """Return quantiles of how far rows are delivered from where they lie, as part of all rows."""
    distances = np.abs(np.arange(len(order)) - order) / len(order)
    return [float(value) for value in np.quantile(distances, QUANTILES)]


def correlation(order: Order) -> float:
    """Return the correlation of example numbers of rows that are delivered one after the other."""
    examples = order // N_TOKENS
    return float(np.corrcoef(examples[:-1], examples[1:])[0, 1])


def same_example(order: Order) -> float:
    """Return how often a row is of the same example as the one before."""
    examples = order // N_TOKENS
    return float(np.mean(examples[:-1] == examples[1:]))


def rows(shards_dir: Path, seed: int) -> Iterator[list[str]]:
    yield _row("the file's order", np.arange(N_ROWS))
    for size in BUFFERS:
        name = "None" if size is None else f"{size // 1024} Ki"
        yield _row(f"`buffer_size`: {name}", delivered(shards_dir, size, seed))
    yield _row("numpy's permutation", np.random.default_rng(seed).permutation(N_ROWS))


def _row(name: str, order: Order) -> list[str]:
    quantiles = (f"{value:.3f}" for value in moves(order))
    numbers = f"{correlation(order):.4f}", f"{100 * same_example(order):.3f}"
    return [name, f"{distinct_examples(order):.0f}", *quantiles, *numbers]


def table(found: Iterator[list[str]]) -> str:
    head = ["", "examples a batch", *(f"move, {100 * at:.0f}%" for at in QUANTILES)]
    head += ["lag-1 correlation", "same example as before, %"]
    return "\n".join(map(_line, [head, ["---", *["---:"] * (len(head) - 1)], *found]))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=17)
    options = parser.parse_args()
    print(f"{N_EXAMPLES} examples of {N_TOKENS} tokens, batches of {BATCH}, seed {options.seed}.\n")
    with tempfile.TemporaryDirectory(prefix="shardproof-bench-") as name:
        print(table(rows(make_shards_dir(Path(name)), options.seed)))


if __name__ == "__main__":
    main()
