"""Lists of digests, as coreutils, b3sum, xxhsum, BSD and people write them."""

import contextlib
import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof._base import digest_lists
from shardproof._base.digest_lists import format_line, is_list, lists_in, parse, read
from shardproof.errors import ManifestError
from tests.helpers.drawing import examples

HEX = {n: "0123456789abcdef" * (n // 16) if n > 8 else "01234567" for n in (8, 16, 32, 64, 96, 128)}
HEX |= {40: "ab" * 20, 56: "cd" * 28}


def entries(text: str, name: str = "SHA256SUMS") -> list[tuple[str, str]]:
    return parse(text.encode(errors="surrogateescape"), path=f"/x/{name}")


def sha256(text: str) -> str:
    return f"sha256:{text}"


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            *digest_lists.NAMES.values(),
            *("sha256sum.txt", "SHA256sums.TXT", "x.tar.sha256", "x.md5", "x.MD5", "md5sum.txt"),
            *("md5checksums.txt", "checksums.txt", "CHECKSUM", "x-CHECKSUM", "x_checksums.txt"),
            *("manifest-sha256.txt", "x.b3", "x.b2", "x.blake3", "b3sums.txt", "XXH3SUMS", "x.xxh"),
            *("SHASUMS", "x.sha512sum", "sha1.txt", "x.sha384"),
        ],
    )
    def test_of_lists(self, name: str) -> None:
        assert is_list(name)

    @pytest.mark.parametrize(
        "name",
        [
            *("README.md", "efficientnet_b3.txt", "efficientnet-b3", "model-b2", "b3"),
            *("x.sha256.gz", "mysha256", "sha256sums.py", "checksum.py", "sha256sum.txt.asc"),
            *("SHA256SUMS.gpg", "SHA256SUMS.sig", "md5.py", "xsha256sum.txt"),
        ],
    )
    def test_of_other_files(self, name: str) -> None:
        assert not is_list(name)

    def test_a_folder_is_no_list(self, tmp_path: Path) -> None:
        (tmp_path / "md5").mkdir()
        (tmp_path / "link.sha1").symlink_to("md5")
        (tmp_path / "x.md5").touch()
        (tmp_path / "SHA1SUMS").symlink_to("gone")
        assert lists_in(str(tmp_path)) == ["SHA1SUMS"]
        (tmp_path / "x").touch()
        assert lists_in(str(tmp_path)) == ["SHA1SUMS", "x.md5"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (f"{HEX[64]}  a.bin", "a.bin"),
        (f"{HEX[64]} *a.bin", "a.bin"),
        (f"{HEX[64].upper()}  a.bin", "a.bin"),
        (f"{HEX[64]}  ./sub/a.bin", "sub/a.bin"),
        (f"{HEX[64]}  a b  c", "a b  c"),
        (f"{HEX[64]}   a", " a"),
        (f"{HEX[64]}  *a", "*a"),
        (f"{HEX[64]} a.bin", "a.bin"),
        (f"{HEX[64]}\ta.bin", "a.bin"),
        (f"  {HEX[64]}  a.bin", "a.bin"),
        (f"{HEX[64]}  a.bin\r", "a.bin"),
        (f"{HEX[64]}  \udcff", "\udcff"),
        (f"{HEX[64]}  a\\b", "a\\b"),
        (f"\\{HEX[64]}  a\\nb\\\\c\\rd", "a\nb\\c\rd"),
        (f"SHA256 (a b) = {HEX[64]}", "a b"),
        (f"SHA256(a)= {HEX[64]}", "a"),
        (f"SHA256 (a (1).bin) = {HEX[64]}", "a (1).bin"),
        (f"\\SHA256 (a\\nb) = {HEX[64]}", "a\nb"),
    ],
)
def test_a_line(line: str, name: str) -> None:
    assert entries(f"{line}\n") == [(name, sha256(HEX[64]))]
    assert entries(f"\ufeff# a comment\r\n\r\n{line}\n\n \n") == [(name, sha256(HEX[64]))]
    assert entries(line)[0][0] == name


BY_DIGITS = {
    "checksums.txt": {32: "md5", 40: "sha1", 56: "sha224", 64: "sha256", 96: "sha384"},
    "SHASUMS": {96: "sha384", 128: "sha512"},
    "B2SUMS": {128: "blake2b", 64: "blake2b-256"},
    "x.b2sum": {96: "blake2b-384"},
    "x.blake2s": {64: "blake2s"},
    "B3SUMS": {64: "blake3"},
    "XXH128SUMS": {32: "xxh3-128"},
    "XXH64SUMS": {16: "xxh64"},
    "XXH32SUMS": {8: "xxh32"},
    "XXH3SUMS": {16: "xxh3-64"},
    "xxhsums.txt": {32: "xxh3-128", 16: "xxh64"},
}


