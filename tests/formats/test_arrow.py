"""Data sets that were saved to a disk: every file ends as an Arrow file or stream does."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from shardproof import ManifestError, validate
from shardproof.formats.samples import ARROW as FORMAT
from tests.formats.looking import contract, found_in

TABLE = pa.table({"a": list(range(3000)), "b": ["x"] * 3000})


def write_saved(path: Path, n_files: int = 3, *, is_file: bool = False) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    names = [f"data-{number:05}-of-{n_files:05}.arrow" for number in range(n_files)]
    make = pa.ipc.new_file if is_file else pa.ipc.new_stream
    for name in names:
        with pa.OSFile(str(path / name), "wb") as sink, make(sink, TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=500)
    # Of what else is in it any value is accepted: nothing is promised by it.
    state = {"_data_files": [{"filename": name} for name in names]}
    (path / "state.json").write_text(json.dumps(state, indent=2))
    (path / "dataset_info.json").write_text("{}")
    return path


TestFormat = contract(FORMAT, "state.json", lambda n, base: write_saved(base, n), "*.arrow")


def test_a_dictionary_of_data_sets(tmp_path) -> None:
    write_saved(tmp_path / "train")
    write_saved(tmp_path / "test", 1)
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert validate(tmp_path, level="complete").n_files == 4
    (tmp_path / "test/state.json").unlink()
    assert found_in(tmp_path) == [("missing", "state.json")]


@pytest.mark.parametrize("split", ["..", "/etc", "a/../..", "a\0b", ""])
def test_a_split_that_leads_elsewhere_is_refused(tmp_path, split: str) -> None:
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": [split]}))
    with pytest.raises(ManifestError, match="names that are refused"):
        validate(tmp_path)


def test_nothing_is_read_of_a_file_whose_name_leads_out(tmp_path) -> None:
    path = write_saved(tmp_path / "saved")
    (tmp_path / "dataset_info.json").write_text("no JSON")
    state = (path / "state.json").read_text()
    (path / "state.json").write_text(state.replace("data-00001", "../data-00001"))
    assert found_in(path) == [("structure", "state.json")]


@pytest.mark.parametrize("folder", ["", "train"])
@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_text('{"features": {')])
def test_a_save_that_was_interrupted_before_its_last_file(tmp_path, folder: str, harm) -> None:
    """`load_from_disk` refuses it."""
    harm(write_saved(tmp_path / folder) / "dataset_info.json")
    if folder:
        (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    assert found_in(tmp_path, "present") == []
    assert found_in(tmp_path) == [("structure", "dataset_info.json")]


@pytest.mark.parametrize("is_file", [True, False])
@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data[:-1],
        lambda data: data[:-8],
        lambda data: data[: len(data) // 2],
        lambda data: data + bytes(8) + b"x",
        lambda data: bytes(8) + data[8:],
    ],
)
def test_harm(tmp_path, harm, is_file: bool) -> None:
    path = write_saved(tmp_path, is_file=is_file) / "data-00001-of-00003.arrow"
    path.write_bytes(harm(path.read_bytes()))
    assert found_in(tmp_path) == [("structure", path.name)]


def test_another_state_is_not_claimed(tmp_path) -> None:
    (tmp_path / "state.json").write_text('{"epoch": 3}')
    assert not FORMAT.recognizes(str(tmp_path))
