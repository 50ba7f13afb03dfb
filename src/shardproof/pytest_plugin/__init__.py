"""``pytest --validate-shards``: shards directories as test items; and fixtures that make some.

Nothing but pytest, the standard library and what is made of it is imported until a directory is
validated or a fixture is used: every test run of every environment that has shardproof loads this.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardproof.pytest_plugin._hooks import (
    pytest_addoption,
    pytest_configure,
    pytest_make_collect_report,
    pytest_terminal_summary,
)

if TYPE_CHECKING:
    from shardproof.testing import MakeCheckpoint, MakeShardsDir
    from shardproof.testing.faults import Hub, MakeShardFaults

__all__ = [
    "make_checkpoint",
    "make_fake_shards_dir",
    "make_receipts_dir",
    "make_shard_faults",
    "make_shards_dir",
    "pytest_addoption",
    "pytest_configure",
    "pytest_make_collect_report",
    "pytest_runtest_call",
    "pytest_runtest_setup",
    "pytest_terminal_summary",
    "shard_hub",
    "shards_dir_factory",
]

pytest.register_assert_rewrite("shardproof.testing.contracts", "shardproof.testing.stateful")


def _numbered(path: Path) -> Callable[[], Path]:
    numbers = itertools.count()
    return lambda: path.with_name(f"{path.name}-{next(numbers)}")


@pytest.fixture
def make_shards_dir(tmp_path: Path) -> Iterator[MakeShardsDir]:
    """Make shards directories of any format for one test.

    ``path = make_shards_dir(n_shards=3, missing=[1])``, of another format than saev with
    ``format="checkpoint"`` or a `SampleFormat`. Each call writes a new one, below
    ``tmp_path``. After a call with ``unreadable`` they are unreadable for root too, until
    the test ends.
    """
    from shardproof.testing.samples._directories import shards_dir_maker  # noqa: PLC0415 - as above

    yield from shards_dir_maker(_numbered(tmp_path / "shards-dir"))


@pytest.fixture(scope="session")
def shards_dir_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeShardsDir]:
    """Make shards directories that last for the session; otherwise as ``make_shards_dir``.

    Unreadable shards stay readable for root: there, wrap what reads them into
    ``shardproof.testing.without_root_override()``.
    """
    from shardproof.testing.samples._directories import shards_dir_maker  # noqa: PLC0415 - as above

    new_base = functools.partial(tmp_path_factory.mktemp, "shards-dir")
    yield from shards_dir_maker(new_base, drop_root_override=False)


@pytest.fixture
def make_receipts_dir(tmp_path: Path) -> Iterator[MakeShardsDir]:
    """Make plan directories of data-prep runs for one test; otherwise as ``make_shards_dir``.

    ``path = make_receipts_dir(n_shards=8, started=[1], missing=[2])``.
    """
    from shardproof.testing.samples.receipts import receipts_dir_maker  # noqa: PLC0415 - as above

    yield from receipts_dir_maker(_numbered(tmp_path / "receipts-dir"))


@pytest.fixture
def make_checkpoint(tmp_path: Path) -> Iterator[MakeCheckpoint]:
    """Make checkpoints in one file a rank for one test; otherwise as ``make_shards_dir``.

    ``prefix = make_checkpoint(world_size=4, step=7, missing=[1])`` is the prefix of its files,
    ``.../step_7/model``, below ``tmp_path`` or in the ``directory=`` it is given. Other keywords
    are those of ``Layout(format="checkpoint")``.
    """
    from shardproof.testing.samples.checkpoint import checkpoint_dir_maker  # noqa: PLC0415 - as above

    yield from checkpoint_dir_maker(_numbered(tmp_path / "checkpoint"))


_OF_PYFAKEFS = {"fs", "fs_class", "fs_module", "fs_session"}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Import the library before pyfakefs's fixtures: in a fake file system it would hold fakes."""
    if _OF_PYFAKEFS.intersection(getattr(item, "fixturenames", ())):
        from shardproof._base.imports import import_all  # noqa: PLC0415 - as above

        import_all()


_FAKED = pytest.StashKey[contextlib.ExitStack]()


@pytest.fixture
def make_fake_shards_dir(request: pytest.FixtureRequest) -> Iterator[MakeShardsDir]:
    """Make shards directories in a fake file system; otherwise as ``make_shards_dir``.

    From the first call to the end of the test function all files are fake. Needs pyfakefs.
    """
    from shardproof.testing.faults import fake  # noqa: PLC0415 - not before it is needed

    with contextlib.ExitStack() as stack:
        request.node.stash[_FAKED] = stack
        yield stack.enter_context(fake.fake_shards_dir_maker())


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """End what is fake with the test function: capfd opens files at the beginning of teardown."""
    with item.stash.get(_FAKED, contextlib.nullcontext()):
        return (yield)


@pytest.fixture
def make_shard_faults(
    make_shards_dir: MakeShardsDir,  # noqa: ARG001 - whose end, which restores modes, comes after
) -> Iterator[MakeShardFaults]:
    """Let file-system calls below a directory fail, until the test ends.

    ``make_shard_faults(path).fail("read", errno.EIO, nth=2)``. A fault that was planned and never
    reached is an error at the end of the test.
    """
    from shardproof.testing.faults import FileSystemFaults  # noqa: PLC0415 - not before it is needed

    with contextlib.ExitStack() as stack:
        yield lambda root: stack.enter_context(FileSystemFaults(root))


@pytest.fixture
def shard_hub() -> Iterator[Hub]:
    """Run an HTTP server on 127.0.0.1 that serves what it is given, with faults, for one test."""
    from shardproof.testing.faults import serve_hub  # noqa: PLC0415 - not before it is needed

    with serve_hub() as hub:
        yield hub
