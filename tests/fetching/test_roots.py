"""Where shards lie, which names they may have, and what becomes of them."""

import errno
import itertools
import os

import pytest

from shardproof.fetching.cache._places import make_state, place_of
from shardproof.fetching.cache._settings import cache_root, cleanup_policy
from shardproof.fetching.sources import HttpSource
from shardproof.fetching.sources._urls import resource_of

SOURCES = [
    ("hf://datasets/org/name", None),
    ("hf://datasets/org/name", "train"),
    ("hf://datasets/org/name@v1", "train"),
    ("hf://datasets/org/name@refs/pr/1", "train"),
    ("hf://datasets/org/name/train", None),
    ("hf://datasets/name", "train"),
    ("hf://datasets/org", "name"),
    ("hf://models/org/name", "train"),
    ("http://h/a", None),
    ("http://h/a/b", None),
    ("http://h/a+b", None),
    ("http://h/a//b", None),
    ("http://h", None),
    ("http://h/all", None),
    ("http://h:8000/a", None),
    ("https://h/a", None),
    ("http://[::1]:80/a", None),
    ("http://h/.shardproof", None),
    ("http://h/" + "a" * 301, None),
    ("http://h/\udc80", None),
    ("http://h/ä", None),
    ("s3://bucket/a", None),
    ("sftp://me@h/a", None),
    ("github://org:a@sha/x", None),
    ("file:///data/a", None),
    ("simplecache::s3://bucket/a", None),
    ("my own transport", None),
    ("own://mirror", None),
    ("../../etc", None),
]


def test_no_two_sources_share_a_directory_and_none_is_in_another() -> None:
    roots = [cache_root("c", url, split) for url, split in SOURCES]
    for (one, a), (other, b) in itertools.permutations(zip(SOURCES, roots, strict=True), 2):
        assert a != b, (one, other)
        assert a not in b.parents, (one, other)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source[0][:40])
def test_each_is_made_of_safe_names(source) -> None:
    parts = cache_root("c", *source).parts
    assert len(parts) == 5
    assert all(part.isascii() and 0 < len(part) <= 255 for part in parts)
    assert not any(part.startswith(".") or "/" in part for part in parts)


@pytest.mark.parametrize(
    ("url", "split", "path"),
    [
        ("hf://datasets/org/name", "train", "hf_shards/org/name/train"),
        ("hf://datasets/org/name@v1", None, "hf_shards/org/name@v1/all"),
        ("hf://datasets/squad", "train", "hf_shards/_/squad/train"),
        ("https://Example.org/a/b/", None, "http_shards/example.org_443/a+b/all"),
        ("http://127.0.0.1:8000/a", None, "http_shards/127.0.0.1_8000/a/all"),
        ("s3://bucket/x", None, "s3_shards/bucket/x/all"),
        ("s3://bucket", "dev", "s3_shards/bucket/_/dev"),
        ("file:///data/x", None, "file_shards/_/data+x/all"),
        ("own://mirror", None, "own_shards/mirror/_/all"),
        ("mirror", None, "own_shards/_/mirror/all"),
    ],
)
def test_paths_that_people_can_read(url, split, path) -> None:
    assert cache_root("data", url, split).as_posix() == f"data/{path}"


def test_sources_that_differ_by_their_query_share_no_directory() -> None:
    queries = ("set=a", "set=b", "key=secret", "set=a&set=b")
    roots = [
        cache_root("c", "https://h/a", split, resource=resource_of(f"https://h/a?{query}"))
        for query in queries
        for split in (None, "train")
    ]
    roots += [cache_root("c", url, split) for url, split in SOURCES]
    assert len(set(roots)) == len(roots)
    assert all(len(root.parts) == 5 for root in roots)
    assert not any("secret" in str(root) for root in roots)


@pytest.mark.parametrize("address", ["https://h/a", "https://h/a/", "https://me:pw@h/a"])
def test_who_has_no_query_has_the_directory_of_the_address(address) -> None:
    source = HttpSource(address)
    try:
        root = cache_root("c", source.url, resource=source.resource)
    finally:
        source.close()
    assert root == cache_root("c", "https://h/a")


