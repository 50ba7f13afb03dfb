"""Files of a repository of the Hub, and what the Hub and its client say of them."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

from shardproof.testing.faults import Hub

COMMIT, TAG = "c" * 40, "e" * 64
PART_NAMES = [".incomplete", f"{TAG}.incomplete", "x.y.incomplete"]
SHARDS = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]


def tensors(n_bytes: int = 64) -> bytes:
    header = {"x": {"dtype": "U8", "shape": [n_bytes], "data_offsets": [0, n_bytes]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(range(256))[:n_bytes]


def index_of(*names: str) -> bytes:
    weights = {f"layer.{n}": name for n, name in enumerate(names)}
    return json.dumps({"metadata": {"total_size": 128}, "weight_map": weights}).encode()


FILES = {
    "README.md": b"# A model\n",
    "config.json": b"{}",
    "model.safetensors": tensors(),
    "onnx/model.bin": b"\1" * 1000,
    "package/__init__.py": b"",
    "package/more/__init__.py": b"",
}


def is_large(name: str) -> bool:
    return Path(name).suffix in {".safetensors", ".bin", ".parquet"}


def tag_of(data: bytes, *, large: bool = True) -> str:
    if large:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def listing_of(files: dict[str, bytes]) -> str:
    listed: dict[str, dict[str, Any]] = {}
    for name, data in files.items():
        listed[name] = {"size": len(data), "blob_id": tag_of(data, large=False)}
        if is_large(name):
            listed[name] |= {"lfs_sha256": tag_of(data), "lfs_size": len(data)}
    return json.dumps({"format_version": 1, "files": listed})


def put_all(hub: Hub, kind: str, files: dict[str, bytes] = FILES) -> dict[str, Any]:
    for name, data in files.items():
        hub.put(name, data, repo="owner/gpt", repo_type=kind)
    return {"repo_id": "owner/gpt", "repo_type": kind, "endpoint": hub.url, "token": False}
