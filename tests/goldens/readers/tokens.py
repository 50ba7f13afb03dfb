"""Tokens, and other arrays of numbers."""

from collections.abc import Iterable
from pathlib import Path

from ._readers import reader


@reader("npy", "npy-templar")
def npy(root: Path) -> Iterable[object]:
    import numpy as np

    for path in sorted(root.glob("*.npy")):
        yield from np.atleast_1d(np.load(path)).tolist()


@reader("megatron-uint16", "megatron-modes", "megatron-merged")
def megatron(root: Path) -> Iterable[object]:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    for path in sorted(root.glob("*.idx")):
        data = IndexedDataset(str(path.with_suffix("")), multimodal=root.name == "megatron-modes")
        yield from ((path.stem, sequence) for sequence in data)


@reader("llmc", "llmc-llama3")
def llmc(root: Path) -> Iterable[object]:
    """As llm.c's dataloader.h and train_llama3.py: as many tokens as the header says, no more."""
    import numpy as np

    for path in sorted(root.glob("*.bin")):
        head = np.fromfile(path, np.int32, 256)
        kind = {(20240520, 1): np.uint16, (20240801, 7): np.uint32}[(head[0], head[1])]
        tokens = np.frombuffer(path.read_bytes()[1024:], kind)
        assert len(tokens) == head[2]
        yield from tokens.tolist()


@reader("llmc-evaluation")
def llmc_evaluation(root: Path) -> Iterable[object]:
    """As llm.c's dataloader.h: examples, each of which says how long it is."""
    import numpy as np

    for path in sorted(root.glob("*.bin")):
        head = np.fromfile(path, np.int32, 256)
        assert (head[0], head[1]) == (20240522, 1)
        numbers = path.read_bytes()[1024:]
        for index in range(head[2]):
            start, n_bytes, number = np.frombuffer(numbers[:6], np.uint16)
            assert (start, number) == (2**16 - 1, index)
            assert n_bytes <= len(numbers)
            yield numbers[:n_bytes]
            numbers = numbers[n_bytes:]
