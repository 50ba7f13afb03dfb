"""Four times the text is four times the work, whatever it says: by the worst of each rule.

Work is counted, not timed: calls of functions, and what those of them go through that look at a
whole list or text. What is counted for a text that is folded is the square of its length, which is
what marks on one letter take.
"""

import contextlib
import json
import math
import shutil
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shardproof
from shardproof import testing
from shardproof.datasets.rows._card import configs_of, told_default, yaml_block
from shardproof.datasets.rows._file_names import meant
from shardproof.datasets.rows._splits import split_files
from shardproof.errors import ShardproofError
from shardproof.fetching.sources._source import RemoteFile
from shardproof.fetching.transfer._partial_file import extents_in, provenance_in
from shardproof.receipts import claims_in
from shardproof.receipts._input_files import files_below
from shardproof.staging._proofs import Proofs as Sidecar
from tests.attacks.targets import TARGETS, Target

Case = Callable[[Path, int], Callable[[], object]]
TARGET = {target.name: target for target in TARGETS}

FEW, MANY = 100, 400
MOST = 5.0 * MANY / FEW / 4

WHOLE = {"count", "index", "remove", "insert", "find", "rfind", "replace", "copy", "sort"}
"""Methods that go through all that they are a method of."""


def work_of(call: Callable[[], object]) -> int:
    total = 0

    def hear(_frame: object, event: str, called: Any) -> None:
        nonlocal total
        if event == "c_call" and called.__name__ in WHOLE:
            with contextlib.suppress(TypeError):
                total += len(called.__self__)
        total += event in {"call", "c_call"}

    def normalize(form: str, text: str) -> str:
        nonlocal total
        total += len(text) ** 2 // 1000
        return fold(form, text)

    fold, before = unicodedata.normalize, sys.getprofile()
    unicodedata.normalize = normalize
    threading.setprofile(hear)
    sys.setprofile(hear)
    try:
        call()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
        unicodedata.normalize = fold
    return total


def ends(call: Callable[[], object]) -> None:
    """Call it; whether it refuses what it reads is not the question."""
    with contextlib.suppress(ShardproofError, ValueError, OSError):
        call()


def marks(n: int) -> str:
    return "\u0315\u0300" * n


