"""What every loader of shards owes its users."""

import contextlib
import errno
import fnmatch
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shardproof.testing.contracts._child import (
    ChildResult,
    left_by,
    refusal,
    returned,
    run_in_child,
    snapshot,
)
from shardproof.testing.contracts._samples import fingerprint
from shardproof.testing.faults import FileSystemFaults
from shardproof.testing.samples._capabilities import without_root_override
from shardproof.testing.samples._directories import restore_modes, write_layout
from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples._states import ShardState, apply_states

__all__ = ["MakeDir", "OpenLoader", "SampleDir", "ShardLoaderContract"]

OpenLoader = Callable[..., Any]

_WHOLE = Layout(n_shards=4)
# 1 MiB a shard, in many samples: more than a loader holds of what it was not asked for yet.
_LARGE = Layout(n_shards=4, examples_per_shard=512, d_model=64)


class SampleDir(NamedTuple):
    """A directory made for one test."""

    path: Path
    shards: list[Path]
    """Absolute path of each shard, be it there or not."""


MakeDir = Callable[[Layout], SampleDir]


class ShardLoaderContract:
    """Tests for a loader: subclass it and define the fixture ``open_loader``.

    ::

        class TestMyLoader(ShardLoaderContract):
            @pytest.fixture
            def open_loader(self):
                return MyLoader  # called with a path, str or Path; the result is iterable

    By itself it writes shards directories of saev. For another format override `write_dir` and
    `shard_files`; for a loader of batches `samples`, so that it takes them apart. Every look at the
    loader happens in a forked process with a deadline: a hang or a SIGBUS fails one test and no
    more. What is left of that process at its end is killed, and does not tidy up.

    Attributes:
        refused: States that the loader must refuse when it is opened. Leave out only what your
            format can't notice.
        deadline: Seconds after which a look counts as a hang.
    """

    refused: Sequence[ShardState] = (
        *(ShardState.MISSING, ShardState.EMPTY, ShardState.UNREADABLE, ShardState.DIRECTORY),
        *(ShardState.DANGLING, ShardState.LOOP, ShardState.OUTSIDE, ShardState.FIFO),
        *(ShardState.SOCKET, ShardState.TRUNCATED, ShardState.EXTENDED, ShardState.UNFINISHED),
    )
    deadline = 60.0

    # What a subclass may override.

    def write_dir(self, value: Layout, base: Path) -> Path:
        """Write a whole directory of as many shards, and of that size, and return its path."""
        return write_layout(value, base)

    def shard_files(self, path: Path) -> list[Path]:
        """Return the shards of a whole directory, in order."""
        return [path / name for name in sorted(fnmatch.filter(os.listdir(path), "acts*.bin"))]

    def samples(self, loader: Any) -> Iterable[Any]:
        """Return what the loader delivers: by default what iterating over it gives."""
        samples: Iterator[Any] = iter(loader)
        return samples

    def fingerprint(self, sample: Any) -> str:
        """Return text that is equal for equal samples."""
        return fingerprint(sample)

    def close(self, loader: Any) -> None:
        """Let go of a loader: by default its ``close()``, where it has one."""
        getattr(loader, "close", lambda: None)()

    # What the tests use.

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test of refusals once for each state of ``refused``."""
        if "refused_state" in metafunc.fixturenames:
            metafunc.parametrize("refused_state", getattr(metafunc.cls, "refused"), ids=str)  # noqa: B009

    @pytest.fixture
    def make_dir(self, tmp_path: Path) -> Iterator[MakeDir]:
        """Return a function that writes a layout in this loader's format."""
        numbers = iter(range(1000))

        def make(value: Layout) -> SampleDir:
            whole = value.replace([ShardState.OK] * value.n_shards)
            path = self.write_dir(whole, tmp_path / f"contract-{next(numbers)}")
            shards = self.shard_files(path)
            apply_states(shards, value.states)
            return SampleDir(path, shards)

        yield make
        restore_modes(tmp_path)

    def look(self, function: Callable[[], Any]) -> ChildResult:
        """Call a function in a child in which ``chmod 0`` counts for root too."""
        with without_root_override():
            return run_in_child(function, deadline=self.deadline)

    def deliver(self, open_loader: OpenLoader, path: str | Path) -> list[str]:
        """Return everything that a fresh loader delivers."""
        with self.opened(open_loader, path) as loader:
            return [self.fingerprint(sample) for sample in self.samples(loader)]

    @contextlib.contextmanager
    def opened(self, open_loader: OpenLoader, *args: Any) -> Iterator[Any]:
        """Open a loader and close it at the end."""
        loader = open_loader(*args)
        try:
            yield loader
        finally:
            self.close(loader)

    # The contract.

    def test_a_whole_directory_is_delivered(
        self, open_loader: OpenLoader, make_dir: MakeDir
    ) -> None:
        """Samples come, and each time the same ones."""
        path = make_dir(_WHOLE).path
        first = returned(self.look(lambda: self.deliver(open_loader, path)))
        again = returned(self.look(lambda: self.deliver(open_loader, path)))
        assert first, "the loader delivered nothing"
        assert Counter(first) == Counter(again), "a second loader delivered other samples"

    def test_str_and_path_are_the_same(self, open_loader: OpenLoader, make_dir: MakeDir) -> None:
        """Whichever way the directory is named."""
        path = make_dir(_WHOLE).path
        by_path = returned(self.look(lambda: self.deliver(open_loader, path)))
        by_text = returned(self.look(lambda: self.deliver(open_loader, str(path))))
        assert Counter(by_path) == Counter(by_text)

    def test_two_loaders_do_not_disturb_each_other(
        self, open_loader: OpenLoader, make_dir: MakeDir
    ) -> None:
        """One process reads two directories in turns."""
        one, other = (make_dir(_WHOLE.replace(d_model=n)).path for n in (8, 16))

        def in_turns() -> list[list[str]]:
            with self.opened(open_loader, one) as a, self.opened(open_loader, other) as b:
                runs = [map(self.fingerprint, self.samples(loader)) for loader in (a, b)]
                firsts = [next(run) for run in runs]
                return [[first, *run] for first, run in zip(firsts, runs, strict=True)]

        a, b = returned(self.look(in_turns))
        assert Counter(a) == Counter(returned(self.look(lambda: self.deliver(open_loader, one))))
        assert Counter(b) == Counter(returned(self.look(lambda: self.deliver(open_loader, other))))

    def test_damage_is_refused_on_opening(
        self, open_loader: OpenLoader, make_dir: MakeDir, refused_state: ShardState
    ) -> None:
        """Not later, deep in a training run."""
        path = make_dir(_between_whole(refused_state)).path
        refusal(self.look(lambda: self.close(open_loader(path))))

    def test_a_refusal_names_the_absolute_path(
        self, open_loader: OpenLoader, make_dir: MakeDir, refused_state: ShardState
    ) -> None:
        """Also where the directory was named by a relative one: the log is read elsewhere."""
        path, shards = make_dir(_between_whole(refused_state))

        def by_a_relative_path() -> None:
            os.chdir("/")
            self.close(open_loader(os.path.relpath(path)))

        error = refusal(self.look(by_a_relative_path))
        assert str(shards[1]) in error.text, f"{shards[1]} is not named in: {error.text}"

    def test_all_problems_are_named_at_once(
        self, open_loader: OpenLoader, make_dir: MakeDir
    ) -> None:
        """A user who restores one shard at a time waits in the job queue for each."""
        path, shards = make_dir(_between_whole(*self.refused))
        error = refusal(self.look(lambda: self.close(open_loader(path))))
        unnamed = [shard.name for shard in shards[1:-1] if str(shard) not in error.text]
        assert not unnamed, f"not named: {', '.join(unnamed)}; the text is: {error.text}"
        assert str(shards[0]) not in error.text, "a whole shard is blamed"
        assert str(shards[-1]) not in error.text, "a whole shard is blamed"

    def test_damage_is_never_delivered(
        self, open_loader: OpenLoader, make_dir: MakeDir, refused_state: ShardState
    ) -> None:
        """The right samples or an error, be it a late one: no others, and not fewer in silence."""
        whole, path = (make_dir(_between_whole(s)).path for s in (ShardState.OK, refused_state))
        samples = returned(self.look(lambda: self.deliver(open_loader, whole)))
        outcome = self.look(lambda: self.deliver(open_loader, path))
        if outcome.error is None:
            _assert_same(returned(outcome), samples)

    def test_a_missing_shard_is_a_file_not_found_error(
        self, open_loader: OpenLoader, make_dir: MakeDir
    ) -> None:
        """Which is what callers catch."""
        path = make_dir(_between_whole(ShardState.MISSING)).path
        error = refusal(self.look(lambda: self.close(open_loader(path))))
        assert "FileNotFoundError" in error.kinds, f"found {error.kinds[0]}"

    def test_no_directory_is_a_file_not_found_error(
        self, open_loader: OpenLoader, tmp_path: Path
    ) -> None:
        """And says which."""
        path = tmp_path / "nowhere"
        error = refusal(self.look(lambda: self.close(open_loader(path))))
        assert "FileNotFoundError" in error.kinds, f"found {error.kinds[0]}"
        assert str(path) in error.text, f"{path} is not named in: {error.text}"

    @pytest.mark.parametrize("kind", ["empty-directory", "file"])
    def test_what_is_no_shards_directory_is_refused(
        self, open_loader: OpenLoader, tmp_path: Path, kind: str
    ) -> None:
        """An empty directory is what a purge or a wrong mount leaves: no data is no success."""
        path = tmp_path / kind
        path.write_bytes(b"text") if kind == "file" else path.mkdir()
        error = refusal(self.look(lambda: self.close(open_loader(path))))
        assert str(path) in error.text, f"{path} is not named in: {error.text}"

    def test_what_could_not_be_looked_at_is_not_missing(
        self, open_loader: OpenLoader, make_dir: MakeDir
    ) -> None:
        """EIO from a shard: it may be whole, and must not be made anew."""
        path, shards = make_dir(_WHOLE)

        def with_eio() -> list[str]:
            with FileSystemFaults(path) as fs:
                fs.fail("open", errno.EIO, match=shards[1].name)
                return self.deliver(open_loader, path)

        error = refusal(self.look(with_eio))
        assert error.errno != errno.ENOENT, f"it is called missing: {error.text}"
        assert error.kinds[0] != "FileNotFoundError", f"it is called missing: {error.text}"
        assert shards[1].name in error.text, f"{shards[1].name} is not named in: {error.text}"

    @pytest.mark.parametrize("fault", ["vanished", "shrunk", "emptied"])
    def test_damage_during_iteration(
        self, open_loader: OpenLoader, make_dir: MakeDir, fault: str
    ) -> None:
        """An error that names a shard, or the right samples: no hang, no SIGBUS, no other bytes.

        The right samples may still come where files are held open or were read ahead.
        """
        path, shards = make_dir(_LARGE)
        whole = returned(self.look(lambda: self.deliver(open_loader, path)))

        def damaged_after_the_first() -> list[str]:
            with self.opened(open_loader, path) as loader:
                run = map(self.fingerprint, self.samples(loader))
                first = next(run)
                for shard in shards:
                    _DURING[fault](shard)
                return [first, *run]

        _assert_same_or_raised(self.look(damaged_after_the_first), whole, shards)

    @pytest.mark.parametrize("fault", ["eio", "short"])
    def test_reads_that_fail(self, open_loader: OpenLoader, make_dir: MakeDir, fault: str) -> None:
        """A read that fails is an error, a short one is no end: or the samples are the right ones.

        A loader that maps its files reads without calls, and is not reached by this.
        """
        path, shards = make_dir(_WHOLE)
        whole = returned(self.look(lambda: self.deliver(open_loader, path)))

        def with_fault() -> list[str]:
            with FileSystemFaults(path) as fs:
                if fault == "eio":
                    fs.fail("read", errno.EIO, times=None, match=shards[1].name, optional=True)
                else:
                    fs.short("read", 7, times=None, match=shards[1].name, optional=True)
                return self.deliver(open_loader, path)

        _assert_same_or_raised(self.look(with_fault), whole, shards)

    @pytest.mark.parametrize("end", ["exhausted", "abandoned", "refused"])
    def test_nothing_is_left_behind(
        self, open_loader: OpenLoader, make_dir: MakeDir, end: str
    ) -> None:
        """No thread, process or descriptor, once a loader is closed and gone."""
        value = _between_whole(ShardState.MISSING) if end == "refused" else _WHOLE
        path = make_dir(value).path
        expected = [Exception] if end == "refused" else []

        def use() -> None:
            with contextlib.suppress(*expected), self.opened(open_loader, path) as loader:
                for _ in self.samples(loader):
                    if end == "abandoned":
                        break

        found = returned(self.look(lambda: left_by(use)))
        assert not found, f"left behind: {', '.join(found)}"

    def test_the_directory_is_left_as_it_was(
        self, open_loader: OpenLoader, make_dir: MakeDir
    ) -> None:
        """A reader writes nothing: others read the same directory, which may be read-only."""
        path = make_dir(_WHOLE).path
        before = snapshot(path)
        returned(self.look(lambda: self.deliver(open_loader, path)))
        assert snapshot(path) == before


def _assert_same(found: list[str], whole: list[str]) -> None:
    assert Counter(found) == Counter(whole), "other samples were delivered, and no error raised"


def _assert_same_or_raised(outcome: ChildResult, whole: list[str], shards: list[Path]) -> None:
    if outcome.error is None:
        _assert_same(returned(outcome), whole)
    else:
        text = refusal(outcome).text
        named = any(str(shard) in text for shard in shards)
        assert named, f"no shard's absolute path is named in: {text}"


_DURING: dict[str, Callable[[Path], None]] = {
    "vanished": os.unlink,
    "shrunk": lambda shard: os.truncate(shard, shard.stat().st_size // 2),
    "emptied": lambda shard: os.truncate(shard, 0),
}


def _between_whole(*states: ShardState) -> Layout:
    states = (ShardState.OK, *states, ShardState.OK)
    return _WHOLE.replace(states, n_examples=len(states) * _WHOLE.examples_per_shard)
