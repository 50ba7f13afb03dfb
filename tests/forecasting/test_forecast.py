"""A forecast agrees with a plain loop over the files, touches no time, and believes no list."""

import codecs
import datetime
import errno
import gzip
import json
import os
import re
import shutil
import subprocess
import typing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardproof
from shardproof import forecast, forecasting
from shardproof._base import arguments, names
from shardproof.cli import forecast as command
from shardproof.forecasting import _sites
from shardproof.testing import Layout, write_layout
from tests.goldens import GOLDENS, golden
from tests.helpers import ROOT
from tests.helpers.commands import run
from tests.helpers.drawing import examples

DAY = 86400
NOW = 1_700_000_000  # 14 November 2023
CLOCKS = ("atime", "mtime", "ctime", "birth")
KEPT = ["mtime", "atime"] if hasattr(os, "O_NOATIME") else ["mtime"]
"""Clocks that reading the manifest leaves as they are."""
needs_noatime = pytest.mark.skipif("atime" not in KEPT, reason="no O_NOATIME here")


def aged(path: Path, **days: float) -> Path:
    """Give all files of a directory the age of a day, and some of them another one."""
    for file in path.iterdir():
        at = NOW - DAY * days.get(file.stem, 1)
        os.utime(file, (at, at))
    return path


@pytest.fixture
def shards(make_shards_dir) -> Path:
    return aged(make_shards_dir(3))


times = st.integers(-(10**9), 10**11) | st.integers(NOW - 99 * DAY, NOW + DAY)


@pytest.fixture(scope="module")
def drawn_dir(tmp_path_factory) -> Path:
    return write_layout(Layout(n_shards=4), tmp_path_factory.mktemp("drawn") / "shards")


@examples(100)
@given(
    stamps=st.lists(st.tuples(times, times), min_size=6, max_size=6),
    clocks=st.lists(st.sampled_from(KEPT), min_size=1, unique=True),
    days=st.floats(0, 400),
    window=st.floats(0, 400),
    gone=st.sets(st.integers(0, 3)),
)
def test_it_agrees_with_a_plain_loop(drawn_dir, stamps, clocks, days, window, gone) -> None:
    files = sorted(path for path in drawn_dir.iterdir() if path.stat().st_size)
    due = {}
    for path, stamp in zip(files, stamps, strict=True):
        os.utime(path, stamp)
        status = path.stat()
        due[path.name] = max(getattr(status, f"st_{clock}") for clock in clocks) + days * DAY
    away = drawn_dir.parent / "away"
    away.mkdir()
    for index in gone:
        (drawn_dir / f"acts{index:06d}.bin").rename(away / f"acts{index:06d}.bin")
        due[f"acts{index:06d}.bin"] = NOW
    try:
        found = forecast(
            drawn_dir, purge_after=days * DAY, clock=clocks, fail_within=window * DAY, now=NOW
        )
    finally:
        for path in away.iterdir():
            path.rename(drawn_dir / path.name)
        away.rmdir()
    assert {each.name: each.at for each in found.files} == due
    assert [each.at for each in found.files] == sorted(due.values())
    assert found.broken_at == min(due.values())
    n_soon = sum(at <= NOW + window * DAY for at in due.values())
    assert (found.within(window * DAY), found.exit_code) == (n_soon, int(n_soon > 0))
    said = json.loads(json.dumps(found.to_dict()))
    assert said["n_within_week"] == sum(at <= NOW + 7 * DAY for at in due.values())
    assert str(found).startswith(f"{said['n_within_week']} of 6 files of ")


def test_the_directory_is_broken_when_the_first_of_its_own_files_goes(shards) -> None:
    os.utime(shards / "shards.json", (NOW - 55 * DAY,) * 2)
    found = forecast(shards, purge_after="60d", clock="mtime", fail_within="7d", now=NOW)
    assert found.files[0].name == "shards.json"
    assert found.broken_at == NOW + 5 * DAY
    assert {each.name for each in found.files} >= {"metadata.json", "acts000000.bin"}
    assert (found.exit_code, found.ok) == (1, False)
    assert forecast(shards, purge_after="60d", clock="mtime", fail_within="4d", now=NOW).ok
    assert forecast(shards, purge_after="60d", clock="mtime", now=NOW).ok, "nothing is overdue"
    assert not forecast(shards, purge_after="50d", clock="mtime", now=NOW).ok, "one file is overdue"


