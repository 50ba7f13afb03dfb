"""Croissant: what its file objects state of files that lie beside them."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from shardproof import ManifestError, validate
from shardproof.formats.lists import CROISSANT as FORMAT
from shardproof.testing.strategies import hostile_names, twin_names
from tests.formats.looking import contract

DATA = b"x,y\n1,2\n"


def file_object(**fields: Any) -> dict[str, Any]:
    digest = hashlib.sha256(DATA).hexdigest()
    about = {"@type": "cr:FileObject", "@id": "a", "contentUrl": "a.csv", "sha256": digest}
    return {**about, "contentSize": f"{len(DATA)} B", **fields}


def write(path: Path, *entries: dict[str, Any], name: str = "croissant.json") -> Path:
    metadata = {
        "@context": {"cr": "http://mlcommons.org/croissant/"},
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "distribution": list(entries),
    }
    (path / name).write_text(json.dumps(metadata, indent=2))
    (path / "a.csv").write_bytes(DATA)
    return path


@pytest.mark.parametrize("name", ["croissant.json", "metadata.json"])
def test_a_file_beside_its_metadata(tmp_path, name: str) -> None:
    # Where its name is one that others use, the format has to be said.
    said = None if name == "croissant.json" else "croissant"
    report = validate(write(tmp_path, file_object(), name=name), level="valid", format=said)
    assert (report.format, report.ok, report.n_proven) == ("croissant", True, 1)
    (tmp_path / "a.csv").write_bytes(DATA.swapcase())
    report = validate(tmp_path, level="valid", format=said)
    assert [each.kind.value for each in report.findings] == ["digest"]


@pytest.mark.parametrize(
    ("size", "kinds"),
    [("8 B", []), ("8", []), (8, []), ("9 B", ["size"]), ("0.01 KB", []), ("1 MB", []), ("", [])],
)
def test_only_exact_sizes_count(tmp_path, size, kinds: list[str]) -> None:
    write(tmp_path, file_object(contentSize=size))
    found = validate(tmp_path, level="complete").findings
    assert [each.kind.value for each in found] == kinds


@pytest.mark.parametrize("text", ["https://github.com/mlcommons/croissant/issues/80", "main", "0"])
def test_a_placeholder_proves_nothing(tmp_path, text: str) -> None:
    report = validate(write(tmp_path, file_object(sha256=text)), level="valid")
    assert (report.ok, len(report.unproven)) == (True, 1)


def test_what_is_elsewhere_is_not_promised_but_a_copy_of_it_is(tmp_path) -> None:
    archive = file_object(contentUrl="https://example.org/x.zip")
    inner = file_object(contentUrl="inner.csv", containedIn={"@id": "zip"})
    copied = file_object(contentUrl="https://example.org/data/a.csv")
    write(tmp_path, archive, inner, copied, {"@type": "cr:FileSet", "includes": "*.jpg"})
    report = validate(tmp_path, level="valid")
    assert (report.n_files, report.n_proven) == (1, 1)


def write_many(n_files: int, base: Path) -> None:
    base.mkdir()
    names = [f"{number}.csv" for number in range(n_files)]
    for name in names:
        (base / name).write_bytes(DATA)
    write(base, *(file_object(contentUrl=name) for name in names))
    (base / "a.csv").unlink()


class TestFormat(contract(FORMAT, "croissant.json", write_many, "*.csv")):
    @pytest.mark.slow
    def test_hostile_names_are_refused(self, form, root: Path) -> None:
        """But "./name", no name, and what is an address: those may stand there."""
        rename = self._renamed(root)
        hostile = hostile_names().filter(
            lambda name: name and not name.startswith("./") and ":" not in name
        )
        self._refuses_all(form, root, hostile.map(lambda name: rename([name])))

    @pytest.mark.slow
    def test_twins_are_refused(self, form, root: Path) -> None:
        """But one file that two entries say the same of."""
        twins = twin_names().filter(lambda pair: pair[0] != pair[1])
        self._refuses_all(form, root, twins.map(self._renamed(root)))


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_digests_in_base64(tmp_path, algorithm: str) -> None:
    """As Kaggle writes them, and as mlcroissant accepts them."""
    value = base64.b64encode(hashlib.new(algorithm, DATA).digest()).decode()
    write(tmp_path, file_object(**{"sha256": None, algorithm: value}))
    assert validate(tmp_path, level="valid").n_proven == 1


def test_metadata_of_files_that_are_all_elsewhere_are_not_claimed(tmp_path) -> None:
    """So that what lies here is judged by its own format; the Hub's metadata are of this kind."""
    url = "https://huggingface.co/datasets/x/y/tree/refs%2Fconvert%2Fparquet"
    issue = "https://github.com/mlcommons/croissant/issues/80"
    files = {"@type": "cr:FileSet", "containedIn": {"@id": "repo"}, "includes": "data/*.parquet"}
    write(tmp_path, file_object(contentUrl=url, sha256=issue), files)
    assert not FORMAT.recognizes(str(tmp_path))
    with pytest.raises(ManifestError, match="it has no file that lies beside it"):
        validate(tmp_path, format="croissant")


def test_two_addresses_that_end_alike(tmp_path) -> None:
    urls = [f"https://example.org/{part}/a.csv" for part in "xy"]
    (tmp_path / "b.csv").write_bytes(DATA)
    write(tmp_path, *(file_object(contentUrl=url) for url in urls), file_object(contentUrl="b.csv"))
    assert [file.name for file in FORMAT.read_manifest(str(tmp_path)).files] == ["b.csv"]


def test_a_file_in_two_entries(tmp_path) -> None:
    write(tmp_path, file_object(), file_object(**{"@id": "b", "contentUrl": "./a.csv"}))
    assert validate(tmp_path, level="valid").n_files == 1
    write(tmp_path, file_object(), file_object(contentSize="9 B"))
    with pytest.raises(ManifestError, match="it is listed twice"):
        validate(tmp_path)


def test_a_folder(tmp_path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    write(tmp_path, file_object(), file_object(contentUrl="images"))
    assert validate(tmp_path, level="complete").ok
    write(tmp_path, file_object(contentUrl="loop"))
    assert not validate(tmp_path, level="complete").ok


@pytest.mark.parametrize("name", ["\0", "x" * 5000, "..", "a\nb", "?", ""])
def test_addresses_that_end_in_no_name(tmp_path, name: str) -> None:
    write(tmp_path, file_object(), file_object(contentUrl=f"https://example.org/{name}"))
    assert validate(tmp_path).n_files == 1


@pytest.mark.parametrize("kind", ["sc:FileObject", "FileObject", "http://x/FileObject"])
def test_one_entry_alone(tmp_path, kind: str) -> None:
    write(tmp_path)
    text = json.loads((tmp_path / "croissant.json").read_text())
    text["distribution"] = file_object(**{"@type": kind})
    (tmp_path / "croissant.json").write_text(json.dumps(text))
    assert validate(tmp_path, level="valid").n_proven == 1
