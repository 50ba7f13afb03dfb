"""What is wrong with an archive is seen from its headers and its end, and nothing else is said."""

import bz2
import gzip
import io
import lzma
import os
import tarfile
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof._base.opening import Descriptor
from shardproof.manifest import ExpectedFile, Mismatch
from shardproof.probes import tar
from tests.probes.probing import asked

END = Mismatch("two blocks of zeros at the end", "other bytes: the copy may have stopped")


def archive(*sizes: int, form: int = tarfile.PAX_FORMAT, name: str = "{:06d}.bin") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w|", format=form) as stream:
        for index, size in enumerate(sizes):
            info = tarfile.TarInfo(name.format(index))
            info.size, info.mtime = size, 1e9 + 0.5
            stream.addfile(info, io.BytesIO(b"\xff" * size))
    return file.getvalue()


def ask(function: Callable, data: bytes, n_items: int | None = None):
    file = ExpectedFile(name="000.tar", n_items=n_items)
    return asked(lambda read, size: function(file, read, size), data)


def probe(data: bytes, **keywords) -> Mismatch | None:
    return ask(tar.probe, data, **keywords)


def prove(data: bytes) -> Mismatch | bool:
    return ask(tar.prove, data)


FORMS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


@given(
    st.lists(st.integers(0, 5000), max_size=30),
    st.sampled_from([*FORMS.values()]),
    st.sampled_from(["{:06d}.bin", "{:06d}.é", "{:06d}" + 70 * "x" + "/" + 60 * "y"]),
)
def test_whole_archives_are(sizes: list[int], form: int, name: str) -> None:
    data = archive(*sizes, form=form, name=name)
    assert probe(data) is None
    assert prove(data) is False
    assert prove(gzip.compress(data, 1)) is True


def test_all_kinds_of_members(tmp_path) -> None:
    file = io.BytesIO()
    kinds = [
        *(tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE),
        *(tarfile.CONTTYPE, tarfile.AREGTYPE, tarfile.REGTYPE),
    ]
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as stream:
        for kind in kinds:
            info = tarfile.TarInfo("n" * 150)
            info.type, info.linkname = kind, "l" * 150
            info.size = 700 if info.isreg() else 0
            stream.addfile(info, io.BytesIO(b"\xff" * info.size))
    assert probe(file.getvalue()) is None
    assert prove(file.getvalue()) is False


@pytest.mark.parametrize("first", [b"", archive(10, 20) + archive(3000)])
def test_a_link_has_no_data_and_an_archive_may_be_behind_another(first: bytes) -> None:
    info = tarfile.TarInfo("link")
    info.type, info.linkname, info.size = tarfile.LNKTYPE, "target", 300
    data = first + info.tobuf(tarfile.USTAR_FORMAT) + archive(10) + archive()
    assert probe(data) is None
    assert prove(data) is False


def test_a_member_whose_size_is_elsewhere_ends_the_walk() -> None:
    info = tarfile.TarInfo("large.bin")
    info.size = 9 * 2**30
    data = info.tobuf(tarfile.PAX_FORMAT) + b"\xff" * 5120
    assert probe(data + bytes(1024)) is None
    assert prove(data + bytes(1024)) is False
    assert probe(data) == END
    info = tarfile.TarInfo("sparse.bin")
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 512
    assert prove(info.tobuf(tarfile.GNU_FORMAT) + b"\xff" * 1024 + bytes(1024)) is False


def test_numbers_in_binary() -> None:
    info = tarfile.TarInfo("large.bin")
    info.size = 9 * 2**30
    header = info.tobuf(tarfile.GNU_FORMAT)
    found = probe(header + bytes(10240 - 512))
    expected = f"{512 + info.size} bytes or more, for the member at byte 0"
    assert found == Mismatch(expected=expected, found="10240 bytes")


def test_checksums_of_signed_bytes() -> None:
    info = tarfile.TarInfo("é" * 4)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    signed = sum(byte - 256 * (byte > 127) for byte in header[:148] + b" " * 8 + header[156:])
    header[148:156] = b"%06o\0 " % signed
    assert tar.is_header(bytes(header))
    header[0] ^= 1
    assert not tar.is_header(bytes(header))


@given(st.integers(0, 511), st.integers(1, 255))
def test_a_header_with_another_byte_is_none(at: int, change: int) -> None:
    header = bytearray(archive(10, form=tarfile.USTAR_FORMAT)[:512])
    header[at] ^= change
    if at not in range(148, 156):  # spaces and zeros there may stand for each other
        assert not tar.is_header(bytes(header))
    for other in (bytes(512), b"", b" " * 148 + b"zzzzzzzz" + b" " * 356):
        assert not tar.is_header(other)


def test_an_archive_without_members() -> None:
    assert probe(bytes(10240)) is None
    assert probe(bytes(1024), n_items=0) is None
    found = probe(bytes(10240), n_items=3)
    assert found == Mismatch(expected="a header at byte 0", found="zeros")
    assert probe(bytes(20480)) == found  # a file that was never written


@pytest.mark.parametrize("n_bytes", [1, 511, 512, 10239])
def test_blocks(n_bytes: int) -> None:
    found = probe(b"x" * n_bytes)
    assert found == Mismatch(expected="blocks of 512 bytes, two or more", found=f"{n_bytes} bytes")


