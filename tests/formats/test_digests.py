"""A directory with lists of digests."""

import hashlib
import os
from pathlib import Path

import pytest

from shardproof import ManifestError, ManifestNotFoundError, validate
from shardproof.formats.lists import DIGESTS as FORMAT
from tests.formats.looking import found_in

FILES = {"a.bin": b"a" * 10, "sub/b.bin": b"b", "empty": b""}


def lines(algorithm: str = "sha256", **changes: str) -> str:
    digests = {name: hashlib.new(algorithm, data).hexdigest() for name, data in FILES.items()}
    return "".join(f"{digest}  {name}\n" for name, digest in (digests | changes).items())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, data in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "SHA256SUMS").write_text(lines())
    return tmp_path


def test_several_lists_are_joined(root: Path) -> None:
    (root / "more").write_bytes(b"x")
    (root / "more.md5").write_text(hashlib.md5(b"x").hexdigest())
    (root / "MD5SUMS").write_text(lines("md5"))
    assert validate(root, level="valid").n_proven == 4
    digests = {file.name: file.digest for file in FORMAT.read_manifest(str(root)).files}
    assert {text.partition(":")[0] for text in digests.values()} == {"sha256", "md5"}
    assert digests["a.bin"].startswith("sha256:")


def test_lists_that_disagree(root: Path) -> None:
    (root / "old.sha256").write_text(lines(**{"a.bin": "0" * 64}))
    assert found_in(root, "present") == []
    [finding] = validate(root, level="complete").findings
    assert (finding.path.name, finding.expected) == ("a.bin", "one digest by sha256")


def test_a_list_that_has_itself_and_others(root: Path) -> None:
    (root / "MD5SUMS").write_text(lines("md5"))
    own = "".join(f"{'0' * 64}  {name}\n" for name in ("SHA256SUMS", "MD5SUMS"))
    (root / "SHA256SUMS").write_text(lines() + own)
    assert found_in(root, "valid") == []


def test_a_folder_that_is_called_like_one(tmp_path: Path) -> None:
    (tmp_path / "md5").mkdir()
    assert not FORMAT.recognizes(str(tmp_path))
    with pytest.raises(ManifestNotFoundError, match="there is no list of digests"):
        FORMAT.read_manifest(str(tmp_path))


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "hello\n", f"{'0' * 64}  ../a\n", f"{'0' * 64}  /etc/passwd\n"]
)
def test_what_promises_nothing_is_refused(root: Path, text: str) -> None:
    (root / "SHA256SUMS").write_text(text)
    with pytest.raises(ManifestError, match="SHA256SUMS"):
        validate(root)


@pytest.mark.parametrize("kind", ["fifo", "/etc/passwd", "SHA256SUMS"])
def test_what_stands_in_the_place_of_a_list_is_not_opened(root: Path, kind: str) -> None:
    path = root / "SHA256SUMS"
    path.unlink()
    {"fifo": os.mkfifo}.get(kind, lambda path: path.symlink_to(kind))(path)
    with pytest.raises((ManifestError, OSError), match="SHA256SUMS"):
        FORMAT.read_manifest(str(root))


def test_a_damaged_first_line_is_no_title_and_a_digest_may_stand_twice(root: Path) -> None:
    (root / "SHA256SUMS").write_text("g" + lines()[1:])
    assert found_in(root) == [("structure", "SHA256SUMS")]
    (root / "SHA256SUMS").write_text(lines() * 2)
    (root / "sha256sum.txt").write_text(lines())
    assert found_in(root, "valid") == []
