"""Whatever moment a save or a removal is killed at, or the power cut: what is whole, is right."""

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from shardproof._base import files as _files
from shardproof.checkpoint import (
    MultiShardLoader,
    MultiShardSaver,
    ShardFileVerifier,
    from_safetensors,
    latest_checkpoint,
    prune,
    to_safetensors,
)
from shardproof.errors import CheckpointError
from shardproof.testing.faults import FileSystemFaults
from tests.attacks.tally import Tally
from tests.helpers import checkpoint_files as files
from tests.helpers import power
from tests.helpers.killing import Begin, at_every_state, at_some_calls, skip_where_not_permitted

WORLD_SIZE = 2

N_KILLS = 6
"""In the gate, of each save and removal."""

N_CUTS = 2
"""In the gate, of each disk."""

a_kill = pytest.mark.attack("kill at a system call: checkpoints")
a_cut = pytest.mark.attack("power cut: checkpoints")


@pytest.fixture(autouse=True, scope="module")
def _ptrace() -> None:
    skip_where_not_permitted()


def arrays_of(step: int, rank: int, attempt: int = 0) -> dict[str, np.ndarray]:
    """What a rank saves; as large in each step, so that only the bytes can tell them apart."""
    luck = np.random.default_rng([step, rank, attempt])
    return {"w": luck.random((3, 5)), "b": luck.integers(0, 100, 7)}


def save(prefix: Path, step: int, *, attempt: int = 0, overwrite: bool = False) -> None:
    saver = MultiShardSaver()
    for rank in range(WORLD_SIZE):
        arrays = arrays_of(step, rank, attempt)
        saver.save_shard(str(prefix), rank, arrays, step=step, overwrite=overwrite)
    saver.save_metadata(str(prefix), world_size=WORLD_SIZE, step=step)


def is_right(prefix: Path, step: int, attempt: int = 0) -> bool:
    """Whether a checkpoint is whole and what was to be saved, found out without the code."""
    if not files.is_whole(prefix) or files.metadata_of(prefix)["step"] != step:
        return False
    ranks = range(WORLD_SIZE)
    return files.read(prefix) == [files.tensors_of(arrays_of(step, r, attempt)) for r in ranks]


def assert_loads(prefix: Path, step: int, attempt: int = 0) -> None:
    """The code agrees that it is right, and hands out what was saved."""
    assert is_right(prefix, step, attempt)
    assert ShardFileVerifier().verify_checkpoint(str(prefix)).is_valid
    for rank, arrays in enumerate(MultiShardLoader().load_all_shards(str(prefix))):
        expected = arrays_of(step, rank, attempt)
        assert {name: array.tolist() for name, array in arrays.items()} == {
            name: array.tolist() for name, array in expected.items()
        }


def assert_gone(prefix: Path) -> None:
    """The code says that there is nothing whole."""
    assert not files.is_whole(prefix)
    with pytest.raises(CheckpointError):
        MultiShardLoader().load_all_shards(str(prefix))