SAEV: dict[str, Callable[[int], Any]] = {
    "names": lambda n: [{"name": f"é{i}.bin", "n_examples": 1} for i in range(n)],
    "a name of marks": lambda n: [{"name": marks(9 * n), "n_examples": 1}],
    "names of marks": lambda n: [{"name": marks(50) + str(i), "n_examples": 1} for i in range(n)],
    "twins": lambda n: [
        {"name": "aA"[i % 2] + "é" * (i // 2 % 45), "n_examples": 1} for i in range(n)
    ],
    "nothing right": lambda n: [{"name": 1}] * n,
    "other fields": lambda n: [{"name": "a", "n_examples": 1} | {f"f{i}": i for i in range(n)}],
}

SPELLED: dict[str, Callable[[int], str]] = {
    "digits": lambda n: '[{"name":"a","n_examples":' + "1" * 50 * n + "}]",
    "nested lists": lambda n: "[" * 50 * n,
    "one key": lambda n: "[{" + '"name":"a",' * 20 * n + '"n_examples":1}]',
    "a key twice at the end": lambda n: (
        "[" + '{"name":"a","n_examples":1},' * n + '{"name":"a","name":"a","n_examples":1}]'
    ),
    "braces": lambda n: '[{"name":"' + "{" * 100 * n + '","name":"a","n_examples":1}]',
    "cut": lambda n: '[{"name":"' + "a" * 100 * n,
}

METADATA: dict[str, Callable[[int], dict[str, Any]]] = {
    "layers": lambda n: {"layers": list(range(n))},
    "base64": lambda n: {"data": "QUFB" * 100 * n},
    "fields": lambda n: {f"f{i}": "é" for i in range(n)},
    "a long text": lambda n: {"dtype": marks(10 * n)},
}


Change = Callable[[int, dict[str, Any]], Any]
"""What a file of JSON holds, of what it held."""


def grown(target: Target, file: str, change: Change) -> Case:
    """A file of a target, signed again where somebody could."""

    def prepare(base: Path, n: int) -> Callable[[], object]:
        root = target.make(base)
        text = (root / file).read_text()
        grown = change(n, {} if text.startswith("[") else json.loads(text))
        text = grown if isinstance(grown, str) else json.dumps(grown)
        (root / file).write_bytes(target.seal(text.encode(errors="surrogateescape")))
        return lambda: ends(lambda: [*target.read(root)])

    return prepare


def with_these(of: Callable[[int], dict[str, Any]]) -> Change:
    return lambda n, said: said | of(n)


def instead(of: Callable[[int], Any]) -> Change:
    return lambda n, _: of(n)


RECEIPT: dict[str, Callable[[int], dict[str, Any]]] = {
    "files": lambda n: {"files": {f"k{i}": {"path": f"é{i}"} for i in range(n)}},
    "one file": lambda n: {"files": {f"k{i}": {"path": "é"} for i in range(n)}},
    "kinds": lambda n: {"kinds": [f"k{i}" for i in range(n)]},
    "a message": lambda n: {"status": "failed", "error_message": marks(n)},
}

PLAN: dict[str, Callable[[int], dict[str, Any]]] = {
    "lines": lambda n: {
        "num_shards": n,
        "file_assignments": [{"shard_index": i, "files": [], "total_bytes": 0} for i in range(n)],
    },
    "files": lambda n: {
        "file_assignments": [
            {"shard_index": i, "files": [{"path": f"é{j}"} for j in range(n * i)], "total_bytes": 0}
            for i in range(2)
        ]
    },
    "constraints": lambda n: {"determinism_constraints": {f"c{i}": marks(5) for i in range(n)}},
    "pins": lambda n: {"pins": [{}] * n},
}


def many_receipts(base: Path, n: int) -> Path:
    """A plan of so many shards, of which each has a receipt that says the same."""
    root = testing.write_layout(testing.Layout(n_shards=2, format="receipts"), base)
    plan = json.loads((root / "plan.json").read_text())
    (root / "plan.json").write_text(json.dumps(plan | {"num_shards": n}))
    said = json.loads((root / "receipts" / "shard_000000.json").read_text())
    for i in range(n):
        receipt = said | {"shard_index": i}
        (root / "receipts" / f"shard_{i:06}.json").write_text(json.dumps(receipt))
    return root


def one_output(base: Path, n: int) -> Callable[[], object]:
    root = many_receipts(base, n // 4)
    return lambda: ends(lambda: [*TARGET["plan of many fields"].read(root)])


def shared_outputs(base: Path, n: int) -> Callable[[], object]:
    """Two receipts that name the same outputs, which are many."""
    root = testing.write_layout(testing.Layout(n_shards=2, format="receipts"), base)
    for path in (root / "receipts").iterdir():
        said = json.loads(path.read_text())
        said["files"] |= {f"k{i}": {"path": f"a{i}", "bytes": 1} for i in range(n // 4)}
        said["files"] |= {kind: {"path": kind, "bytes": 1} for kind in ("bin", "idx")}
        path.write_text(json.dumps(said))
    store = shardproof.ReceiptStore(root)
    return lambda: (
        ends(lambda: [*TARGET["receipts"].read(root)]),
        *(store.is_completed(index) for index in (0, 1, 0)),
    )


def claims(base: Path, n: int) -> Callable[[], object]:
    root = testing.write_layout(testing.Layout(n_shards=2, format="receipts"), base)
    (root / "claims").mkdir(exist_ok=True)
    for i in range(n):
        (root / "claims" / f"shard_{i:06}.json").write_text("{}")
    return lambda: [*claims_in(str(root))]


def tensor(name: str, **changes: Any) -> dict[str, Any]:
    said = {"name": name, "dtype": "uint8", "shape": [1], "offset": 0, "size": 1, "digest": None}
    return said | changes


def of_shard(tensors: list[dict[str, Any]]) -> dict[str, Any]:
    said = {"rank": 0, "file": "model_shard_0.shard", "file_size": 1, "checksum": ""}
    return {"shards": [said | {"tensors": tensors}]}


def unsigned(said: dict[str, Any]) -> dict[str, Any]:
    """Metadata of one rank, whose checksum is to come at the end."""
    return {name: value for name, value in said.items() if name != "checksum"} | {"world_size": 1}


CHECKPOINT: dict[str, Callable[[int], dict[str, Any]]] = {
    "tensors": lambda n: of_shard([tensor(f"é{i}") for i in range(n)]),
    "one tensor": lambda n: of_shard([tensor("é")] * n),
    "shapes": lambda n: of_shard([tensor(f"{i}", shape=[2**62] * 32) for i in range(n)]),
    "digests": lambda n: of_shard([tensor("a", digest="xxh3-128:" + "g" * 99 * n)]),
    "ranks": lambda n: {"world_size": n, "shards": of_shard([tensor("a")])["shards"] * n},
}


def entry(begin: int = 0, **changes: Any) -> dict[str, Any]:
    return {"dtype": "U8", "shape": [1], "data_offsets": [begin, begin + 1]} | changes


HEADER: dict[str, Callable[[int], dict[str, Any]]] = {
    "tensors": lambda n: {f"é{i}": entry(i) for i in range(n)},
    "tensors in one place": lambda n: {f"é{i}": entry() for i in range(n)},
    "shapes": lambda n: {f"{i}": entry(shape=[2**62] * 32) for i in range(n)},
    "texts": lambda n: {"__metadata__": {f"t{i}": marks(5) for i in range(n)}, "a": entry()},
}


INDEX: dict[str, Callable[[int], dict[str, Any]]] = {
    "files": lambda n: {"weight_map": {f"t{i}": f"{i}.safetensors" for i in range(n)}},
    "tensors": lambda n: {"weight_map": {f"t{i}": "model.safetensors" for i in range(n)}},
    "names": lambda n: {"weight_map": {f"t{i}": marks(50) + str(i) for i in range(n)}},
}


def records(base: Path, n: int) -> Callable[[], object]:
    base.mkdir()
    source = {"source": marks(n), "resource": "r", "name": "x"}
    lines = b"".join(b"%d %d %s\n" % (i, i + 1, b"a" * 32) for i in range(n))
    (base / "part").write_bytes(json.dumps(source).encode() + b"\n" + lines + b"9" * 50 * n)
    stamp = {"name": "x", "source": [1], "copy": [1], "digest": "g" * 99}
    (base / ".shardproof-stage.jsonl").write_text(f"{json.dumps(stamp)}\n" * n + "x" * n)

    def read() -> None:
        provenance_in(str(base / "part"))
        assert len([*extents_in(str(base / "part"))]) == n
        Sidecar(str(base)).read()

    return read


CARD: dict[str, Callable[[int], str]] = {
    "configurations": lambda n: configs("{{config_name: c{i}, data_files: a.parquet}}", n),
    "a name twice": lambda n: configs("{{config_name: c, data_files: a.parquet}}", n),
    "one directory": lambda n: configs("{{config_name: c{i}, data_dir: d}}", n),
    "splits": lambda n: (
        "configs:\n- config_name: c\n  data_files:\n"
        + "".join(f"  - {{split: s{i}, path: a.parquet}}\n" for i in range(n))
    ),
    "infos": lambda n: "dataset_info:\n" + "".join(f"- config_name: c{i}\n" for i in range(n)),
    "nesting": lambda n: "configs: " + "[" * 20 * n,
    "sixties": lambda n: "configs: 1" + ":1" * 99 * n,
    "a text": lambda n: 'configs: "' + "\\u0301" * 20 * n + '"',
    "spaces": lambda n: "configs:" + " " * 99 * n,
}


def configs(each: str, n: int) -> str:
    return "configs:\n" + "".join(f"- {each.format(i=i)}\n" for i in range(n))


def card(base: Path, text: str) -> Callable[[], object]:
    files = [RemoteFile(f"d/{i}.parquet") for i in range(100)]
    url = "hf://datasets/org/name"

    def read() -> None:
        texts = {"README.md": yaml_block(f"---\n{text}\n---\n")}
        ends(lambda: told_default(texts, url))
        found = []
        ends(lambda: found.extend(configs_of(texts, url)))
        if found:
            ends(lambda: split_files(files, "train", found[0].name, url, found))

    return read


def many_files_of(base: Path, n: int) -> Callable[[], object]:
    """Configurations without files of their own, as many as files."""
    text = configs("{{config_name: c{i}}}", n)
    files = [RemoteFile(f"d/{i}.parquet") for i in range(n)]
    found = configs_of({"README.md": text}, "hf://x")
    return lambda: ends(lambda: split_files(files, "train", "c0", "hf://x", found))


def nested_directories(base: Path, n: int) -> Callable[[], object]:
    """Directories of configurations inside each other, and files that are in all of them."""
    depth = math.isqrt(16 * n)
    directories = ("/".join("a" * (i + 1)) for i in range(depth))
    text = "configs:\n" + "".join(
        f"- {{config_name: c{i}, data_dir: {directory}}}\n"
        for i, directory in enumerate(directories)
    )
    files = [RemoteFile("a/" * depth + f"{i}.parquet") for i in range(depth)]
    found = configs_of({"README.md": text}, "hf://x")
    return lambda: ends(lambda: split_files(files, "train", "c0", "hf://x", found))


GLOBS: dict[str, Callable[[int], tuple[str, list[str]]]] = {
    "stars": lambda n: ("*a" * (n // 8) + "b", ["a" * 250]),
    "sets": lambda n: ("*[ab]" * (n // 8) + "c", ["a" * 250]),
    "levels": lambda n: ("**/a/" * 9 + "b", ["a/" * n + "c"]),
    "many levels": lambda n: ("**/a/" * n + "b", ["a/" * 9 + "c"]),
    "files": lambda n: ("**/*a*", [f"{i}/a" for i in range(n)]),
}


def below(base: Path, n: int) -> Callable[[], object]:
    (base / ("a/" * 6)).mkdir(parents=True)
    (base / "a/b").touch()
    return lambda: files_below(str(base), "**/" * (n // 50) + "*")


GROWN: dict[str, tuple[str, str, dict[str, Change]]] = {
    "shards": ("saev", "shards.json", {k: instead(of) for k, of in (SAEV | SPELLED).items()}),
    "metadata": ("saev", "metadata.json", {k: with_these(of) for k, of in METADATA.items()}),
    "receipt": (
        *("receipts", "receipts/shard_000000.json"),
        {k: with_these(of) for k, of in RECEIPT.items()},
    ),
    "plan": ("receipts", "plan.json", {k: with_these(of) for k, of in PLAN.items()}),
    "checkpoint": (
        *("sealed", "model.metadata.json"),
        {k: lambda n, said, of=of: unsigned(said) | of(n) for k, of in CHECKPOINT.items()},
    ),
    "safetensors": ("header", "model.safetensors", {k: instead(of) for k, of in HEADER.items()}),
    "index": (
        *("index", "model.safetensors.index.json"),
        {k: instead(of) for k, of in INDEX.items()},
    ),
}


def all_cases() -> Iterator[tuple[str, Case]]:
    for room, (name, file, changes) in GROWN.items():
        for what, change in changes.items():
            yield f"{room}: {what}", grown(TARGET[name], file, change)
    for name, of in CARD.items():
        yield f"card: {name}", lambda base, n, of=of: card(base, of(n))
    for name, of in GLOBS.items():
        yield f"glob: {name}", lambda base, n, of=of: lambda: list(meant(*of(n)))
    for work in (one_output, shared_outputs, claims, records, below):
        yield work.__name__, work
    for work in (many_files_of, nested_directories):
        yield work.__name__, work


CASES = dict(all_cases())


def firsts_and_the_rest() -> Iterator[object]:
    """A parameter each, all but the first of each room for `tox -e exhaustive`."""
    seen = set[str]()
    for name in CASES:
        room = name.partition(":")[0]
        yield pytest.param(name, marks=[pytest.mark.exhaustive] * (room in seen))
        seen.add(room)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*firsts_and_the_rest()])
def test_four_times_the_text_is_four_times_the_work(name: str, tmp_path: Path) -> None:
    done = []
    for n in (FEW, MANY):
        base = tmp_path / "base"
        work = CASES[name](base, n)
        done.append(work_of(work))
        shutil.rmtree(base, ignore_errors=True)
    few, many = done
    assert many <= MOST * few, f"{few} for {FEW}, {many} for {MANY}"


def test_what_takes_the_square_is_seen() -> None:
    def counted(n: int) -> list[int]:
        names = ["a"] * n
        return [names.count(name) for name in names]

    def folded(n: int) -> list[str]:
        return [unicodedata.normalize("NFC", marks(10 * n))]

    def compared(n: int) -> list[bool]:
        names = ["a"] * n
        return [name.startswith(other) for name in names for other in names]

    for work in (counted, folded, compared):
        few, many = (work_of(lambda n=n, work=work: work(n)) for n in (FEW, MANY))
        assert many > MOST * few
