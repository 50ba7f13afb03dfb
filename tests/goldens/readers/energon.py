"""Samples, as Megatron Energon reads them."""

from collections.abc import Iterable
from pathlib import Path

from ._readers import reader


@reader("energon")
def energon(root: Path) -> Iterable[object]:
    from megatron.energon import (
        Cooker,
        DefaultTaskEncoder,
        WorkerConfig,
        get_loader,
        get_train_dataset,
        get_val_dataset,
        stateless,
    )

    class Plain(DefaultTaskEncoder):
        cookers = (Cooker(stateless(lambda sample: sample)),)

        def encode_sample(self, sample: object) -> object:
            return sample

        def batch(self, samples: object) -> object:
            return samples

        def encode_batch(self, batch: object) -> object:
            return batch

    worker = WorkerConfig(rank=0, world_size=1, num_workers=0)
    how = {"batch_size": 1, "task_encoder": Plain(), "worker_config": worker}
    once = {"shuffle_buffer_size": None, "max_samples_per_sequence": None, "repeat": False}
    for part in (get_train_dataset(root, **how, **once), get_val_dataset(root, **how)):
        for samples in get_loader(part):
            yield from ((sample["__key__"], sample["txt"], sample["cls"]) for sample in samples)