def names(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


def leftovers(path: Path) -> list[str]:
    return [name for name in names(path) if name.endswith(".tmp")]


FLAT, NESTED = "step_{}", "step_{}/model"
LAYOUTS = [FLAT, NESTED]
"""All steps in one directory; each in one of its own."""


def prefix_of(path: Path, layout: str, step: int) -> Path:
    prefix = path / layout.format(step)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    return prefix


def expected_names(layout: str, *steps: int) -> list[str]:
    """What is in a directory with whole checkpoints, when nothing is left over."""
    found = []
    for step in steps:
        prefix = layout.format(step)
        found += [f"{prefix}_shard_{rank}.shard" for rank in range(WORLD_SIZE)]
        found.append(f"{prefix}.metadata.json")
    return sorted(found)


class Saves:
    """Step 2 is saved, again and again, beside step 1.

    Args:
        path: The directory of both.
        layout: Their prefixes.
        tally: Of the attack.
    """

    def __init__(self, path: Path, layout: str, tally: Tally) -> None:
        self.tally = tally
        self.path = path
        self.first, self.second = (prefix_of(path, layout, step) for step in (1, 2))
        self.layout = layout
        self.n_whole = 0

    def prepare(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        for prefix in (self.first, self.second):
            prefix.parent.mkdir(exist_ok=True)
        save(self.first, 1)

    def act(self, begin: Begin) -> None:
        begin()
        save(self.second, 2)

    def check(self, n_calls: int) -> None:
        self.tally.count()
        with self.tally.harmless("lost", n_calls):
            assert_loads(self.first, 1)
        with self.tally.harmless("torn", n_calls):
            assert files.is_whole(self.second) == files.metadata_path(self.second).exists()
        with self.tally.harmless("lie", n_calls):
            self.what_is_whole_is_right()
        with self.tally.harmless("wrong class", n_calls):
            self.the_next_attempt_succeeds()
        with self.tally.harmless("leftover", n_calls):
            assert prune(self.path, keep=2) == []  # which removes records of what is whole
            assert not [name for name in self.left_over() if not name.endswith(".tmp")]

    def what_is_whole_is_right(self) -> None:
        is_whole = files.is_whole(self.second)
        assert latest_checkpoint(self.path) == str(self.second if is_whole else self.first)
        if is_whole:
            assert_loads(self.second, 2)
        else:
            assert_gone(self.second)
        self.n_whole += is_whole

    def the_next_attempt_succeeds(self) -> None:
        if not files.is_whole(self.second):
            save(self.second, 2, attempt=1)
            assert_loads(self.second, 2, attempt=1)
        else:
            with pytest.raises(CheckpointError, match="already"):
                save(self.second, 2, attempt=1)
            assert_loads(self.second, 2)
        assert latest_checkpoint(self.path) == str(self.second)
        assert_loads(self.first, 1)

    def left_over(self) -> set[str]:
        return set(names(self.path)) - set(expected_names(self.layout, 1, 2))


@pytest.mark.usefixtures("no_waiting_for_disks")
class TestSave:
    @a_kill
    def test_killed_at_each_call(self, tally: Tally, tmp_path) -> None:
        case = Saves(tmp_path / "x", FLAT, tally)
        choose = partial(tally.sample, n=N_KILLS)
        n = at_some_calls(case.act, prepare=case.prepare, check=case.check, choose=choose)
        assert n > 100 or not tally.is_exhaustive
        assert 0 < case.n_whole < n or not tally.is_exhaustive

    @a_kill
    def test_each_state_that_is_left(self, tally: Tally, tmp_path) -> None:
        case = Saves(tmp_path / "x", NESTED, tally)
        case.prepare()
        choose = partial(tally.sample, n=N_KILLS)
        n_states = at_every_state(case.act, case.path, check=case.check, choose=choose)
        if tally.is_exhaustive:
            assert n_states > 15
            assert 0 < case.n_whole < n_states

    @a_kill
    def test_killed_while_it_is_saved_again(self, tally: Tally, tmp_path) -> None:
        """There is the old one, the new one or none; never something of both."""
        path = tmp_path / "x"
        first, second = path / "step_1", path / "step_2"
        seen = {"old": 0, "new": 0, "none": 0}

        def prepare() -> None:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
            save(first, 1)
            save(second, 2)

        def act(begin: Begin) -> None:
            begin()
            save(second, 2, attempt=1, overwrite=True)

        def check(n_calls: int) -> None:
            tally.count()
            with tally.harmless("lost", n_calls):
                assert_loads(first, 1)
            with tally.harmless("lie", n_calls):
                if files.is_whole(second):
                    is_new = is_right(second, 2, attempt=1)
                    seen["new" if is_new else "old"] += 1
                    assert_loads(second, 2, attempt=int(is_new))
                    assert latest_checkpoint(path) == str(second)
                else:
                    seen["none"] += 1
                    assert_gone(second)
                    assert latest_checkpoint(path) == str(first)
            with tally.harmless("wrong class", n_calls):
                save(second, 2, attempt=2, overwrite=True)
                assert_loads(second, 2, attempt=2)
                assert latest_checkpoint(path) == str(second)

        choose = partial(tally.sample, n=N_KILLS)
        at_some_calls(act, prepare=prepare, check=check, choose=choose)
        assert all(seen.values()) or not tally.is_exhaustive


@pytest.mark.once
class TestFaults:
    """A call that fails, or does less than it was asked for."""

    @pytest.mark.parametrize(
        ("number", "is_there"), [(errno.EIO, True), (errno.ENOSPC, False), (errno.EROFS, True)]
    )
    def test_each_call_that_fails(self, tmp_path, number, is_there, stride) -> None:
        """Each by one of the three at least."""
        path = tmp_path / "x"
        path.mkdir()
        prefix = path / "step_1"
        with FileSystemFaults(path) as fs:
            save(prefix, 1)
            n_calls = len(fs.calls)
        assert n_calls > 40
        n_calls += 10  # giving up an old one takes some more
        for nth in range(1 + number % stride, n_calls, stride):
            shutil.rmtree(path)
            path.mkdir()
            if is_there:
                save(prefix, 1)
            is_saved = False
            with FileSystemFaults(path) as fs, suppress(OSError, CheckpointError):
                fs.fail("any", number, nth=nth, times=1, optional=True)
                save(prefix, 1, attempt=1, overwrite=is_there)
                is_saved = True
            if is_saved:
                assert_loads(prefix, 1, attempt=1)
            assert not says_too_much(prefix)
            save(prefix, 1, attempt=2, overwrite=True)
            assert_loads(prefix, 1, attempt=2)
            assert leftovers(path) == []

    @pytest.mark.parametrize("n_bytes", [1, 7, 100])
    def test_short_reads_and_writes(self, tmp_path, n_bytes: int) -> None:
        with FileSystemFaults(tmp_path) as fs:
            fs.short("write", n_bytes, optional=True)
            save(tmp_path / "step_1", 1)
        assert is_right(tmp_path / "step_1", 1)
        with FileSystemFaults(tmp_path) as fs:
            fs.short("read", n_bytes)
            assert_loads(tmp_path / "step_1", 1)


class Prunes:
    """Steps 1 and 2 are removed, and step 3 stays.

    Args:
        path: The directory of all.
        layout: Their prefixes.
        tally: Of the attack.
    """

    def __init__(self, path: Path, layout: str, tally: Tally) -> None:
        self.tally = tally
        self.path = path
        self.layout = layout
        self.states: set[tuple[bool, ...]] = set()

    def prefix(self, step: int) -> Path:
        return prefix_of(self.path, self.layout, step)

    def prepare(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        for step in (1, 2, 3):
            save(self.prefix(step), step)

    def act(self, begin: Begin) -> None:
        begin()
        prune(self.path, keep=1)

    def check(self, n_calls: int) -> None:
        self.tally.count()
        with self.tally.harmless("lost", n_calls):
            assert latest_checkpoint(self.path) == str(self.prefix(3))
            assert_loads(self.prefix(3), 3)
        with self.tally.harmless("torn", n_calls):
            self.each_is_whole_or_none()
        self.states.add(tuple(files.is_whole(self.prefix(step)) for step in (1, 2)))
        with self.tally.harmless("leftover", n_calls):
            prune(self.path, keep=1)
            assert names(self.path) == expected_names(self.layout, 3)
        with self.tally.harmless("lost", n_calls):
            assert_loads(self.prefix(3), 3)

    def each_is_whole_or_none(self) -> None:
        for step in (1, 2):
            if files.is_whole(self.prefix(step)):
                assert_loads(self.prefix(step), step)
            else:
                # Nobody can take what is left for a checkpoint.
                assert not files.metadata_path(self.prefix(step)).exists()
                assert_gone(self.prefix(step))


@pytest.mark.usefixtures("no_waiting_for_disks")
class TestPrune:
    @a_kill
    def test_killed_at_each_call(self, tally: Tally, tmp_path) -> None:
        case = Prunes(tmp_path / "x", FLAT, tally)
        choose = partial(tally.sample, n=N_KILLS)
        n = at_some_calls(case.act, prepare=case.prepare, check=case.check, choose=choose)
        if tally.is_exhaustive:
            assert n > 100
            assert {(True, True), (False, False)} < case.states
            assert len(case.states) == 3

    @a_kill
    def test_each_state_that_is_left(self, tally: Tally, tmp_path) -> None:
        case = Prunes(tmp_path / "x", NESTED, tally)
        case.prepare()
        assert at_every_state(case.act, case.path, check=case.check) >= 1 + 2 * (WORLD_SIZE + 2)
        assert len(case.states) == 3


def contents(directory: Path, step: int) -> list[dict[str, bytes]] | None:
    """What `from_safetensors` makes of a directory, by rank; None where it refuses it."""
    prefix = directory.parent / "again" / "model"
    shutil.rmtree(prefix.parent, ignore_errors=True)
    try:
        from_safetensors(directory, prefix, step=step)
    except CheckpointError:
        return None
    return files.read(prefix)


def of_step(step: int) -> list[dict[str, bytes]]:
    """What a checkpoint of a step has as files of safetensors, by rank and in their order."""
    return [
        files.tensors_of({f"{name}{rank}": arrays[name] for name in ("b", "w")})
        for rank in range(WORLD_SIZE)
        for arrays in [arrays_of(step, rank)]
    ]


def converting(tmp_path: Path) -> tuple[Path, Callable[[Begin], None]]:
    """A directory with a set of step 1, and what writes that of step 2 over it."""
    path = tmp_path / "x" / "release"
    path.parent.mkdir()
    for step in (1, 2):
        saver = MultiShardSaver()
        for rank in range(WORLD_SIZE):
            arrays = {f"{name}{rank}": array for name, array in arrays_of(step, rank).items()}
            saver.save_shard(tmp_path / f"step_{step}", rank, arrays)
        saver.save_metadata(tmp_path / f"step_{step}", world_size=WORLD_SIZE, step=step)
    to_safetensors(tmp_path / "step_1", path)

    def act(begin: Begin) -> None:
        begin()
        to_safetensors(tmp_path / "step_2", path, overwrite=True)

    return path, act


@pytest.mark.usefixtures("no_waiting_for_disks")
class TestConvert:
    """What a conversion that was killed leaves is a set of before, one of now, or refused."""

    @a_kill
    def test_each_state_that_is_left(self, tally: Tally, tmp_path) -> None:
        path, act = converting(tmp_path)
        seen = set()

        def check(n_calls: int) -> None:
            tally.count()
            found = contents(path, 1)
            seen.add("none" if found is None else found == of_step(1))
            if found not in (None, of_step(1), of_step(2)):
                tally.harm("lie", f"{n_calls}: files of two sets are taken for one")
            to_safetensors(tmp_path / "step_2", path, overwrite=True)
            if contents(path, 1) != of_step(2):
                tally.harm("wrong class", f"{n_calls}: it can't be converted again")

        at_every_state(act, path, check=check)
        assert seen == {True, False, "none"}

    @pytest.mark.once
    def test_control_files_that_say_of_no_set(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr("shardproof.checkpoint.safetensors._to_safetensors.SET", "of_nothing")
        path, act = converting(tmp_path)
        seen = []
        at_every_state(act, path, check=lambda _: seen.append(contents(path, 1)))
        assert any(found not in (None, of_step(1), of_step(2)) for found in seen)


# Controls: what is done in another order, or without syncing, is seen to fail.


def sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def parts(prefix: Path) -> tuple[list[bytes], bytes]:
    """The bytes of a whole checkpoint's files: shards, and metadata."""
    shards = [files.shard_path(prefix, rank).read_bytes() for rank in range(WORLD_SIZE)]
    return shards, files.metadata_path(prefix).read_bytes()


class Writer:
    """Writes the files of a checkpoint, which were made elsewhere, in a way of its own.

    Args:
        tmp_path: Where they are made.
        metadata_first: Not last.
        sync: Each file before it has its name, and its directory then.
    """

    def __init__(self, tmp_path: Path, *, metadata_first: bool = False, sync: bool = True) -> None:
        made = tmp_path / "made" / "step_2"
        made.parent.mkdir()
        save(made, 2)
        self.shards, self.metadata = parts(made)
        self.metadata_first, self.sync = metadata_first, sync

    def write(self, prefix: Path) -> None:
        written = [(files.shard_path(prefix, n), data) for n, data in enumerate(self.shards)]
        written.insert(
            0 if self.metadata_first else 2, (files.metadata_path(prefix), self.metadata)
        )
        for path, data in written:
            if self.sync:
                _files.write_whole(path, data)
            else:
                path.with_suffix(".tmp").write_bytes(data)
                os.replace(path.with_suffix(".tmp"), path)
        sync_directory(prefix.parent)


def remove_shards_first(prefix: Path) -> None:
    for rank in range(WORLD_SIZE):
        files.shard_path(prefix, rank).unlink()
    files.metadata_path(prefix).unlink()


def says_too_much(prefix: Path) -> bool:
    """Whether there is metadata of a checkpoint that isn't whole."""
    return files.metadata_path(prefix).exists() and not files.is_whole(prefix)


@pytest.mark.once
@pytest.mark.usefixtures("no_waiting_for_disks")
class TestControls:
    def test_metadata_that_is_written_first(self, tmp_path) -> None:
        assert self.n_seen(tmp_path, Writer(tmp_path, metadata_first=True)) > 0

    def test_metadata_that_is_written_last(self, tmp_path) -> None:
        assert self.n_seen(tmp_path, Writer(tmp_path)) == 0

    def n_seen(self, tmp_path: Path, writer: Writer) -> int:
        path, seen = tmp_path / "x", []
        path.mkdir()

        def act(begin: Begin) -> None:
            begin()
            writer.write(path / "step_2")

        at_every_state(act, path, check=lambda _: seen.append(says_too_much(path / "step_2")))
        return sum(seen)

    def test_shards_that_are_removed_first(self, tmp_path) -> None:
        path, seen = tmp_path / "x", []
        path.mkdir()
        save(path / "step_1", 1)

        def act(begin: Begin) -> None:
            begin()
            remove_shards_first(path / "step_1")

        at_every_state(act, path, check=lambda _: seen.append(says_too_much(path / "step_1")))
        assert sum(seen) == WORLD_SIZE
        assert latest_checkpoint(path) is None


@pytest.fixture(scope="module")
def mounts(tmp_path_factory) -> None:
    """Disks can be mounted, and what is imported late is by now: it would be counted."""
    power.skip_where_not_permitted()
    path = tmp_path_factory.mktemp("imported")
    for step in (1, 2):
        save(path / f"step_{step}", step)
    prune(path, keep=1)


def cut(
    tally: Tally,
    act: Callable[[Path, Begin], object],
    workspace: Path,
    prepare: Callable[[Path], object],
    check: Callable[[Path, bool], object],
    *,
    beside_others: bool,
) -> int:
    """Cut the power at each call; in the gate at a few."""
    choose = partial(tally.sample, n=N_CUTS)
    return power.at_every_cut(
        act, workspace, prepare=prepare, check=check, beside_others=beside_others, choose=choose
    )


def disks(
    tally: Tally, tmp_path: Path, layouts: Sequence[str] = LAYOUTS
) -> Iterator[tuple[Path, str, bool]]:
    """Yield where to make disks, how prefixes are laid out there, and whether others sync, too."""
    cases = [*itertools.product(layouts, (False, True))]
    for number, case in enumerate(tally.sample(cases, 1)):
        path = tmp_path / str(number)
        path.mkdir()
        yield path, *case


@a_cut
@pytest.mark.usefixtures("mounts")
class TestPower:
    """Each checkpoint that the disk has metadata of, it has whole; what was said is done, is."""

    def test_cut_while_it_is_saved(self, tally: Tally, tmp_path) -> None:
        for path, layout, beside_others in disks(tally, tmp_path):
            self.is_saved(tally, path, layout, beside_others)

    def is_saved(self, tally: Tally, tmp_path: Path, layout: str, beside_others: bool) -> None:
        n_whole = 0

        def prepare(path: Path) -> None:
            save(prefix_of(path, layout, 1), 1)

        def act(path: Path, begin: Begin) -> None:
            begin()
            save(prefix_of(path, layout, 2), 2)

        def check(path: Path, has_ended: bool) -> None:
            nonlocal n_whole
            tally.count()
            first, second = (path / layout.format(step) for step in (1, 2))
            is_whole = files.is_whole(second)
            with tally.harmless("lost", path):
                assert_loads(first, 1)
                assert is_whole or not has_ended
            with tally.harmless("torn", path):
                assert not says_too_much(second)
            with tally.harmless("lie", path):
                assert latest_checkpoint(path) == str(second if is_whole else first)
                if is_whole:
                    assert_loads(second, 2)
                else:
                    save(prefix_of(path, layout, 2), 2, attempt=1)
                    assert_loads(second, 2, attempt=1)
            n_whole += is_whole

        n_cuts = cut(tally, act, tmp_path, prepare, check, beside_others=beside_others)
        assert 0 < n_whole < n_cuts or not tally.is_exhaustive

    def test_cut_while_it_is_saved_again(self, tally: Tally, tmp_path) -> None:
        for path, _, beside_others in disks(tally, tmp_path, [FLAT]):
            self.is_saved_again(tally, path, beside_others)

    def is_saved_again(self, tally: Tally, tmp_path: Path, beside_others: bool) -> None:
        seen = set()

        def prepare(path: Path) -> None:
            save(path / "step_1", 1)
            save(path / "step_2", 2)

        def act(path: Path, begin: Begin) -> None:
            begin()
            save(path / "step_2", 2, attempt=1, overwrite=True)

        def check(path: Path, has_ended: bool) -> None:
            tally.count()
            first, second = path / "step_1", path / "step_2"
            is_new = is_right(second, 2, attempt=1)
            is_whole = is_new or is_right(second, 2)
            with tally.harmless("lost", path):
                assert_loads(first, 1)
                assert is_new or not has_ended
            with tally.harmless("torn", path):
                assert not says_too_much(second)
            with tally.harmless("lie", path):
                assert is_whole == files.is_whole(second)
                assert latest_checkpoint(path) == str(second if is_whole else first)
            seen.add((is_new, is_whole))
            with tally.harmless("wrong class", path):
                save(second, 2, attempt=2, overwrite=True)
                assert_loads(second, 2, attempt=2)

        cut(tally, act, tmp_path, prepare, check, beside_others=beside_others)
        assert {(False, True), (True, True)} <= seen or not tally.is_exhaustive

    def test_cut_while_others_are_removed(self, tally: Tally, tmp_path) -> None:
        for path, layout, beside_others in disks(tally, tmp_path):
            self.are_removed(tally, path, layout, beside_others)

    def are_removed(self, tally: Tally, tmp_path: Path, layout: str, beside_others: bool) -> None:
        def prepare(path: Path) -> None:
            for step in (1, 2, 3):
                save(prefix_of(path, layout, step), step)

        def act(path: Path, begin: Begin) -> None:
            begin()
            prune(path, keep=1)

        def check(path: Path, has_ended: bool) -> None:
            tally.count()
            third = path / layout.format(3)
            with tally.harmless("lost", path):
                assert latest_checkpoint(path) == str(third)
                assert_loads(third, 3)
            with tally.harmless("torn", path):
                assert not any(says_too_much(path / layout.format(step)) for step in (1, 2))
            with tally.harmless("leftover", path):
                prune(path, keep=1)
                assert names(path) == expected_names(layout, 3)

        assert cut(tally, act, tmp_path, prepare, check, beside_others=beside_others) > 0


@pytest.mark.once
@pytest.mark.usefixtures("mounts")
class TestPowerControls:
    def n_seen(self, tmp_path: Path, writer: Writer) -> int:
        """After how many cuts there is metadata of a checkpoint that isn't whole."""
        seen, ended = [], []

        def act(path: Path, begin: Begin) -> None:
            begin()
            writer.write(path / "step_2")

        def check(path: Path, has_ended: bool) -> None:
            seen.append(says_too_much(path / "step_2"))
            if has_ended:
                ended.append(files.is_whole(path / "step_2"))

        (tmp_path / "w").mkdir()
        power.at_every_cut(act, tmp_path / "w", prepare=lambda _: None, check=check)
        assert ended == [writer.sync]
        return sum(seen)

    def test_a_writer_that_syncs(self, tmp_path) -> None:
        assert self.n_seen(tmp_path, Writer(tmp_path)) == 0

    def test_a_writer_that_does_not(self, tmp_path) -> None:
        assert self.n_seen(tmp_path, Writer(tmp_path, sync=False)) > 0

    def test_a_writer_of_metadata_first(self, tmp_path) -> None:
        assert self.n_seen(tmp_path, Writer(tmp_path, metadata_first=True)) > 0
