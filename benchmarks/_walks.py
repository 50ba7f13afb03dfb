"""Through which of our functions a second call goes, in one process: run by `house`, for a tree.

    PYTHONPATH=TREE/src python benchmarks/_walks.py

prints as JSON how many named functions, in how many files, each call enters, in whatever thread.
Lambdas, generator expressions, and what an import runs, are not counted.
"""

import functools
import http.server
import inspect
import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import shardproof
from shardproof import testing

_OURS = str(Path(shardproof.__file__).parent)
_FUNCTION = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS  # a class body has neither


class Walk:
    """Notes the code that is entered while it is on, in every thread that begins after it."""

    def __init__(self) -> None:
        self.entered: set[CodeType] = set()
        self.is_on = False
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_named = code.co_flags & _FUNCTION == _FUNCTION and not code.co_name.startswith("<")
        if self.is_on and event == "call" and is_named and code.co_filename.startswith(_OURS):
            self.entered.add(code)

    def of_second(self, call: Callable[[], object]) -> tuple[int, int]:
        """Return how many functions, in how many files, the second of two calls enters."""
        call()
        self.entered.clear()
        self.is_on = True
        call()
        self.is_on = False
        return len(self.entered), len({code.co_filename for code in self.entered})


def calls(base: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what is walked; each may be called twice."""
    numbers = iter(range(1000))
    whole = testing.write_layout(testing.Layout(n_shards=3), base / "whole")
    copies = iter(_copies(whole, base))
    yield "validate saev", lambda: shardproof.validate(whole)
    yield "seal", lambda: shardproof.seal(next(copies))

    def repair() -> None:
        copy = next(copies)
        (copy / "acts000001.bin").unlink()
        assert shardproof.repair(copy, str(whole)).ok

    yield "repair", repair
    handler = functools.partial(_Quiet, directory=str(whole))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/acts000000.bin"
        yield "fetch of a URL", lambda: shardproof.fetch(url, base / f"to-{next(numbers)}")
        server.shutdown()
    saver = shardproof.MultiShardSaver()

    def save() -> None:
        prefix = base / f"step-{next(numbers)}" / "model"
        prefix.parent.mkdir()
        saver.save_shard(prefix, 0, {"weight": np.zeros(10)}, step=1)
        saver.save_metadata(prefix, world_size=1, step=1)

    yield "save", save


def _copies(path: Path, base: Path) -> Iterator[Path]:
    for number in range(100):
        yield Path(shutil.copytree(path, base / f"copy-{number}"))


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    walk = Walk()
    with tempfile.TemporaryDirectory() as place:
        found = {name: walk.of_second(call) for name, call in calls(Path(place))}
    sys.setprofile(None)
    print(json.dumps(found))