@pytest.mark.parametrize(
    ("list_name", "line", "algorithm"),
    [
        *(
            (name, f"{HEX[n]}  a", each)
            for name in BY_DIGITS
            for n, each in BY_DIGITS[name].items()
        ),
        ("XXH3SUMS", f"XXH3_{HEX[16]}  a", "xxh3-64"),
        ("checksums.txt", f"XXH3 (a) = {HEX[16]}", "xxh3-64"),
        ("checksums.txt", f"XXH128 (a) = {HEX[32]}", "xxh3-128"),
        ("checksums.txt", f"BLAKE2b (a) = {HEX[128]}", "blake2b"),
        ("checksums.txt", f"BLAKE2b-256 (a) = {HEX[64]}", "blake2b-256"),
        ("checksums.txt", f"SHA3-256 (a) = {HEX[64]}", "sha3-256"),
        ("MD5SUMS", f"SHA512 (a) = {HEX[128]}", "sha512"),
    ],
)
def test_the_algorithm(list_name: str, line: str, algorithm: str) -> None:
    [(name, text)] = entries(line, list_name)
    assert (name, text.partition(":")[0]) == ("a", algorithm)


@pytest.mark.parametrize(
    ("list_name", "text", "line"),
    [
        ("SHA256SUMS", f"{HEX[64]}  a\nhello\n", 2),
        ("SHA256SUMS", f"{HEX[64]}  a\n{HEX[40]}  b\n", 2),
        ("SHA256SUMS", f"{HEX[64]}  \n", 1),
        ("SHA256SUMS", f"{HEX[64]}  a\n{HEX[64][:20]}", 2),
        ("checksums.txt", f"KECCAK-160 (a) = {HEX[40]}\n", 1),
        ("checksums.txt", f"BLAKE2b (a) = {HEX[64]}\n", 1),  # of 128 digits that were cut
        ("checksums.txt", "\0" * 100, 1),
    ],
)
def test_a_line_that_is_none_is_told(list_name: str, text: str, line: int) -> None:
    with pytest.raises(ManifestError, match="expected a digest and a name") as caught:
        entries(text, list_name)
    assert (caught.value.line, caught.value.path) == (line, f"/x/{list_name}")


@pytest.mark.parametrize("text", [HEX[64], f"{HEX[64]}\n", f" {HEX[64].upper()} \r\n"])
def test_a_digest_alone_is_that_of_the_file_which_the_list_is_called_after(text: str) -> None:
    assert entries(text, "x.tar.gz.sha256") == [("x.tar.gz", sha256(HEX[64]))]
    with pytest.raises(ManifestError):
        entries(text, "x.tar.gz.md5")
    with pytest.raises(ManifestError):
        entries(text, "checksums.txt")


@pytest.mark.parametrize("line", [f"{HEX[64]}  -\n", f"SHA2-256(stdin)= {HEX[64]}\n"])
def test_the_standard_input_was_the_file_which_the_list_is_called_after(line: str) -> None:
    assert entries(line, "x.tar.sha256") == [("x.tar", sha256(HEX[64]))]


def test_a_long_list_is_read_as_its_lines_are() -> None:
    lines = [f"{n:064x} {' *'[n % 2]}{'./' * (n % 3 == 0)}sub/{n} x\n" for n in range(1, 200)]
    assert entries("".join(lines)) == [entries(line)[0] for line in lines]
    assert entries("".join(lines)[:-1]) == [entries(line)[0] for line in lines]


printable = st.characters(exclude_categories=["C", "Zl", "Zp"]) | st.sampled_from("\n\r\\ */.")
bytes_of_no_text = st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF, categories=["Cs"])
names = st.text(printable | bytes_of_no_text, min_size=1, max_size=12)


@examples(300)
@given(st.lists(names.map(os.fsencode).map(os.fsdecode), max_size=5))
def test_what_is_written_is_read(some: list[str]) -> None:
    some = [name for name in some if name != "./"]  # which is no file
    text = b"".join(format_line(name, sha256(HEX[64])) for name in some)
    expected = [(name.removeprefix("./"), sha256(HEX[64])) for name in some]
    assert parse(text, path="/x/SHA256SUMS") == expected


@pytest.mark.parametrize(
    "name", ["a", "a b", "é", "a\nb", "a\\b", "\\", "a\rb", "\udcff", "*a", " a"]
)
def test_sha256sum_accepts_and_writes_the_same(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    line = format_line(name, sha256(hashlib.sha256(b"x").hexdigest()))
    said = subprocess.run(["sha256sum", "--", name], cwd=tmp_path, capture_output=True, check=True)
    assert said.stdout == line
    (tmp_path / "SHA256SUMS").write_bytes(line)
    subprocess.run(
        ["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True
    )
    assert read(str(tmp_path), "SHA256SUMS")[0][0] == name


@examples(300)
@given(st.binary(max_size=200), st.sampled_from(["SHA256SUMS", "x.md5", "checksums.txt"]))
def test_any_bytes_have_an_answer(data: bytes, name: str) -> None:
    with contextlib.suppress(ManifestError):
        parse(data, path=f"/x/{name}")
