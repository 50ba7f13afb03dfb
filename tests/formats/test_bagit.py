"""BagIt bags: complete and valid, as RFC 8493 has it."""

import hashlib
from pathlib import Path

import pytest

from shardproof import ManifestError, validate
from shardproof.formats.lists.bagit import FORMAT

PAYLOAD = {"a.bin": b"a" * 100, "sub/b.bin": b"b" * 50, "empty": b""}


def write_bag(path: Path, algorithms: tuple[str, ...] = ("sha256",)) -> Path:
    for name, data in PAYLOAD.items():
        (path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (path / "data" / name).write_bytes(data)
    (path / "bagit.txt").write_text("BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n")
    (path / "bag-info.txt").write_text("Bagging-Date: 2026-01-01\nPayload-Oxum: 150.3\n")
    for algorithm in algorithms:
        lines = [
            f"{hashlib.new(algorithm, data).hexdigest()}  data/{name}\n"
            for name, data in PAYLOAD.items()
        ]
        (path / f"manifest-{algorithm}.txt").write_text("".join(lines))
    tags = ["bagit.txt", "bag-info.txt", *(f"manifest-{each}.txt" for each in algorithms)]
    lines = [f"{hashlib.md5((path / tag).read_bytes()).hexdigest()} {tag}\n" for tag in tags]
    (path / "tagmanifest-md5.txt").write_text("".join(lines))
    return path


def found_in(path: Path, level: str = "complete") -> list[tuple[str, str]]:
    return [(each.kind.value, each.path.name) for each in validate(path, level=level).findings]


@pytest.mark.parametrize("algorithms", [("md5",), ("sha256",), ("md5", "sha512")])
def test_a_whole_bag(tmp_path, algorithms) -> None:
    report = validate(write_bag(tmp_path, algorithms), level="valid")
    assert (report.format, report.ok, report.unproven) == ("bagit", True, ())
    assert report.n_proven == len(PAYLOAD) + 2 + len(algorithms)


@pytest.mark.parametrize("name", ["data/a.bin", "bag-info.txt"])
def test_changed_bytes(tmp_path, name: str) -> None:
    path = write_bag(tmp_path) / name
    path.write_bytes(path.read_bytes().swapcase())
    kinds = found_in(tmp_path, "valid")
    assert ("digest", path.name) in kinds


def test_a_missing_file(tmp_path) -> None:
    (write_bag(tmp_path) / "data/sub/b.bin").unlink()
    assert found_in(tmp_path, "present") == [("missing", "b.bin")]
    assert ("structure", "bag-info.txt") in found_in(tmp_path)


def test_one_that_is_to_be_fetched_is_missing(tmp_path) -> None:
    (write_bag(tmp_path) / "data/a.bin").unlink()
    (tmp_path / "fetch.txt").write_text("https://example.org/a.bin 100 data/a.bin\n")
    assert found_in(tmp_path, "present") == [("missing", "a.bin")]


def test_a_file_that_no_list_has(tmp_path) -> None:
    (write_bag(tmp_path) / "data/stray").write_bytes(b"x")
    assert found_in(tmp_path) == [("structure", "stray"), ("structure", "bag-info.txt")]


def test_a_list_that_lacks_a_file(tmp_path) -> None:
    write_bag(tmp_path, ("md5", "sha256"))
    path = tmp_path / "manifest-md5.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    assert found_in(tmp_path) == [("structure", "a.bin")]


def test_names_with_percent_signs(tmp_path) -> None:
    write_bag(tmp_path)
    (tmp_path / "data/100%").write_bytes(b"x")
    with (tmp_path / "manifest-sha256.txt").open("a") as file:
        file.write(f"{hashlib.sha256(b'x').hexdigest()}  data/100%25\n")
    (tmp_path / "bag-info.txt").unlink()
    (tmp_path / "tagmanifest-md5.txt").unlink()
    assert found_in(tmp_path, "valid") == []


@pytest.mark.parametrize("line", ["xyz", "abc data/../../x", "12  /etc/passwd"])
def test_a_line_that_is_none_is_refused(tmp_path, line: str) -> None:
    write_bag(tmp_path)
    (tmp_path / "manifest-sha256.txt").write_text(f"{line}\n")
    with pytest.raises(ManifestError):
        validate(tmp_path)


def test_a_bag_without_a_list_is_refused(tmp_path) -> None:
    (write_bag(tmp_path) / "manifest-sha256.txt").unlink()
    with pytest.raises(ManifestError, match="a list of the payload"):
        validate(tmp_path)
    assert FORMAT.recognizes(str(tmp_path))
