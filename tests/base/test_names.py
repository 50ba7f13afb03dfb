"""An untrusted name becomes a path inside a root, or is refused."""

import errno
import os
import socket
import stat
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardproof._base import names as _names

HOSTILE = [
    ("", "empty"),
    ("/etc/passwd", "absolute"),
    ("../x", "'..'"),
    ("a/../x", "'..'"),
    ("..", "'..'"),
    (".", "'.'"),
    ("a//b", "empty, '.' or '..' part"),
    ("a\\b", "backslash"),
    ("C:x", "drive"),
    ("a\0b", "control"),
    ("a\nb", "control"),
    ("a\x7fb", "control"),
    ("a\u2028b", "control"),
    ("a\udc80b", "surrogate"),
    ("x" * 256, "255 bytes"),
    ("\u00e9" * 128, "255 bytes"),
    ("/".join(["x" * 200] * 21), "4095 bytes"),
]


@pytest.mark.parametrize(("name", "reason"), HOSTILE)
def test_a_hostile_name_is_refused_with_its_reason(name: str, reason: str) -> None:
    (refusal,) = _names.refusals(["good.bin", name])
    assert (refusal.entry, refusal.name) == (1, name)
    assert reason in refusal.reason


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["a.bin", "a.bin"], "twice"),
        (["a.bin", "A.bin"], "twin"),
        (["stra\u00dfe", "STRASSE"], "twin"),
        (["\u00e9", "e\u0301"], "twin"),
        (["X" * 100 + "a", "X" * 100 + "A"], "twin"),
    ],
)
def test_two_names_of_one_file_are_refused(names: list[str], reason: str) -> None:
    (refusal,) = _names.refusals(names)
    assert refusal.entry == 1
    assert reason in refusal.reason


@pytest.mark.parametrize(
    "name",
    [
        "acts000000.bin",
        "\u00e9t\u00e9.bin",
        "x" * 255,
        "\u00e9" * 127 + "x",
        "/".join(["\u00e9" * 100] * 20 + ["x" * 75]),
        "a b",
        "ab:c",
        "...",
        ".x",
    ],
)
def test_a_harmless_name_is_accepted(name: str) -> None:
    assert _names.refusals(["other", name]) == []


@pytest.mark.parametrize(
    "name",
    [
        "x" + "\u0315\u0300" * 40_000,
        "\u0315\u0300" * 128,
        "/".join(["\u0315\u0300" * 60] * 40),
        "\x1b" * 10**6,
        "/" * 10**6,
        "\udc80" * 10**6,
    ],
    ids=lambda name: f"{len(name)} of {name[:2]!a}",
)
def test_what_takes_the_square_of_a_length_is_asked_of_short_texts_alone(name, monkeypatch) -> None:
    """The canonical order of 320 000 combining marks takes a minute, and no Ctrl-C ends it."""
    lengths = []
    for question in ("normalize", "category"):
        original = getattr(unicodedata, question)

        def spy(*args: str, _original=original) -> str:
            lengths.append(len(args[-1]))
            return _original(*args)

        monkeypatch.setattr(unicodedata, question, spy)
    found = _names.refusals(["a\u0300.bin", name, "a.bin", name])
    assert [refusal.entry for refusal in found] == [1, 3]
    assert max(lengths) <= _names.MAX_PATH_BYTES
    assert len(lengths) <= 2 * _names.MAX_PATH_BYTES + 100


def test_every_refusal_is_listed_in_order() -> None:
    names = ["ok", "../a", "b", "B", "c\n", "/d"]
    assert [refusal.entry for refusal in _names.refusals(names)] == [1, 3, 4, 5]


@given(st.lists(st.text(st.sampled_from("aAbB./-_\n\0\\ \u00e9"), max_size=5), max_size=6))
@example(["a\nb", "a"])  # as many lines as names, yet neither is plain
@example(["a", "b", ".."])
def test_the_fast_way_accepts_only_what_the_slow_way_accepts(names: list[str]) -> None:
    refused = _names.refusals(names)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_names, "_all_plain", lambda _: False)
        assert _names.refusals(names) == refused


@pytest.mark.parametrize("flag", ["O_NONBLOCK", "O_CLOEXEC", "O_NOFOLLOW", "O_NOCTTY"])
def test_a_look_opens_without_blocking_inheriting_or_following(flag: str) -> None:
    assert _names.OPEN_FLAGS & getattr(os, flag)
    assert _names.OPEN_FLAGS & os.O_ACCMODE == os.O_RDONLY


def test_what_is_no_file_is_named_and_not_opened(tmp_path) -> None:
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "fifo")
    found = {}
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(tmp_path / "socket"))
        for path in (*tmp_path.iterdir(), Path("/dev/null")):
            dir_fd = os.open(path.parent, os.O_RDONLY)
            with pytest.raises(_names.NotRegularError) as caught:
                _names.open_inside(path.name, root=os.path.realpath(path.parent), dir_fd=dir_fd)
            os.close(dir_fd)
            found[path.name] = caught.value.found
    assert [*sorted(found.items())] == [
        ("dir", "directory"),
        ("fifo", "FIFO"),
        ("null", "character device"),
        ("socket", "socket"),
    ]


class TestOpenRoot:
    """Its path was resolved: where a link is by now, it was put there meanwhile."""

    def test_a_link(self, tmp_path) -> None:
        (tmp_path / "root").mkdir()
        (tmp_path / "link").symlink_to("root")
        with pytest.raises(OSError, match="it was replaced during the check") as caught:
            _names.open_root(str(tmp_path / "link"))
        assert (caught.value.errno, caught.value.filename) == (
            errno.ESTALE,
            str(tmp_path / "link"),
        )

    def test_a_link_to_itself(self, tmp_path) -> None:
        (tmp_path / "link").symlink_to("link")
        with pytest.raises(OSError, match="levels of symbolic links"):
            _names.open_root(str(tmp_path / "link"))


def test_an_unknown_file_type_is_named_by_its_number() -> None:
    assert _names.file_type(stat.S_IFREG | 0o644) == "regular file"
    assert _names.file_type(0o150000) == "file of unknown type 0o150000"
