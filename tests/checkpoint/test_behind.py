"""A shard that is saved behind the training: what it was when the save began, or an error."""

import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from shardproof.checkpoint import MultiShardLoader, MultiShardSaver
from shardproof.checkpoint.save import _saver, _snapshot
from shardproof.testing.contracts._child import run_in_child
from tests.helpers.forking import returned


@pytest.fixture
def held(monkeypatch):
    """Let no shard be written before this is set."""
    may_go, real = threading.Event(), _saver.write_shard

    def write_shard(*arguments, **options):
        assert may_go.wait(30)
        return real(*arguments, **options)

    monkeypatch.setattr(_saver, "write_shard", write_shard)
    yield may_go
    may_go.set()


@pytest.fixture
def saver() -> MultiShardSaver:
    return MultiShardSaver(sync=False)


def loaded(prefix: Path) -> list[int]:
    return MultiShardLoader().load_shard(prefix, 0)["w"].tolist()


def test_what_is_saved_is_what_the_arrays_were(saver, tmp_path: Path, held) -> None:
    weights = np.arange(3)
    saving = saver.begin_shard(tmp_path / "m", 0, {"w": weights})
    weights += 10
    assert not saving.done()
    held.set()
    assert saving.result(30) == f"{tmp_path}/m_shard_0.shard"
    saver.save_metadata(tmp_path / "m", world_size=1)
    assert loaded(tmp_path / "m") == [0, 1, 2]


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_large_array_is_copied_in_parts(saver, tmp_path: Path, monkeypatch, order) -> None:
    monkeypatch.setattr(_snapshot, "_COPIED_BYTES", 64)
    weights = np.asarray(np.arange(1001 * 3).reshape(1001, 3), order=order)
    saver.begin_shard(tmp_path / "m", 0, {"w": weights, "empty": weights[:0], "one": weights[7, 1]})
    expected = weights.tolist()
    weights += 1
    saver.save_metadata(tmp_path / "m", world_size=1)
    assert loaded(tmp_path / "m") == expected


def test_an_interrupt_of_the_beginning_leaves_the_copy_alone(
    saver, tmp_path: Path, held, monkeypatch
) -> None:
    """The next one waits, though nobody has the handle: its copy takes the same memory."""
    begin = _saver.ShardSaving.begin

    def interrupted(saving, save) -> None:
        begin(saving, save)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_saver.ShardSaving, "begin", interrupted)
        with pytest.raises(KeyboardInterrupt):
            saver.begin_shard(tmp_path / "a", 0, {"w": np.arange(3)})
    threading.Timer(0.2, held.set).start()
    saver.begin_shard(tmp_path / "b", 0, {"w": np.zeros(3, int)})
    saver.save_metadata(tmp_path / "b", world_size=1)
    saver.save_metadata(tmp_path / "a", world_size=1)
    assert loaded(tmp_path / "a") == [0, 1, 2]


def test_where_no_thread_can_be_had_the_shard_is_saved_at_once(
    saver, tmp_path: Path, monkeypatch
) -> None:
    def refuse(_) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_saver.threading.Thread, "start", refuse)
    saving = saver.begin_shard(tmp_path / "m", 0, {"w": np.arange(3)})
    assert saving.done()
    monkeypatch.undo()
    saver.save_metadata(tmp_path / "m", world_size=1)
    assert loaded(tmp_path / "m") == [0, 1, 2]


def test_metadata_wait_for_the_shard(saver, tmp_path: Path, held) -> None:
    saver.begin_shard(tmp_path / "m", 0, {"w": np.arange(3)})
    threading.Timer(0.1, held.set).start()
    saver.save_metadata(tmp_path / "m", world_size=1)
    assert loaded(tmp_path / "m") == [0, 1, 2]


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_next_copy_is_in_the_same_memory(saver, tmp_path: Path, order) -> None:
    weights = np.asarray(np.arange(6).reshape(2, 3), order=order)
    kept = []
    for step in range(2):
        saver.begin_shard(tmp_path / str(step), 0, {"w": weights + step})
        saver.save_metadata(tmp_path / str(step), world_size=1, step=step)
        kept.append(saver._snapshots._kept["w"])
    assert kept[0] is kept[1]
    assert [loaded(tmp_path / str(step))[1] for step in range(2)] == [[3, 4, 5], [4, 5, 6]]


@pytest.mark.parametrize(
    "save",
    [
        lambda saver, prefix: saver.save_shard(prefix, 0, {"w": np.arange(3)}),
        lambda saver, prefix: saver.begin_shard(prefix, 0, {"w": np.arange(3)}),
        lambda saver, prefix: saver.save_metadata(prefix, world_size=1),
    ],
    ids=["save_shard", "begin_shard", "save_metadata"],
)
def test_a_failure_is_raised_by_the_next_save(saver, tmp_path: Path, save, caplog) -> None:
    (tmp_path / "file").touch()
    saving = saver.begin_shard(tmp_path / "file" / "m", 0, {"w": np.arange(3)})
    with pytest.raises(OSError, match="file"):
        save(saver, tmp_path / "m")
    assert "A shard was not saved" in caplog.text
    saver.save_shard(tmp_path / "m", 0, {"w": np.arange(3)})
    assert saving.done()


def test_a_failure_that_the_handle_raised_is_not_raised_again(saver, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    saving = saver.begin_shard(tmp_path / "file" / "m", 0, {"w": np.arange(3)})
    with pytest.raises(OSError, match="file"):
        saving.result()
    saver.save_shard(tmp_path / "m", 0, {"w": np.arange(3)})


@pytest.mark.parametrize(
    ("arrays", "error"), [({"w": "text"}, TypeError), ({"": np.arange(3)}, ValueError)]
)
def test_what_can_not_be_saved_is_refused_at_once(saver, tmp_path: Path, arrays, error) -> None:
    with pytest.raises(error, match="arrays"):
        saver.begin_shard(tmp_path / "m", 0, arrays)
    saver.save_shard(tmp_path / "m", 0, {"w": np.arange(3)})


def test_a_saver_can_be_sent_to_another_process(saver, tmp_path: Path) -> None:
    saver.begin_shard(tmp_path / "m", 0, {"w": np.arange(3)}).result()
    saver._settle()
    assert isinstance(pickle.loads(pickle.dumps(MultiShardSaver())), MultiShardSaver)


def test_a_forked_process_waits_for_no_save_of_its_parent(saver, tmp_path: Path, held) -> None:
    saver.begin_shard(tmp_path / "m", 0, {"w": np.arange(3)})
    assert returned(run_in_child(lambda: saver._settle() or "free", deadline=30)) == "free"


@pytest.mark.parametrize("algorithm", ["sha256", "sha256-tree"])
@pytest.mark.slow
def test_an_interpreter_that_ends_waits_for_the_save(tmp_path: Path, algorithm) -> None:
    script = f"""
        import numpy as np
        from shardproof.checkpoint import MultiShardSaver
        from shardproof.checkpoint.save import _saver
        import time
        write = _saver.write_shard
        _saver.write_shard = lambda *a, **k: (time.sleep(0.3), write(*a, **k))[1]
        saver = MultiShardSaver(algorithm={algorithm!r})
        saver.begin_shard({str(tmp_path / "m")!r}, 0, {{"w": np.arange(2**21)}})
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
    MultiShardSaver().save_metadata(tmp_path / "m", world_size=1)
    assert loaded(tmp_path / "m")[-1] == 2**21 - 1