def test_a_seal_is_one_of_its_own_files_too(shards) -> None:
    shardproof.seal(shards)
    assert "SHA256SUMS" in {e.name for e in forecast(shards, purge_after="60d").files}


def test_of_several_clocks_the_newest_counts(shards) -> None:
    os.utime(shards / "acts000001.bin", (NOW - 80 * DAY, NOW - 10 * DAY))

    def at(*clocks: str) -> float:
        files = forecast(shards, purge_after="60d", clock=clocks, now=NOW).files
        return next(each.at for each in files if each.name == "acts000001.bin")

    assert at("atime") == NOW - 20 * DAY
    assert at("mtime") == at("atime", "mtime") == NOW + 50 * DAY
    assert at("atime", "ctime") == (shards / "acts000001.bin").stat().st_ctime + 60 * DAY
    text = str(forecast(shards, purge_after="60d", clock=["atime", "mtime"], now=NOW))
    assert "60 days after the newest of atime and mtime" in text


def test_a_checkpoint_is_its_own_files_and_none_of_its_neighbours(make_checkpoint) -> None:
    prefix = make_checkpoint(world_size=2)
    for path in sorted(prefix.parent.glob("model*")):
        shutil.copy(path, path.with_name(path.name.replace("model", "model2")))
    found = forecast(prefix, purge_after="60d")
    assert {name.partition("_shard_")[0] for name, *_ in found.files} == {
        "model",
        "model.metadata.json",
    }
    assert found.path == prefix


class TestLinks:
    def test_the_target_counts(self, shards, tmp_path) -> None:
        stored = tmp_path / "stored.bin"
        (shards / "acts000001.bin").rename(stored)
        (shards / "acts000001.bin").symlink_to(stored)
        os.utime(stored, (NOW - 59 * DAY,) * 2)
        first = forecast(shards, purge_after="60d", now=NOW).files[0]
        assert first == ("acts000001.bin", NOW + DAY, "")
        stored.unlink()
        found = forecast(shards, purge_after="60d", now=NOW)
        assert (found.files[0], found.exit_code) == (("acts000001.bin", NOW, "missing"), 1)

    def test_what_the_list_says_of_a_target_counts(self, tmp_path) -> None:
        snapshot = shardproof.formats.locate(golden("hf-cache").copy(tmp_path)).path
        names = [e.name for e in forecast(snapshot, purge_after="60d").files]
        [link] = [name for name in names if name.endswith("config.json")]
        target = os.path.realpath(os.path.join(snapshot, link))
        (tmp_path / "list").write_text(f"{target}\n")
        found = forecast(snapshot, victims=tmp_path / "list", now=NOW)
        assert [e.name for e in found.files if e.why == "listed"] == [link]


@pytest.mark.parametrize(("at", "said"), [(NOW + 5 * DAY, "2023-11-19"), (0, "1970-01-01")])
def test_times_that_can_not_be_right_are_said(shards, at: float, said: str) -> None:
    assert "ahead" not in str(forecast(shards, purge_after="60d", clock="mtime", now=NOW))
    os.utime(shards / "acts000001.bin", (at, at))
    note = forecast(shards, purge_after="60d", clock="mtime", now=NOW).notes[-1]
    assert note.startswith(f"times ahead of this clock, or of 1970: 1, such as {said}")


@pytest.mark.parametrize("at", [-(2**62), -1, 2**62])
def test_times_that_no_calendar_has_are_dates_all_the_same(shards, at: int) -> None:
    found = forecast(shards, purge_after=max(0, at), now=float(at))
    assert all(re.match(r"\d{1,4}-", e["at"]) for e in found.to_dict()["files"])
    assert str(found)


