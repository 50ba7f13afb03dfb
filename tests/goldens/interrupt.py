"""Interrupt the real writers at each change that they make, and ask the real readers then.

::

    python -m tests.goldens.interrupt CASE... --to tests/formats/data/interrupted

Run it with an interpreter that has the libraries; without a case it does those whose libraries are
there. Each state of a directory before a system call that may change a file is put aside, and those
with a part of what a call wrote. A file for each case records what the reader says of each, and
what makes it anew: how many bytes of which golden file are there, or bytes that are in none.
"""

import base64
import hashlib
import itertools
import json
import multiprocessing
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from tests.goldens.readers import READERS
from tests.goldens.writers import CASES, asked
from tests.helpers.killing import Begin, stop_at_every_change

HERE = Path(__file__).parent
RECORDS = HERE.parent / "formats/data/interrupted"
PATIENCE = 60
"""Seconds after which a reader hangs."""

MOST = 8
"""States that are recorded of those in which the same files are there."""

Tree = dict[str, bytes | str]
"""What files are in a directory, and where links lead; of directories the empty ones: `name/`."""


class State(NamedTuple):
    """What is left of an interrupted writer, and what the reader says of it."""

    tree: Tree
    said: str  # how many samples it reads, or why it reads none


def tree_of(root: Path) -> Tree:
    found: Tree = {}
    for folder, directories, files in os.walk(root):
        links = [name for name in directories if os.path.islink(os.path.join(folder, name))]
        for name in files + links:
            path = Path(folder, name)
            try:
                data = os.readlink(path) if path.is_symlink() else path.read_bytes()
            except FileNotFoundError:  # another thread of the writer took it away
                continue
            found[path.relative_to(root).as_posix()] = data
        if not files and not directories and Path(folder) != root:
            found[Path(folder).relative_to(root).as_posix() + "/"] = b""
    return dict(sorted(found.items()))


def make(tree: Tree, root: Path) -> Path:
    root.mkdir(parents=True)
    for name, data in tree.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(data, str):
            path.symlink_to(data)
        else:
            path.write_bytes(data)
    return root


def trees_of(name: str) -> list[Tree]:
    """Return the states of a directory while its writer writes it, the whole one last."""
    with tempfile.TemporaryDirectory(prefix="interrupted-") as place:
        made = Path(place, name)
        made.mkdir()
        seen: list[Tree] = []

        def act(begin: Begin) -> None:
            silence()
            begin()
            CASES[name].write(made)

        def look() -> None:
            tree = tree_of(made) or tree_of(Path(f"{made}.incomplete"))
            if not seen or tree != seen[-1]:
                seen.append(tree)

        stop_at_every_change(act, look, is_only_child=True)
        look()
    return distinct(with_parts(seen))


def silence() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)


def with_parts(trees: Sequence[Tree]) -> Iterator[Tree]:
    """Put between two those with half, up to a line's end, and nearly all of what a file got."""
    for before, after in itertools.pairwise(trees):
        yield before
        for name, data in after.items():
            old = before.get(name)
            both = isinstance(data, bytes) and isinstance(old, bytes)
            if both and len(data) > len(old) + 1 and data.startswith(old):
                half = (len(old) + len(data)) // 2
                line = data.rfind(b"\n", len(old), half) + 1
                yield from (before | {name: data[:end]} for end in (line, half, -1) if end)
    yield trees[-1]


def distinct(trees: Iterable[Tree]) -> list[Tree]:
    *others, last = trees
    found: list[Tree] = []
    for tree in others:
        if tree not in [*found, last]:
            found.append(tree)
    return [*found, last]


class Answer(NamedTuple):
    """What a reader says, with a digest of all that it read; None where it refuses."""

    said: str
    digest: str | None = None


def serve(name: str, questions: Connection) -> None:
    silence()
    while True:
        root = Path(questions.recv())
        try:
            read = sorted(map(repr, READERS[name](root)))
            digest = hashlib.sha256("\n".join(read).encode()).hexdigest()
            answer = Answer(f"reads {len(read)}", digest)
        except BaseException as error:
            words = f"{type(error).__name__}: {error}".replace(str(root), "ROOT")
            answer = Answer((words.splitlines()[0])[:100])
        questions.send(answer)


