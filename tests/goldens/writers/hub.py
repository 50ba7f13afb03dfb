"""Downloads by Hugging Face's client, from the kit's own server."""

import json
import shutil
from functools import partial
from pathlib import Path

from ._cases import cases, package


def download(to: Path, kind: str, where: str) -> None:
    from huggingface_hub import snapshot_download

    from shardproof.testing.faults import serve_hub

    repo, files = ("org/tiny", model()) if kind == "model" else ("org/rows", rows())
    with serve_hub() as hub:
        for name, data in files.items():
            hub.put(name, data, repo=repo, repo_type=kind)
        how = {"repo_type": kind, "endpoint": hub.url, "max_workers": 1}  # in one order always
        snapshot_download(repo, **how, **{where: to})
    without_extras(to if where == "cache_dir" else to / ".cache/huggingface")


def model() -> dict[str, bytes]:
    import numpy as np
    from safetensors.numpy import save

    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    shards = [save({f"w{n}": np.full((8, 8), n, np.float32)}) for n in range(2)]
    index = {"metadata": {"total_size": 512}, "weight_map": {"w0": names[0], "w1": names[1]}}
    return {
        "config.json": b'{"model_type": "tiny"}',
        "model.safetensors.index.json": json.dumps(index).encode(),
        "tokenizer/vocab.txt": b"a\nb\n",
        **dict(zip(names, shards, strict=True)),
    }


def rows() -> dict[str, bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = {"README.md": b"---\nlicense: cc0-1.0\n---\nRows.\n"}
    for index in range(2):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": [*range(index, 20)]}), sink)
        files[f"data/train-{index:05}-of-00002.parquet"] = sink.getvalue().to_pybytes()
    return files


def without_extras(folder: Path) -> None:
    """Leave away what a checkout does not keep: locks, and marks for other programs."""
    shutil.rmtree(folder / ".locks", ignore_errors=True)
    marks = [folder / ".gitignore", folder / "CACHEDIR.TAG"]
    for path in [*marks, *folder.rglob("*.lock")]:
        path.unlink(missing_ok=True)


cases(
    package("huggingface_hub", "pyarrow", "safetensors", "shardproof"),
    hf_cache=partial(download, kind="model", where="cache_dir"),
    hf_cache_dataset=partial(download, kind="dataset", where="cache_dir"),
    hf_local_dir=partial(download, kind="model", where="local_dir"),
    hf_local_dir_dataset=partial(download, kind="dataset", where="local_dir"),
)