def test_what_could_not_be_looked_at_is_neither_gone_nor_safe(shards, make_shard_faults) -> None:
    make_shard_faults(shards).fail("stat", errno.EIO, match="acts000001.bin")
    found = forecast(shards, purge_after="60d", now=NOW)
    assert (found.exit_code, found.ok) == (3, False)
    blind = found.files[-1]
    assert (blind.name, blind.at) == ("acts000001.bin", None)
    assert "Input/output error" in blind.why
    assert "Input/output error" in str(found)


def test_something_else_in_the_place_of_a_file_is_a_missing_file(shards) -> None:
    (shards / "acts000001.bin").unlink()
    (shards / "acts000001.bin").mkdir()
    assert forecast(shards, purge_after="60d", now=NOW).files[0].why == "missing"


def test_what_a_torn_manifest_lists_is_not_known(shards) -> None:
    entries = json.loads((shards / "shards.json").read_text())
    entries[0]["name"] = "../x"
    (shards / "shards.json").write_text(json.dumps(entries))
    assert "can't be read" in forecast(shards, purge_after="60d").notes[0]


def stamps(path: Path) -> dict[str, tuple[int, int]]:
    files = (file for file in path.rglob("*") if file.is_file() and not file.is_symlink())
    return {str(f): (f.stat().st_atime_ns, f.stat().st_mtime_ns) for f in files}


@needs_noatime
class TestNoTimeIsTouched:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", [each.name for each in GOLDENS])
    def test_of_any_format(self, name: str, tmp_path) -> None:
        path = golden(name).copy(tmp_path)
        for file in tmp_path.rglob("*"):
            os.utime(file, (NOW - 9 * DAY, NOW - 8 * DAY), follow_symlinks=False)
        before = stamps(tmp_path)
        assert run("forecast", "-r", path, "--purge-after", "9999w").exit_code == 0
        assert stamps(tmp_path) == before

    @pytest.fixture
    def reads_are_seen(self, tmp_path) -> None:
        (tmp_path / "probe").write_text("x")
        os.utime(tmp_path / "probe", (NOW - 9 * DAY, NOW - 8 * DAY))
        (tmp_path / "probe").read_text()
        if (tmp_path / "probe").stat().st_atime < NOW - 8 * DAY:
            pytest.skip("no read renews atime on this file system")

    @pytest.mark.usefixtures("reads_are_seen")
    def test_a_check_renews_atime_of_the_manifest_and_a_forecast_does_not(self, shards) -> None:
        for file in shards.iterdir():
            os.utime(file, (NOW - 9 * DAY, NOW - 8 * DAY))
        before = stamps(shards)
        forecast(shards, purge_after="60d", now=NOW)
        assert stamps(shards) == before
        shardproof.validate(shards)
        assert {n for n, at in stamps(shards).items() if at != before[n]} >= {
            str(shards / "shards.json")
        }

    def test_somebody_elses_manifest_is_read_all_the_same(self, shards, monkeypatch) -> None:
        real, asked = os.open, []

        def refused(path, flags, *args, **keywords):
            if flags & os.O_NOATIME:
                asked.append(path)
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
            return real(path, flags, *args, **keywords)

        monkeypatch.setattr(names.os, "open", refused)
        assert forecast(shards, purge_after="60d", now=NOW).ok
        assert "shards.json" in asked


