"""What the client of the Hugging Face Hub leaves on a disk: its cache, and local directories."""

import re

from shardproof.formats._format import Format

_INCLUDED = (
    *("safetensors", "parquet", "arrow", "npy", "webdataset", "mds", "litdata"),
    *("lerobot", "model-signing", "torch-dcp", "tfrecord"),
)
"""Of these each file is proven here. The list of another format may name files that were never
downloaded: then the user says which of the two is to be believed."""

CACHE = Format.of_module(
    "hub.cache",
    name="hf-cache",
    description="a repository, or a snapshot of one, in the cache of huggingface_hub",
    manifest_file="snapshots/*",
    beside=("blobs/*", "refs/*", "trees/*", ".no_exist/*"),
    marks=("blobs", "snapshots", "../../blobs"),
    near=("refs", "trees", ".no_exist"),
    states_digests=True,
    complete="the targets of links and refs; sizes, if the client kept the listing; that no "
    "download was cut off; that all weights exist that an index names; the structure of "
    "safetensors and parquet files",
    valid="the digest in the name of each blob, or in the listing",
    blind_spots="files that were never downloaded and that no index names; the bytes of copies in "
    "place of links, without a listing; copies whose names differ only in case",
    includes=_INCLUDED,
    store="../../blobs",
    only_here="its links are lost there; check the cache, or `--against hf://...` what was copied",
    name_at_source=lambda name: re.sub(r"^snapshots/[^/]*/", "", name),
)
LOCAL_DIR = Format.of_module(
    "hub.local_dir",
    name="hf-local-dir",
    description="a directory into which huggingface_hub downloaded a repository, or files of one",
    manifest_file=".cache/huggingface/download/*.metadata",
    further_parts=(".cache/huggingface/trees/*.json",),
    beside=(".cache/huggingface/*",),
    marks=(".cache/huggingface/download",),
    states_digests=True,
    complete="sizes, if the client kept the listing; that no download was cut off; that all "
    "weights exist that an index names; the structure of safetensors and parquet files",
    valid="the digest that the client recorded for each file",
    blind_spots="files that were never downloaded and that no index names; the bytes of files "
    "from servers whose entity tags are no digests; files whose names differ only in case",
    includes=_INCLUDED,
)
FORMATS = (CACHE, LOCAL_DIR)
