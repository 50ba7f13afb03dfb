"""Croissant: what its file objects state of files that lie beside them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from shardproof import ManifestError, validate
from shardproof.formats.lists.croissant import FORMAT

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


def test_what_is_elsewhere_is_not_promised(tmp_path) -> None:
    write(
        tmp_path,
        file_object(),
        file_object(contentUrl="https://example.org/x.zip"),
        file_object(contentUrl="inner.csv", containedIn={"@id": "zip"}),
        {"@type": "cr:FileSet", "includes": "*.jpg"},
    )
    assert validate(tmp_path).n_files == 1


def test_a_copy_of_what_is_elsewhere_is(tmp_path) -> None:
    write(tmp_path, file_object(contentUrl="https://example.org/data/a.csv"))
    assert validate(tmp_path, level="valid").n_proven == 1


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [file_object(contentUrl="../a.csv")],
        [file_object(contentUrl="/etc/passwd")],
        [{"sha256": 1}],
    ],
)
def test_what_can_not_be_kept_is_refused(tmp_path, entries) -> None:
    with pytest.raises(ManifestError):
        validate(write(tmp_path, *entries))


def test_metadata_of_another_program_are_not_claimed(tmp_path) -> None:
    (tmp_path / "metadata.json").write_text('{"distribution": []}')
    assert not FORMAT.recognizes(str(tmp_path))