class TestBirth:
    @pytest.fixture(autouse=True)
    def _told(self, tmp_path) -> None:
        if _sites._statx is None:
            pytest.skip("no statx(2) here")

    def test_it_is_what_stat_prints(self, shards) -> None:
        found = forecast(shards, purge_after=0.0, clock="birth")
        for each in found.files:
            command = ["stat", "-c", "%.W", shards / each.name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            assert each.at == pytest.approx(float(done.stdout))

    @pytest.mark.parametrize("how", ["no statx", "no birth"])
    def test_where_the_system_does_not_tell_it(self, shards, monkeypatch, how: str) -> None:
        monkeypatch.setattr(_sites, "_statx", None if how == "no statx" else lambda *_: 0)
        found = forecast(shards, purge_after="60d", clock="birth")
        assert found.exit_code == 3
        assert "tells no time of birth" in str(found)

    def test_its_errors_are_those_of_the_system(self, tmp_path) -> None:
        fd = os.open(tmp_path, os.O_RDONLY)
        try:
            with pytest.raises(FileNotFoundError, match="gone"):
                _sites._birth("gone", fd)
        finally:
            os.close(fd)


class TestWorth:
    @pytest.mark.parametrize(
        ("kind", "options", "clock", "said"),
        [
            ("ext4", "rw,noatime", "atime", ["noatime"]),
            ("xfs", "rw,relatime,lazytime", "atime", ["relatime", "lazytime"]),
            ("lustre", "rw,flock", "atime", ["Lustre"]),
            ("gpfs", "rw,relatime", "atime", ["Storage Scale", "relatime"]),
            ("nfs4", "rw,relatime", "atime", ["NFS server"]),
            ("nfs", "rw", "mtime", ["rsync", "NFS clients"]),
            ("ext4", "rw,relatime", "ctime", ["chmod"]),
            ("tmpfs", "rw", "birth", ["inode"]),
        ],
    )
    def test_it_is_said_beside_each_answer(
        self, shards, monkeypatch, kind: str, options: str, clock: str, said: list[str]
    ) -> None:
        monkeypatch.setattr(_sites, "mount_of", lambda _: (kind, "/", options))
        notes = forecast(shards, purge_after="60d", clock=clock).notes
        assert len(notes) == len(said)
        for note, word in zip(notes, sorted(said, key=lambda w: w != "Storage Scale"), strict=True):
            assert word in note


class TestPolicies:
    @pytest.mark.parametrize("name", forecasting.policies())
    def test_each_has_an_age_clocks_a_source_and_a_day(self, name: str, shards) -> None:
        policy = forecasting.policies()[name]
        assert set(policy) == {"days", "clocks", "source", "read"}
        assert 1 <= policy["days"] <= 400
        assert set(policy["clocks"]) <= {*CLOCKS}
        assert re.match(r"https://[\w.-]+/", policy["source"])
        assert policy["read"] <= datetime.date(2026, 11, 28)
        found = forecast(shards, policy=name)
        assert found.purge_after == policy["days"] * DAY
        assert list(found.clocks) == policy["clocks"]
        assert policy["source"] in found.notes[0]

    def test_arguments_count_more(self, shards) -> None:
        found = forecast(shards, policy="tacc", purge_after="3w", clock="mtime")
        assert (found.purge_after, found.clocks) == (21 * DAY, ("mtime",))

    def test_the_page_shows_them_all(self) -> None:
        page = (ROOT / "docs/forecast.md").read_text()
        for policy in forecasting.policies().values():
            assert policy["source"] in page


HOSTILE = [
    "",
    "/",
    "//",
    "acts000001.bin",
    "../acts000001.bin",
    "{root}",
    "{root}/",
    "{root}/../{name}/acts000001.bin",
    "{root}/acts000001.bin/",
    "{root}/acts00000\\61.bin",
    "{root}\\/acts000001.bin",
    "{root}/sub/acts000001.bin",
    "{root}2/acts000001.bin",
    "x{root}/acts000001.bin",
    "\x1b[2J{root}/acts000001.bin\x1b[0m",
    "/proc/self/mem",
    "{root}/acts000001.bin.trailing",
    "/" + "a" * 200_000,
    "/" + "a" * 65_535 + "{root}/acts000001.bin",
    "\udcff\udcfe",
    ' "/' * 20_000,
]


def test_files_of_folders_below_belong_to_no_flat_directory(tmp_path) -> None:
    """Else an old archive below said that the directory breaks."""
    (tmp_path / "archive").mkdir()
    for name in ("a.npy", "archive/b.npy"):
        np.save(tmp_path / name, np.arange(3))
    assert [each.name for each in forecast(tmp_path, purge_after="60d").files] == ["a.npy"]


class TestVictims:
    def listed(self, shards: Path, *lines: str, path: Path | None = None) -> set[str]:
        name = shards.parent / "victims.txt"
        text = "\n".join(line.replace("{root}", str(shards)) for line in lines)
        name.write_bytes(os.fsencode(text.replace("{name}", shards.name)))
        found = forecast(path or shards, victims=name, now=NOW)
        assert found.notes[-1].startswith(f"lines of the site's list: {text.count(chr(10)) + 1},")
        return {each.name for each in found.files if each.why == "listed"}

    @pytest.mark.parametrize("line", HOSTILE[1:], ids=range(1, len(HOSTILE)))
    def test_a_hostile_line_names_nothing(self, shards, line: str) -> None:
        assert self.listed(shards, line, "{root}/acts000002.bin") == {"acts000002.bin"}

    @pytest.mark.parametrize(
        "line",
        [
            "{root}/acts000001.bin",
            "{root}/acts000001.bin\r",
            '"{root}/acts000001.bin"',
            "2026-12-01 1024 me {root}/acts000001.bin",
            "path={root}/acts000001.bin",
            "1024\t{root}/acts000001.bin",
            "{root}/acts000001.bin\t1024\t2026-12-01",
            "{root}/acts000001.bin \r",
            '"{root}/acts000001.bin",1024',
            '["{root}/acts000001.bin", 1024]',
        ],
    )
    def test_columns_and_quotes_are_passed_over(self, shards, line: str) -> None:
        assert self.listed(shards, *HOSTILE, line) == {"acts000001.bin"}

    def test_a_mark_of_utf_8_is_passed_over(self, shards) -> None:
        mark = codecs.BOM_UTF8.decode()
        assert self.listed(shards, mark + "{root}/acts000001.bin") == {"acts000001.bin"}

    @pytest.mark.parametrize("packed", [gzip.compress, lambda data: data.decode().encode("utf-16")])
    def test_a_list_that_is_packed_or_no_utf_8_is_refused(self, shards, packed) -> None:
        """It would name nothing, and all would seem well."""
        victims = shards.parent / "victims.txt"
        victims.write_bytes(packed(f"{shards}/acts000001.bin\n".encode()))
        with pytest.raises(ValueError, match="expected text with a path a line, found NUL"):
            forecast(shards, victims=victims)

    def test_a_path_through_a_link_is_one_of_the_directory(self, shards, tmp_path) -> None:
        (tmp_path / "scratch").symlink_to(shards.parent)
        way = tmp_path / "scratch" / shards.name
        assert self.listed(shards, f"{way}/acts000001.bin", path=way) == {"acts000001.bin"}
        assert self.listed(shards, "{root}/acts000001.bin", path=way) == {"acts000001.bin"}

    def test_they_go_first_and_others_by_the_rule_if_there_is_one(self, shards) -> None:
        victims = shards.parent / "victims.txt"
        victims.write_text(f"{shards}/acts000001.bin\n")
        found = forecast(shards, victims=victims, fail_within=0, now=NOW)
        assert found.files[0] == ("acts000001.bin", NOW, "listed")
        assert [each.at for each in found.files[1:]] == [None] * 4
        assert (found.exit_code, found.purge_after) == (1, None)
        assert "the site's list" in str(found)
        both = forecast(shards, victims=victims, purge_after="60d", clock="mtime", now=NOW)
        assert [each.at for each in both.files] == [NOW, *[NOW + 59 * DAY] * 4]

    def test_a_list_of_other_directories_lists_nothing(self, shards) -> None:
        victims = shards.parent / "victims.txt"
        victims.write_text("/scratch/other/x\n")
        found = forecast(shards, victims=victims, now=NOW)
        assert (found.ok, found.broken_at) == (True, None)
        assert "no known time" in str(found)

    @pytest.mark.slow
    def test_a_million_lines(self, shards) -> None:
        victims = shards.parent / "victims.txt"
        with victims.open("w") as file:
            file.writelines(f"{shards}/acts{n:06d}.bin\n" for n in range(1_000_000))
        found = forecast(shards, victims=victims, now=NOW)
        assert found.within(0) == 3
        assert found.notes[-1] == "lines of the site's list: 1000000, of this directory: 3"

    @pytest.mark.parametrize("what", ["missing", "directory", "fifo", "/dev/zero"])
    def test_what_is_no_list_is_refused(self, shards, what: str) -> None:
        victims = shards.parent / "victims.txt"
        if what == "directory":
            victims.mkdir()
        elif what == "fifo":
            os.mkfifo(victims)
        path = what if what.startswith("/") else victims
        with pytest.raises(ValueError, match="victims: expected a regular file"):
            forecast(shards, victims=path)


class TestUsage:
    @pytest.mark.parametrize(
        ("wrong", "kind", "said"),
        [
            ({}, ValueError, "purge_after, policy or victims"),
            ({"purge_after": "60"}, ValueError, "such as '60d', found '60'"),
            ({"purge_after": "-1d"}, ValueError, "such as '60d'"),
            ({"purge_after": "1e9d"}, ValueError, "such as '60d'"),
            ({"purge_after": -1}, ValueError, "0 or more"),
            ({"purge_after": float("nan")}, ValueError, "finite"),
            ({"purge_after": True}, TypeError, "purge_after"),
            ({"policy": "nowhere"}, ValueError, "expected one of alliance, "),
            ({"purge_after": 1, "clock": "xtime"}, ValueError, "'atime'"),
            ({"purge_after": 1, "fail_within": "soon"}, ValueError, "fail_within"),
            ({"purge_after": 1, "format": "nonsense"}, ValueError, "format"),
        ],
    )
    def test_it_is_refused_before_any_work(self, wrong: dict, kind: type, said: str) -> None:
        with pytest.raises(kind, match=said):
            forecast("/nowhere", **wrong)

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("90s", 90), ("2m", 120), ("12h", 43200), ("1.5d", 129600), ("8w", 56 * DAY), (7, 7.0)],
    )
    def test_times_have_units(self, text: str | float, seconds: float) -> None:
        assert arguments.duration("x", text) == seconds

    def test_a_directory_of_no_format_is_no_forecast(self, tmp_path) -> None:
        with pytest.raises(shardproof.ManifestNotFoundError):
            forecast(tmp_path, purge_after="60d")