class Reader:
    """A process that reads with the real library; another one after it crashed or hung."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._questions, other = context.Pipe()
        self._process = context.Process(target=serve, args=(self._name, other))
        self._process.start()
        other.close()

    def stop(self) -> None:
        self._process.kill()
        self._process.join()

    def ask(self, root: Path) -> Answer:
        self._questions.send(str(root))
        try:
            if self._questions.poll(PATIENCE):
                return Answer(*self._questions.recv())
            answer = Answer("it hangs")
        except EOFError:
            self._process.join()
            answer = Answer(f"it crashes: {self._process.exitcode}")
        self.stop()
        self._start()
        return answer


def states_of(name: str) -> list[State]:
    trees = trees_of(name)
    reader = Reader(name)
    try:
        with tempfile.TemporaryDirectory(prefix="interrupted-") as place:
            roots = [make(tree, Path(place, str(n), name)) for n, tree in enumerate(trees)]
            answers = [reader.ask(root) for root in reversed(roots)][::-1]
    finally:
        reader.stop()
    whole = answers[-1]
    if whole.digest is None:
        raise SystemExit(f"{name}: its own reader refuses it: {whole.said}")
    others = {answer.said for answer in answers if answer.digest != whole.digest}
    words = {whole.said: f"{whole.said}, not what was written"} if whole.said in others else {}
    return [
        State(tree, answer.said if answer == whole else words.get(answer.said, answer.said))
        for tree, answer in zip(trees, answers, strict=True)
    ]


def thinned(states: Sequence[State]) -> Iterator[State]:
    """Leave a few of those in which the same files are there, and the reader says the same."""
    for _, same in itertools.groupby(states, lambda state: ([*state.tree], state.said)):
        [*run] = same
        step = max(1, (len(run) - 1) / (MOST - 1))
        yield from (run[round(n * step)] for n in range(min(MOST, len(run))))


def contents_of(path: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree_of(path).items() if isinstance(data, bytes)}


def record_of(name: str, states: Sequence[State], golden: Mapping[str, bytes]) -> dict[str, Any]:
    """Return what makes the states anew, each by its differences from the one before."""
    others: list[bytes] = []

    def source_of(name: str, data: bytes | str) -> object:
        if isinstance(data, str):
            return data
        if golden.get(name, b"").startswith(data):
            return len(data)
        of = [each for each, whole in golden.items() if whole.startswith(data)]
        of += [number for number, whole in enumerate(others) if whole.startswith(data)]
        return [of[0], len(data)]

    items = {item for state in states for item in state.tree.items()}
    every = [(file, data) for file, data in items if isinstance(data, bytes)]
    for file, data in sorted(every, key=lambda each: (-len(each[1]), each)):
        known = [golden.get(file, b""), *golden.values(), *others]
        if not any(whole.startswith(data) for whole in known):
            others.append(data)
    listed = []
    before = State({}, "")
    for state in states:
        changes = {file: None for file in before.tree if file not in state.tree}
        changes |= {
            file: source_of(file, data)
            for file, data in state.tree.items()
            if before.tree.get(file) != data
        }
        listed.append([changes] if state.said == before.said else [changes, state.said])
        before = state
    packed = [base64.b64encode(zlib.compress(data, 9)).decode() for data in others]
    return {"writer": CASES[name].writer(), "others": packed, "states": listed}


def states_in(record: Mapping[str, Any], golden: Mapping[str, bytes]) -> Iterator[State]:
    others = [zlib.decompress(base64.b64decode(packed)) for packed in record["others"]]
    tree: Tree = {}
    said = ""
    for changes, *words in record["states"]:
        for name, source in changes.items():
            tree.pop(name, None)
            if isinstance(source, str):
                tree[name] = source
            elif source is not None:
                of, size = source if isinstance(source, list) else (name, source)
                whole = others[of] if isinstance(of, int) else golden.get(of, b"")
                tree[name] = whole[:size]
        said = words[0] if words else said
        yield State(dict(sorted(tree.items())), said)


def write(name: str, to: Path) -> int:
    """Record a case; return how many states it has."""
    states = [*thinned(states_of(name))]
    golden = contents_of(HERE / name)
    record = record_of(name, states, golden)
    assert [*states_in(record, golden)] == states
    to.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(each) for each in record.pop("states"))
    text = json.dumps(record)[:-1] + f', "states": [\n{lines}\n]}}\n'
    (to / f"{name}.json").write_text(text)
    return len(states)


def main() -> None:
    names, to = asked(__doc__, READERS, RECORDS)
    for name in names:
        print(name, write(name, to))


if __name__ == "__main__":
    main()
