"""A small store of receipts that is right as far as a model goes, to plant bugs in.

It knows nothing of shardproof, and its receipts and claims are files of its own kind.
"""

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shardproof.testing.contracts.stateful import ReceiptsMachine

STALE_AFTER = 50.0


class NaiveStore:
    """Whose turn it is stands in ``<index>.claim``, what is done in ``<index>.receipt``."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self.path = path
        self.clock = clock
        self.n_shards = int((path / "n_shards").read_text())
        self.seen: dict[int, tuple[str, float]] = {}

    def pending(self) -> list[int]:
        return [index for index in range(self.n_shards) if not self.is_completed(index)]

    def is_completed(self, index: int) -> bool:
        receipt = self.receipt(index)
        return receipt.get("status") == "completed" and self.is_there(receipt.get("sizes"))

    def receipt(self, index: int) -> dict[str, Any]:
        try:
            receipt = json.loads((self.path / f"{index}.receipt").read_text())
        except (OSError, ValueError):
            return {}
        return receipt if isinstance(receipt, dict) else {}

    def is_there(self, sizes: dict[str, int] | None) -> bool:
        files = {path.name: path.stat().st_size for path in self.path.iterdir()}
        return bool(sizes) and all(files.get(name) == size for name, size in sizes.items())

    def claim(self, index: int) -> "NaiveWork | None":
        if self.is_completed(index):
            return None
        file = self.path / f"{index}.claim"
        if file.exists() and not self.may_take_over(index, file.read_text()):
            return None
        return self.work(index)

    def may_take_over(self, index: int, token: str) -> bool:
        seen, since = self.seen.get(index, ("", 0.0))
        if seen != token:
            self.seen[index] = token, self.clock()
            return False
        return self.clock() - since >= STALE_AFTER

    def work(self, index: int) -> "NaiveWork":
        return NaiveWork(self, index)


class NaiveWork:
    def __init__(self, store: NaiveStore, index: int) -> None:
        self.store = store
        self.token = secrets.token_hex(4)
        self.file = store.path / f"{index}.claim"
        self.receipt = store.path / f"{index}.receipt"
        self.names: list[str] = []
        self.file.write_text(self.token)

    def record(self, **said: object) -> None:
        self.receipt.write_text(json.dumps(said))

    def holds(self) -> bool:
        return self.file.exists() and self.file.read_text() == self.token

    def begin(self) -> bool:
        if self.holds():
            self.record(status="started", sizes={})
            return True
        return False

    def place(self, name: str) -> Path:
        return self.store.path / f"{name}.{self.token}"

    def write(self, name: str, content: bytes) -> None:
        self.names.append(name)
        self.place(name).write_bytes(content)

    def complete(self) -> bool:
        if self.holds():
            self.publish()
            return True
        return False

    def publish(self) -> None:
        for name in self.names:
            self.place(name).replace(self.store.path / name)
        sizes = {name: (self.store.path / name).stat().st_size for name in self.names}
        self.record(status="completed", sizes=sizes)
        self.file.unlink(missing_ok=True)

    def fail(self) -> None:
        if self.holds():
            self.record(status="failed")
            self.file.unlink()


class NaiveMachine(ReceiptsMachine):
    """The machine over this store: what a project writes to try its own."""

    stale_after = STALE_AFTER
    store: type[NaiveStore] = NaiveStore

    def new_plan(self, base: Path, n_shards: int, seed: int) -> Path:
        path = base / str(seed)
        path.mkdir()
        (path / "n_shards").write_text(str(n_shards))
        return path

    def open_store(self, path: Path, clock: Callable[[], float]) -> NaiveStore:
        return self.store(path, clock)

    def claim(self, store: NaiveStore, index: int) -> NaiveWork | None:
        return store.claim(index)

    def begin(self, work: NaiveWork) -> bool:
        return work.begin()

    def write(self, work: NaiveWork, name: str, content: bytes) -> None:
        work.write(name, content)

    def complete(self, work: NaiveWork) -> bool:
        return work.complete()

    def fail(self, work: NaiveWork, error: BaseException) -> None:
        work.fail()

    def crash(self, work: NaiveWork) -> None:
        pass

    def receipt_file(self, path: Path, index: int) -> Path:
        return path / f"{index}.receipt"