class TestCommand:
    def test_it_has_each_clock(self) -> None:
        assert tuple(command._CLOCK) == typing.get_args(forecasting.Clock) == CLOCKS

    def test_a_prolog_ends_by_the_code(self, shards) -> None:
        age = ("--purge-after", "9999w")
        assert run("forecast", shards, *age).exit_code == 0
        assert run("forecast", shards, *age, "--fail-within", "9999w").exit_code == 1
        assert run("forecast", shards, "--purge-after", "soon").exit_code == 2
        assert run("forecast", shards).exit_code == 2
        (shards / "acts000001.bin").unlink()
        done = run("forecast", shards, *age)
        assert (done.exit_code, "acts000001.bin: missing" in done.stdout) == (1, True)

    def test_directories_below(self, shards, tmp_path) -> None:
        args = ("--policy", "purdue", "--clock", "ctime", "--json")
        done = run("forecast", "-r", shards.parent, *args)
        [said] = json.loads(done.stdout)
        assert (said["path"], said["clocks"]) == (str(shards), ["ctime"])
        assert said["ok"] is (done.exit_code == 0)

    def test_names_can_not_paint_the_terminal(self, shards) -> None:
        entries = json.loads((shards / "shards.json").read_text())
        (shards / "acts000000.bin").rename(shards / "a\u202eb.bin")
        entries[0]["name"] = "a\u202eb.bin"
        (shards / "shards.json").write_text(json.dumps(entries))
        done = run("forecast", shards, "--purge-after", "0s")
        assert "\u202e" not in done.stdout
        assert r"a\u202eb.bin" in done.stdout
