"""Writers that were interrupted wherever they may be: what their own readers refuse is not whole.

The real writers were stopped before each change that they make, and the real readers asked about
each state; `tests/goldens/interrupt.py` does that, and recorded it. Here each state is made anew.
"""

import json
import os
from pathlib import Path

import pytest

from shardproof import ManifestError, validate
from tests.formats.looking import sampled
from tests.goldens import GOLDENS, HERE, Golden
from tests.goldens.interrupt import RECORDS, contents_of, make, states_in

FRESH = os.environ.get("INTERRUPTED")
RECORDED = {path.stem: path for path in Path(FRESH or RECORDS).glob("*.json")}
INSIDE = {golden.name: os.path.relpath(golden.path, HERE / golden.name) for golden in GOLDENS}

ALONE = "shards are read one by one: nobody can tell how many were to come"
TORN = "a reader takes what is torn for its end, or leaves its last bytes unread"
UNMERGED = "not all workers may be done: LitData merges whatever parts of an index are there"
ASKED = "which files were asked for is written nowhere: a part of a repository is one, too"
CUT = "a list that ends between two lines is a list, and a shorter one"
UNNAMED = "data without an index yet, whose names tell nothing, may be anybody's"
BEFORE = "a group is one before its metadata are consolidated, and chunks may be left out"
ARCHIVES = ["webdataset-gz", "webdataset-tar"]
ONE_BY_ONE = ["llmc", "npy", "npy-templar", "feather", "hdf5", "nanogpt", "npz", *ARCHIVES]
ONE_BY_ONE += [f"parquet-{kind}" for kind in ("dask", "datasets", "empty", "hive", "names")]
ONE_BY_ONE += ["json-lines-zst", "torch", "torch-legacy"]
PICKLES = "what torch wrote before 1.6 has no mark and no size that can be read without unpickling"
DOWNLOADS = [f"hf-{place}{kind}" for place in ("cache", "local-dir") for kind in ("", "-dataset")]
LAWS = {
    **dict.fromkeys(
        [(f"digests{end}", "reads") for end in ("", "-b2", "-b3", "-md5", "-tag")], CUT
    ),
    ("arrow", "FileNotFoundError"): "without their state, files of Arrow are plain ones",
    ("dvc", "reads"): "of what is not tracked yet no file of DVC tells",
    ("energon", "ValueError: Invalid dataset"): "before they are prepared, archives are plain ones",
    **{(case, "IncompleteSnapshotError"): ASKED for case in DOWNLOADS},
    **{(f"litdata-{kind}", "all"): UNMERGED for kind in ("classic", "optimized", "tokens", "zstd")},
    **{(case, "reads"): ALONE for case in ONE_BY_ONE},
    **dict.fromkeys([("megatron-modes", "reads"), ("megatron-uint16", "reads")], UNNAMED),
    ("nanogpt", "FileNotFoundError"): "what the tokens mean is a pickle, which nothing here reads",
    ("parquet-datasets", "all"): "the last file is still called -of-NNNNN, and no counts are there",
    ("parquet-hive", "all"): "its list is torn, and a reader that does without reads all",
    ("parquet-spark", "all"): "not all tasks may have committed: its _temporary is still there",
    ("tfrecord", "reads"): "it ends between two records: nobody can tell how many were to come",
    ("json-lines", "reads"): "a file that ends between two lines is one, and a shorter one",
    **{(case, "all"): TORN for case in ("tfrecord-gzip", "tfrecord-zlib", *ARCHIVES)},
    ("zarr-2", "KeyError: '.zmetadata'"): BEFORE,
    ("zarr-3", "ValueError: Consolidated metadata requested"): BEFORE,
    ("json-lines-zst", "all"): TORN,
    **{("torch-legacy", error): PICKLES for error in ("EOFError", "error:", "RuntimeError")},
    ("wids", "FileNotFoundError"): "without their index, archives are plain ones",
}
"""Where a case differs for a good reason: how what its reader says there begins, with the reason.

Where the reader reads ``all`` that was to be written, we say that it is not whole; where it
refuses, or reads other samples, that it is.
"""


UNRECORDED = {"lerobot", "lerobot-2", "torch-bin"}
"""Of which no record is there yet: each takes their libraries more than a quarter of an hour."""


def is_whole(root: Path) -> bool:
    try:
        return validate(root, level="complete").ok
    except ManifestError:
        return False


def test_each_golden_was_interrupted() -> None:
    recorded = {path.stem for path in RECORDS.glob("*.json")}
    assert recorded == {golden.name for golden in GOLDENS} - UNRECORDED


@pytest.mark.slow
@pytest.mark.parametrize(
    "golden",
    sampled([each for each in GOLDENS if each.name in RECORDED], RECORDED if FRESH else ()),
)
def test_a_writer_that_was_interrupted(golden: Golden, tmp_path: Path) -> None:
    path = RECORDED[golden.name]
    if path.stem.startswith("dvc"):
        pytest.importorskip("yaml")
    states = [*states_in(json.loads(path.read_text()), contents_of(HERE / path.stem))]
    laws = {said for case, said in LAWS if case == path.stem}
    told = set[str]()
    for number, (tree, said) in enumerate(states):
        root = make(tree, tmp_path / str(number) / path.stem) / INSIDE[path.stem]
        words = "all" if said == states[-1].said else said
        if is_whole(root) != (words == "all"):
            law = {law for law in laws if words.startswith(law)}
            assert law, f"{number}: {words}: {[*tree]}"
            told |= law
    assert told == laws