class TestCleanup:
    @pytest.mark.parametrize(
        ("cleanup", "most", "wanted"),
        [
            ("keep", None, ("keep", None)),
            (None, 1, ("auto", 1)),
            ("auto", 10**12, ("auto", 10**12)),
        ],
    )
    def test_an_argument_counts(self, cleanup, most, wanted, monkeypatch) -> None:
        monkeypatch.setenv("HF_SHARD_CACHE_CLEANUP", "nonsense")
        assert cleanup_policy(cleanup, most) == wanted

    @pytest.mark.parametrize(
        ("text", "cleanup", "most"),
        [
            ("auto", "auto", None),
            (" keep ", "keep", None),
            ("", "auto", None),
            ("500", "auto", 500),
            ("2GB", "auto", 2 * 10**9),
            ("2 gib", "auto", 2**31),
        ],
    )
    def test_else_the_environment_does(self, text, cleanup, most, monkeypatch) -> None:
        monkeypatch.setenv("HF_SHARD_CACHE_CLEANUP", text)
        assert cleanup_policy() == (cleanup, most)

    @pytest.mark.parametrize("value", [True, 500, b"auto"])
    def test_a_wrong_type(self, value) -> None:
        with pytest.raises(TypeError, match="cleanup: expected"):
            cleanup_policy(value)

    @pytest.mark.parametrize("value", [0, -1])
    def test_a_limit_of_nothing(self, value) -> None:
        with pytest.raises(ValueError, match=f"max_cache_bytes: expected 1 or more, found {value}"):
            cleanup_policy(None, value)

    @pytest.mark.parametrize("text", ["0", "-5", "1.5GB", "5 XB", "AUTO", "٣"])
    def test_a_wrong_variable(self, text, monkeypatch) -> None:
        monkeypatch.setenv("HF_SHARD_CACHE_CLEANUP", text)
        with pytest.raises(ValueError, match="HF_SHARD_CACHE_CLEANUP: expected 'auto', 'keep' or"):
            cleanup_policy()


class TestPlaces:
    @pytest.mark.parametrize(
        "name",
        ["", "/a", "../a", "a/../b", "a//b", "a\\b", "C:a", "a\nb", "\udc80", "x" * 256,
         ".shardproof", ".shardproof/x", "a/.SHARDPROOF/x", ".shardproof-1-2-3.tmp"],
    )  # fmt: skip
    def test_names_that_are_refused(self, tmp_path, name) -> None:
        with pytest.raises(ValueError, match=r"^name: .* is refused: "), place_of(tmp_path, name):
            pass

    def test_a_directory_that_is_made(self, tmp_path) -> None:
        with place_of(str(tmp_path / "new"), "a/b/c.bin", make=True) as place:
            assert place is not None
            assert place.status() is None
            (tmp_path / "new/a/b/c.bin").write_bytes(b"12")
            assert place.status().st_size == 2
            assert place.path == str(tmp_path / "new/a/b/c.bin")

    @pytest.mark.parametrize("make", [False, True])
    @pytest.mark.parametrize("target", ["outside", "root/b", "nowhere"])
    def test_a_link_is_no_directory_wherever_it_leads(self, tmp_path, target, make) -> None:
        for name in ("outside", "root/b"):
            (tmp_path / name).mkdir(parents=True)
        (tmp_path / "root/a").symlink_to(tmp_path / target)
        with (
            pytest.raises(NotADirectoryError, match="found a symbolic link; move it away"),
            place_of(str(tmp_path / "root"), "a/x.bin", make=make),
        ):
            pass
        assert os.listdir(tmp_path / "outside") == []

    def test_a_directory_that_can_not_be_made_is_not_taken_for_one_that_is_not_there(
        self, tmp_path, monkeypatch
    ) -> None:
        def refuse(*_, **__) -> None:
            raise NotADirectoryError(errno.ENOTDIR, "so says the file system", "a")

        monkeypatch.setattr(os, "mkdir", refuse)
        with (
            pytest.raises(NotADirectoryError, match="so says the file system"),
            place_of(str(tmp_path), "a/x.bin", make=True),
        ):
            pass

    @pytest.mark.parametrize("name", [".shardproof", ".shardproof/leases", ".shardproof/parts"])
    def test_what_the_cache_knows_is_in_no_other_directory(self, tmp_path, name) -> None:
        outside, link = tmp_path / "outside", tmp_path / "root" / name
        outside.mkdir()
        link.parent.mkdir(parents=True)
        link.symlink_to(outside)
        with pytest.raises(NotADirectoryError, match="found a symbolic link"):
            make_state(str(tmp_path / "root"))
        assert os.listdir(outside) == []
