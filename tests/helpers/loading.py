"""What the tests of the loaders share: small directories, and ways to take rows out of them."""

import json
from collections import Counter
from pathlib import Path

from hypothesis import strategies as st

from shardproof.loaders.order._epoch_plan import EpochPosition
from shardproof.loaders.order._epochs import Passes, WorkerTurn
from shardproof.testing import Layout
from tests.helpers.memmaps import delivered

ROWS = {"batch_size": 5, "layer": 6, "tokens": "content"}


@st.composite
def whole_layouts(draw) -> Layout:
    """Directories in which nothing is wrong, down to the last shard with no examples in it."""
    n_shards = draw(st.integers(1, 4))
    room = draw(st.integers(1, 4))
    layers = draw(st.lists(st.integers(0, 40), min_size=1, max_size=3, unique=True))
    return Layout(
        n_shards=n_shards,
        examples_per_shard=room,
        n_examples=draw(st.integers((n_shards - 1) * room or 1, n_shards * room)),
        layers=layers,
        content_tokens_per_example=draw(st.integers(1, 5)),
        cls_token=draw(st.booleans()),
        d_model=draw(st.integers(1, 9)),
        labels=draw(st.booleans()),
    )


@st.composite
def selections(draw, described: Layout) -> dict:
    """A layer and tokens that a directory has."""
    tokens = ["content", "all", "special"] if described.cls_token else ["content", "all"]
    layer = draw(st.sampled_from([*described.layers, "all"]))
    return {"layer": layer, "tokens": draw(st.sampled_from(tokens))}


def taken(loader, layer) -> list[list[tuple]]:
    """The rows of each batch of one iteration."""
    return [delivered(batch, layer) for batch in loader]


def flat(batches: list[list[tuple]]) -> list[tuple]:
    return [row for batch in batches for row in batch]


def counted(rows: list[tuple]) -> Counter:
    return Counter(rows)


def saved(loader) -> dict:
    """The state of a loader, as it comes back from a file."""
    return json.loads(json.dumps(loader.state_dict()))


def with_dtype(path: Path, dtype: str) -> Path:
    """Say that a directory of float32 holds twice as many values of half the size."""
    metadata = json.loads((path / "metadata.json").read_text())
    metadata |= {"dtype": dtype, "d_model": 2 * metadata["d_model"]}
    (path / "metadata.json").write_text(json.dumps(metadata))
    return path


def whole_pass(passes: Passes, workers: list[WorkerTurn]) -> set[EpochPosition]:
    """Let workers begin and finish one; here, so that a spawned process can import it."""
    found = {passes.enter(worker) for worker in workers}
    for worker in workers:
        passes.finish(worker)
    return found
