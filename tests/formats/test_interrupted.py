"""Writers that were interrupted wherever they may be: what their own readers refuse is not whole.

The real writers were stopped before each change that they make, and the real readers asked about
each state; `tests/goldens/interrupt.py` does that, and recorded it. Here each state is made anew.
"""

import json
import os
from pathlib import Path

import pytest

from shardproof import ManifestError, validate
from tests.goldens import GOLDENS, HERE
from tests.goldens.interrupt import RECORDS, contents_of, make, states_in

RECORDED = sorted(Path(os.environ.get("INTERRUPTED", RECORDS)).glob("*.json"))
INSIDE = {golden.name: os.path.relpath(golden.path, HERE / golden.name) for golden in GOLDENS}

ALONE = "shards are read one by one: nobody can tell how many were to come"
TORN = "a reader takes what is torn for its end, or leaves its last bytes unread"
UNMERGED = "not all workers may be done: LitData merges whatever parts of an index are there"
ASKED = "which files were asked for is written nowhere: a part of a repository is one, too"
CUT = "a list that ends between two lines is a list, and a shorter one"
UNNAMED = "data without an index yet, whose names tell nothing, may be anybody's"
LAWS = {
    ("digests", "reads"): CUT,
    ("digests-b2", "reads"): CUT,
    ("digests-b3", "reads"): CUT,
    ("digests-md5", "reads"): CUT,
    ("digests-tag", "reads"): CUT,
    ("dvc", "reads"): "of what is not tracked yet no file of DVC tells",
    ("energon", "ValueError: Invalid dataset"): "before they are prepared, archives are plain ones",
    ("hf-cache", "IncompleteSnapshotError"): ASKED,
    ("hf-cache-dataset", "IncompleteSnapshotError"): ASKED,
    ("hf-local-dir", "IncompleteSnapshotError"): ASKED,
    ("hf-local-dir-dataset", "IncompleteSnapshotError"): ASKED,
    ("litdata-classic", "all"): UNMERGED,
    ("litdata-optimized", "all"): UNMERGED,
    ("litdata-tokens", "all"): UNMERGED,
    ("litdata-zstd", "all"): UNMERGED,
    ("llmc", "reads"): ALONE,
    ("megatron-modes", "reads"): UNNAMED,
    ("megatron-uint16", "reads"): UNNAMED,
    ("npy", "reads"): ALONE,
    ("npy-templar", "reads"): ALONE,
    ("parquet-dask", "reads"): ALONE,
    ("parquet-datasets", "all"): "the last file is still called -of-NNNNN, and no counts are there",
    ("parquet-datasets", "reads"): ALONE,
    ("parquet-empty", "reads"): ALONE,
    ("parquet-hive", "all"): "without its list, which is torn or gone, folders are no data set",
    ("parquet-spark", "all"): "not all tasks may have committed: its _temporary is still there",
    ("tfrecord", "reads"): "it ends between two records: nobody can tell how many were to come",
    ("tfrecord-gzip", "all"): TORN,
    ("tfrecord-zlib", "all"): TORN,
    ("webdataset-gz", "all"): TORN,
    ("webdataset-gz", "reads"): ALONE,
    ("webdataset-tar", "all"): TORN,
    ("webdataset-tar", "reads"): ALONE,
    ("wids", "FileNotFoundError"): "without their index, archives are plain ones",
}
"""Where a case differs for a good reason: how what its reader says there begins, with the reason.

Where the reader reads ``all`` that was to be written, we say that it is not whole; where it
refuses, or reads other samples, that it is.
"""


def is_whole(root: Path) -> bool:
    try:
        return validate(root, level="complete").ok
    except ManifestError:
        return False


def test_each_golden_was_interrupted() -> None:
    assert {path.stem for path in RECORDS.glob("*.json")} == {golden.name for golden in GOLDENS}


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_writer_that_was_interrupted(path: Path, tmp_path: Path) -> None:
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
