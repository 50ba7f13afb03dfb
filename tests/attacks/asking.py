"""Cases that ask one server, many at once, each under a path of its own."""

import concurrent.futures
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.attacks.raw_server import RawServer, Request, Step
from tests.attacks.tally import Harm, Tally

NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
MOST_TOLD = 20_000
"""Characters of one error."""


class Asking:
    """Runs cases; what they are, and how they are answered, subclasses say."""

    n_at_once: ClassVar[int] = 6

    def __init__(self, tally: Tally, cases: Sequence[Any], root: Path) -> None:
        self._tally, self.cases, self._root = tally, cases, root
        self._lock = threading.Lock()
        self.url = ""

    def answer(self, number: int, request: Request) -> Iterable[Step]:
        """Answer what a case asks."""
        raise NotImplementedError

    def ask(self, number: int, case: Any, path: Path) -> None:
        """Run a case, in a directory of its own."""
        raise NotImplementedError

    def run(self) -> list[Request]:
        """Run all; return what was asked."""
        pool = concurrent.futures.ThreadPoolExecutor(self.n_at_once, "attack")
        with RawServer(self._respond) as server, pool:
            self.url = f"http://127.0.0.1:{server.port}"
            list(pool.map(self._run_one, range(len(self.cases))))
        return server.requests

    def _respond(self, request: Request) -> Iterable[Step]:
        if not request.case.isdigit():  # a redirect that leads somewhere else
            return [NOT_FOUND]
        return self.answer(int(request.case), request)

    def _run_one(self, number: int) -> None:
        path = self._root / str(number)
        path.mkdir()
        self.ask(number, self.cases[number], path)
        with self._lock:
            self._tally.count()

    def harm(self, kind: Harm, case: object, what: str) -> None:
        with self._lock:
            self._tally.harm(kind, f"{case}: {what}")

    def judge_text(self, case: object, text: str) -> None:
        """Note an error that floods or paints the terminal."""
        if len(text) > MOST_TOLD or not text.replace("\n", "").isprintable():
            self.harm("wrong class", case, f"{len(text)} characters: {text[:300]!r}")
