"""A loader of somebody's own: every activation of a shards directory, in order."""

import json
import os
from pathlib import Path

import numpy as np

import shardproof


class Rows:
    """Iterates over rows; damage is an error that names the shard, whenever it happens."""

    def __init__(self, path):
        self.path = Path(os.path.abspath(path))
        shardproof.validate(self.path, level="complete").raise_for_findings()
        self.names = [
            shard["name"] for shard in json.loads((self.path / "shards.json").read_text())
        ]
        self.metadata = shardproof.Metadata.load(self.path)

    def __iter__(self):
        for name in self.names:
            yield from self._read(self.path / name)

    def _read(self, path):
        with open(path, "rb") as file:
            data = file.read()  # np.fromfile takes an error of the disk for the end of the file
        if len(data) != self.metadata.shard_bytes:  # it was cut after it was checked
            raise EOFError(f"{path}: expected {self.metadata.shard_bytes} bytes, found {len(data)}")
        return np.frombuffer(data, "<f4").reshape(-1, self.metadata.d_model)
