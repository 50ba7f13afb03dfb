"""Writers that were interrupted wherever they may be: what their own readers refuse is not whole.

The real writers were stopped before each change that they make, and the real readers asked about
each state; `tests/goldens/interrupt.py` does that, and recorded it. Here each state is made anew.
"""

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

from shardproof import ManifestError, validate
from tests.goldens import GOLDENS, HERE
from tests.goldens.interrupt import RECORDS, contents_of, make, states_in

RECORDED = sorted(Path(os.environ.get("INTERRUPTED", RECORDS)).glob("*.json"))
INSIDE = {golden.name: os.path.relpath(golden.path, HERE / golden.name) for golden in GOLDENS}

ALONE = "shards are read one by one: nobody can tell how many were to come"
LAWS: dict[tuple[str, str], str] = {
    ("npy", "less"): ALONE,
    ("parquet-empty", "less"): ALONE,
}
"""Where a case differs for a good reason: what its reader does there, with the reason.

A reader that `reads` all of it has what we say is not whole; one that reads `less`, or `refuses`,
has what we say is whole.
"""


def is_whole(root: Path) -> bool:
    try:
        return validate(root, level="complete").ok
    except ManifestError:
        return False


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_writer_that_was_interrupted(path: Path, tmp_path: Path) -> None:
    states = [*states_in(json.loads(path.read_text()), contents_of(HERE / path.stem))]
    differing = defaultdict[str, list[str]](list)
    for number, (tree, said) in enumerate(states):
        root = make(tree, tmp_path / str(number) / path.stem) / INSIDE[path.stem]
        does = "less" if said.startswith("reads ") else "refuses"
        if said == states[-1].said:
            does = "reads"
        if is_whole(root) != (does == "reads"):
            differing[does].append(f"{number}: {said}: {[*tree]}")
    assert differing.keys() == {does for case, does in LAWS if case == path.stem}, differing
