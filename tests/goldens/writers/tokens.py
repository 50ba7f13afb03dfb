"""Tokens, and other arrays of numbers."""

import argparse
import asyncio
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from unittest import mock

from ._cases import case, cases, checkout, imported, package


def megatron(to: Path, dtype: str, *, multimodal: bool = False) -> None:
    import numpy as np
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    for name in ("train", "valid"):
        kind = getattr(np, dtype)
        builder = IndexedDatasetBuilder(str(to / f"{name}.bin"), kind, multimodal)
        for length in range(1, 9):
            modes = [0, 1] if multimodal else None
            builder.add_document(torch.arange(2 * length), [length, length], modes)
        builder.finalize(str(to / f"{name}.idx"))


cases(
    package("megatron-core"),
    megatron_uint16=partial(megatron, dtype="uint16"),
    megatron_modes=partial(megatron, dtype="int32", multimodal=True),
)


@case(package("megatron-core"))
def megatron_merged(to: Path) -> None:
    """Two indexed data sets in one, as its tools merge them."""
    import numpy as np
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    with tempfile.TemporaryDirectory() as place:
        megatron(Path(place), "uint16")
        builder = IndexedDatasetBuilder(str(to / "all.bin"), np.uint16)
        for name in ("train", "valid"):
            builder.add_index(str(Path(place, name)))
        builder.finalize(str(to / "all.idx"))


@case(package("numpy"))
def npy(to: Path) -> None:
    import numpy as np

    np.save(to / "train_000000.npy", np.arange(300, dtype=np.uint32))
    np.save(to / "fortran.npy", np.asfortranarray(np.ones((7, 5, 3), np.float16)))
    np.save(to / "scalar.npy", np.float64(3))
    np.save(to / "text.npy", np.array(["a", "bc"]))


@case(checkout("templar"))
def npy_templar(to: Path) -> None:
    """By templar's two scripts for its data, with a folder in place of its bucket."""
    import numpy as np

    with tempfile.TemporaryDirectory() as name, mock.patch.dict(sys.modules, absent()):
        place = Path(name)
        first = imported("templar", "scripts/dataset_prep/01_pretokenize_data.py")
        second = imported("templar", "scripts/dataset_prep/02_consolidate_shards.py")
        local = argparse.Namespace(r2_bucket=None, output_dir=name)
        for index in range(2):
            tokens = np.arange(index, index + 512, dtype=np.uint16)
            first.save_shard(tokens, index, 512, local)
            shutil.copy(place / f"train_{index:06}.npy", to)
        with serving(second, place, to):
            asyncio.run(second.run_preprocessing(mock.MagicMock(r2_prefix=""), seq_len=64))


def absent() -> dict[str, mock.MagicMock]:
    """Return what stands for modules that ask for a chain, a bucket or a tokenizer."""
    names = ["boto3", "botocore", "datasets", "dotenv", "neurons", "tplr", "transformers"]
    return {name: mock.MagicMock() for name in names}


def serving(script: object, place: Path, to: Path) -> mock._patch_dict:
    """Let a script find its shards in a folder, and send what it makes to another."""

    def located(index: int) -> tuple[str, str]:
        # Its newer versions name the ids so, older ones `.bin`.
        return f"{place}/train_{index:06}.npy", f"{place}/sample_ids_{index:06}.npy"

    def upload_fileobj(file: object, bucket: object, key: str) -> None:
        (to / key).write_bytes(file.read())

    client = script.boto3.session.Session.return_value.client.return_value
    client.upload_fileobj = upload_fileobj
    listed = [{"Key": path.name} for path in place.glob("*.npy")]
    client.list_objects_v2.return_value = {"Contents": listed}
    script.sharded_dataset.SharedShardedDataset.locate_shards = located
    script.comms.Comms.return_value.s3_get_object = mock.AsyncMock()
    return mock.patch.dict(sys.modules)


@case(checkout("llm.c"))
def llmc(to: Path) -> None:
    library = imported("llm.c", "dev/data/data_common.py")
    for index in range(3):
        library.write_datafile(to / f"corpus_train_{index:06}.bin", [*range(100 + index)])
    library.write_datafile(to / "corpus_val_000000.bin", [*range(50)])


@case(checkout("llm.c"))
def llmc_llama3(to: Path) -> None:
    library = imported("llm.c", "dev/data/data_common.py")
    library.write_datafile(to / "corpus_train_000000.bin", [*range(128000, 128100)], "llama-3")


@case(checkout("llm.c"))
def llmc_evaluation(to: Path) -> None:
    library = imported("llm.c", "dev/data/data_common.py")
    examples = [
        {"label": n % 4, "ctx_tokens": [*range(n + 1)], "ending_tokens": [[n], [1, 2], [3], [4]]}
        for n in range(9)
    ]
    library.write_evalfile(to / "questions_val.bin", examples)
