"""BagIt bags: complete and valid, as RFC 8493 has it."""

import hashlib
from pathlib import Path

import pytest

from shardproof import ManifestError, validate
from shardproof.formats.lists import BAGIT as FORMAT
from tests.formats.looking import found_in

PAYLOAD = {"a.bin": b"a" * 100, "sub/b.bin": b"b" * 50, "empty": b""}


def write_bag(path: Path, algorithms: tuple[str, ...] = ("sha256",)) -> Path:
    for name, data in PAYLOAD.items():
        (path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (path / "data" / name).write_bytes(data)
    (path / "bagit.txt").write_text("BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n")
    (path / "bag-info.txt").write_text("Bagging-Date: 2026-01-01\nPayload-Oxum: 150.3\n")
    for each in algorithms:
        digests = {name: hashlib.new(each, data).hexdigest() for name, data in PAYLOAD.items()}
        lines = [f"{digest}  data/{name}\n" for name, digest in digests.items()]
        (path / f"manifest-{each}.txt").write_text("".join(lines))
    tags = ["bagit.txt", "bag-info.txt", *(f"manifest-{each}.txt" for each in algorithms)]
    lines = [f"{hashlib.md5((path / tag).read_bytes()).hexdigest()} {tag}\n" for tag in tags]
    (path / "tagmanifest-md5.txt").write_text("".join(lines))
    return path


def test_a_declaration_that_was_cut(tmp_path) -> None:
    """As a writer leaves it that was interrupted: bagit-python refuses such a bag."""
    (write_bag(tmp_path) / "tagmanifest-md5.txt").unlink()
    (tmp_path / "bagit.txt").write_text("BagIt-Version: 1.0\nTag-File-Charac")
    assert found_in(tmp_path) == [("structure", "bagit.txt")]


def test_a_file_that_no_list_has(tmp_path) -> None:
    (write_bag(tmp_path) / "data/stray").write_bytes(b"x")
    assert found_in(tmp_path) == [("structure", "stray"), ("structure", "bag-info.txt")]


def test_a_list_that_lacks_a_file(tmp_path) -> None:
    path = write_bag(tmp_path, ("md5", "sha256")) / "manifest-md5.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    assert found_in(tmp_path) == [("structure", "a.bin")]
    as_version_097(tmp_path)  # in which one list is enough
    assert found_in(tmp_path, "valid") == []


@pytest.mark.parametrize("line", ["xyz", "abc data/../../x", "12  /etc/passwd"])
def test_a_line_that_is_none_is_refused(tmp_path, line: str) -> None:
    write_bag(tmp_path)
    (tmp_path / "manifest-sha256.txt").write_text(f"{line}\n")
    with pytest.raises(ManifestError):
        validate(tmp_path)


def test_a_bag_that_is_being_made_is_none(tmp_path) -> None:
    """Its lists are written before ``bagit.txt``; what else is called so is somebody's."""
    (write_bag(tmp_path) / "bagit.txt").unlink()
    with pytest.raises(ManifestError, match="only what is written before"):
        validate(tmp_path)
    (tmp_path / "manifest-sha256.txt").rename(tmp_path / "manifest-train.txt")
    assert not FORMAT.recognizes(str(tmp_path))


def as_version_097(path: Path) -> None:
    text = (path / "bagit.txt").read_text().replace("1.0", "0.97")
    (path / "bagit.txt").write_text(text)
    without_tags(path)


def without_tags(path: Path) -> None:
    """So that what is changed has one list that tells of it."""
    (path / "tagmanifest-md5.txt").unlink()
    (path / "bag-info.txt").unlink()


def add_file(path: Path, name: str, listed_as: str) -> None:
    (path / "data" / name).write_bytes(b"x")
    with (path / "manifest-sha256.txt").open("a") as file:
        file.write(f"{hashlib.sha256(b'x').hexdigest()}  data/{listed_as}\n")


def test_percent_signs_are_escaped_since_version_1(tmp_path) -> None:
    as_version_097(write_bag(tmp_path / "old"))
    for name in ("http%253A%2F%2Fx", "100%25"):
        add_file(tmp_path / "old", name, name)
    without_tags(write_bag(tmp_path / "new"))
    add_file(tmp_path / "new", "100%", "100%25")
    assert found_in(tmp_path / "old", "valid") == found_in(tmp_path / "new", "valid") == []


@pytest.mark.parametrize("algorithm", ["sha3_256", "blake2b", "sha384"])
def test_algorithms_by_the_names_of_hashlib(tmp_path, algorithm: str) -> None:
    report = validate(write_bag(tmp_path, (algorithm,)), level="valid")
    assert (report.ok, report.unproven) == (True, ())


def test_an_algorithm_that_nobody_knows_proves_nothing(tmp_path) -> None:
    without_tags(write_bag(tmp_path))
    (tmp_path / "data/empty").write_bytes(b"x")
    (tmp_path / "manifest-sha256.txt").rename(tmp_path / "manifest-shake128.txt")
    report = validate(tmp_path, level="valid")
    assert (report.ok, len(report.unproven)) == (True, 3)


@pytest.mark.parametrize("encoding", ["UTF-8", "utf-8-sig", "UTF-16", "ISO-8859-1"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends(tmp_path, encoding: str, end: str) -> None:
    without_tags(write_bag(tmp_path))
    (tmp_path / "data/é").write_bytes(b"x")
    path = tmp_path / "manifest-sha256.txt"
    text = path.read_text() + f"{hashlib.sha256(b'x').hexdigest()} *./data/é\n\n# a comment\n"
    path.write_bytes(text.replace("\n", end).encode(encoding))
    lines = ("BagIt-Version: 1.0", f"Tag-File-Character-Encoding: {encoding.removesuffix('-sig')}")
    its_end = "\n" if end == "\r" else end  # of bagit.txt the other is none
    (tmp_path / "bagit.txt").write_bytes("".join(f"{line}{its_end}" for line in lines).encode())
    assert found_in(tmp_path, "valid") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", "BagIt-Version, and a version"),
        ("BagIt-Version: x\n", "BagIt-Version, and a version"),
        ("BagIt-Version: 1.0\nTag-File-Character-Encoding: punycode\n", "an encoding: utf-16,"),
        ("BagIt-Version: 1.0\nTag-File-Character-Encoding: zlib\n", "an encoding: utf-16,"),
    ],
)
def test_a_declaration_that_is_none(tmp_path, text: str, expected: str) -> None:
    (write_bag(tmp_path) / "bagit.txt").write_text(text)
    [finding] = validate(tmp_path, level="complete").findings
    assert finding.path.name == "bagit.txt"
    assert finding.expected.startswith(expected)
    assert len(str(finding)) < 600


def test_a_list_that_disagrees_with_itself(tmp_path) -> None:
    path = write_bag(tmp_path) / "manifest-sha256.txt"
    path.write_text(f"{path.read_text()}{'0' * 64}  data/a.bin\n")
    with pytest.raises(ManifestError, match=r"line 4: 'data/a\.bin' has another digest"):
        validate(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], lines[0]]))
    assert validate(tmp_path).ok


def test_a_bag_without_a_list_is_refused(tmp_path) -> None:
    (write_bag(tmp_path) / "manifest-sha256.txt").unlink()
    with pytest.raises(ManifestError, match="a list of the payload"):
        validate(tmp_path)
    assert FORMAT.recognizes(str(tmp_path))