@pytest.mark.parametrize("sizes", [[3000, 3000], [30_000, 30_000, 30_000]])
def test_every_cut_shows_unless_zeros_are_left(sizes: list[int]) -> None:
    data = archive(*sizes)
    assert probe(data + b"\xff" * 512) == END
    members = len(data.rstrip(b"\0"))
    for end in range(512, len(data), 512):
        assert (probe(data[:end]) is None) == (end - 1024 >= members), end


def test_a_name_that_begins_as_compressed_files_do() -> None:
    data = archive(30_000, name="BZh9{:06d}.jpg", form=tarfile.USTAR_FORMAT)
    assert probe(data) is None
    assert probe(data[:20480]) is not None


@pytest.mark.parametrize(("other", "n_behind"), [(b"x", 0), (bytes(4096), 4096)])
def test_another_header_or_zeros_further_on_show_when_all_are_read(other, n_behind: int) -> None:
    data, at = bytearray(archive(*[1000] * 40, form=tarfile.USTAR_FORMAT)), 20 * 1536
    data[at : at + len(other)] = other
    assert probe(bytes(data)) is None
    assert getattr(prove(bytes(data)), "expected", None) == f"a header at byte {at + n_behind}"


def test_compressed_archives() -> None:
    whole = gzip.compress(archive(5000))
    assert probe(whole) is None
    assert prove(whole + gzip.compress(archive(10)) + bytes(100)) is True
    for pack in (bz2.compress, lzma.compress):
        other = pack(archive(5000))
        assert (probe(other), prove(other)) == (None, False)
        assert isinstance(probe(other[:-1]), Mismatch)


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda data: data[:-9], "it ends within the stream"),
        (lambda data: data[:-8] + b"\xff" * 6 + b"\0\0", "Error -3 while decompressing"),
        (lambda data: data[:30] + b"\xff\xff" + data[32:], "Error -3 while decompressing"),
        (lambda data: data + b"mor\0", "Error -3 while decompressing"),
    ],
)
@pytest.mark.parametrize("n_bytes", [5000, 100_000])
def test_damage_to_a_compressed_archive_shows(damage: Callable, found: str, n_bytes: int) -> None:
    """In a small one at once, and else as far as it does not look like an end."""
    data = damage(gzip.compress(archive(n_bytes)))
    proof = prove(data)
    assert isinstance(proof, Mismatch)
    assert proof.expected == "a packed stream whose checksums hold"
    assert proof.found.startswith(found)
    assert probe(data) is not None or n_bytes > 5000


@pytest.mark.parametrize(
    "field", [b"\xff" * 12, b"\x80" + b"\xff" * 11, b"-1".ljust(12), b"9" * 12]
)
def test_hostile_sizes(field: bytes) -> None:
    header = bytearray(tarfile.TarInfo("name").tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = field
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    assert isinstance(probe(bytes(header) + bytes(1024)), Mismatch)


def test_what_is_read_of_an_extended_header_is_bounded() -> None:
    info = tarfile.TarInfo("name")
    info.type, info.size = tarfile.XHDTYPE, 2**28

    def is_read(fd: Descriptor, _: int) -> None:
        os.truncate(fd, 2**29)
        tracemalloc.start()
        assert tar.prove(ExpectedFile(name="000.tar"), fd, 2**29) is False
        assert tracemalloc.get_traced_memory()[1] < 2**22
        tracemalloc.stop()

    asked(is_read, info.tobuf(tarfile.USTAR_FORMAT))


@pytest.mark.parametrize("n_bytes", [300, 40_000], ids=["small", "large"])
@pytest.mark.parametrize("kept", ["between members", "inside one", "no end mark"])
def test_a_cut_archive_in_a_whole_gzip_is_not_proven(n_bytes: int, kept: str) -> None:
    """As ``tar c | gzip`` leaves it when tar is killed."""
    member = 512 + -(-n_bytes // 512) * 512
    cut = {"between members": 4 * member, "inside one": 4 * member + 562, "no end mark": -10240}
    plain = archive(*[n_bytes] * 10, form=tarfile.USTAR_FORMAT)
    members = plain.rstrip(b"\0").ljust(-(-len(plain.rstrip(b"\0")) // 512) * 512, b"\0")
    data = gzip.compress(members if kept == "no end mark" else plain[: cut[kept]], 1)
    assert probe(data) == END
    assert prove(data) == END
    large = gzip.compress(os.urandom(99_999) if n_bytes > 300 else b"x" * 999)
    assert probe(large) is not None  # what is no archive
    assert prove(large) is not None


def test_a_large_cut_archive_in_a_whole_gzip_is_not_proven() -> None:
    noise = [os.urandom(30_000) for _ in range(9)]  # which does not become small
    plain = b"".join(info_bytes(f"{n}.bin", each) for n, each in enumerate(noise))
    data = gzip.compress(plain, 1)
    assert probe(data) is None
    assert prove(data) == END
    assert prove(gzip.compress(plain + bytes(1024), 1)) is True
    noise = gzip.compress(os.urandom(300_000), 1)
    for found in (probe(noise), prove(noise)):
        assert getattr(found, "expected", None) == "a header at byte 0"
    zeros = gzip.compress(bytes(99_000_000), 1)
    for found in (probe(zeros), prove(zeros)):
        assert found == Mismatch(expected="a header at byte 0", found="zeros")


def info_bytes(name: str, data: bytes) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    return info.tobuf(tarfile.USTAR_FORMAT) + data.ljust(-(-len(data) // 512) * 512, b"\0")
