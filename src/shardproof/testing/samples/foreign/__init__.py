"""Sample directories of formats that others write: a module each, of which `Layout` takes the name.

They are made with the standard library alone, as each format's own library writes them.
"""

from shardproof._base.imports import attached

__all__ = ["digests", "hf_cache", "mds", "parquet", "safetensors", "webdataset"]

__getattr__, __dir__ = attached(__name__, dict.fromkeys(__all__, ""))
