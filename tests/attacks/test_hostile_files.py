"""Each file that the product reads, spoiled in every way: it is refused in words of the product.

A reader may say that a file is wrong, or that the file system failed, or find nothing wrong in it.
It may not end in any other exception, take two seconds of a processor or half a gigabyte, or say
anything that moves a cursor or begins a line of its own.
"""

import contextlib
import hashlib
import json
import os
import pickle
import resource
import shutil
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import shardproof
from shardproof import testing
from shardproof._base import holds
from shardproof.checkpoint import MultiShardLoader, from_safetensors, to_safetensors
from shardproof.datasets.rows._card import configs_of, told_default
from shardproof.datasets.rows._parquet import row_count
from shardproof.datasets.tokens._token_files import IDS, read_header
from shardproof.errors import ShardproofError
from shardproof.fetching.cache._proofs import ProofFiles
from shardproof.fetching.sources import open_source
from shardproof.fetching.transfer import Limits
from shardproof.fetching.transfer._partial_file import extents_in, provenance_in
from shardproof.receipts import claims_in
from shardproof.staging._proofs import Proofs as Sidecar
from tests.attacks.mutations import FORGED, mutated
from tests.attacks.tally import Tally

PATIENCE = 2  # seconds of a processor, for one file
MEMORY = 2**29  # of which most is room for the stacks of threads, 8 MiB each
LONGEST = 2**16  # characters of all that is said of one file

Read = Callable[[Path], Iterator[str]]


class Target(NamedTuple):
    """What is attacked."""

    name: str
    make: Callable[[Path], Path]
    """Make what is read, below a directory; returns where."""
    files: Sequence[str]
    """The files in it that are spoiled, one at a time."""
    read: Read
    """Read it, and yield all that is said about it."""
    seal: Callable[[bytes], bytes] = lambda data: data
    """Make good again what whoever spoils a file can make good, such as a checksum."""
    patience: float = PATIENCE
    memory: int = MEMORY


def saev(base: Path) -> Path:
    return testing.write_layout(testing.Layout(n_shards=2), base)


def read_saev(root: Path) -> Iterator[str]:
    for load in (shardproof.Metadata.load, shardproof.ShardInfo.load):
        yield from said_by(lambda load=load: str(load(root)) and "")
    yield from validated(root)


def validated(root: Path) -> Iterator[str]:
    report = shardproof.validate(root, level="valid", workers=1)
    yield str(report)
    yield from (f"{finding.expected} {finding.found}" for finding in report.findings)
    json.dumps(report.to_dict(), allow_nan=False).encode()


def receipts(base: Path) -> Path:
    return testing.write_layout(testing.Layout(n_shards=2, format="receipts"), base)


def read_receipts(root: Path) -> Iterator[str]:
    store = shardproof.ReceiptStore
    yield from said_by(lambda: list_of(store(root).verdicts(pending=True, level="valid")))
    yield from validated(root)


def read_claims(root: Path) -> Iterator[str]:
    assert [index for index, _ in claims_in(str(root))] == [1]
    yield from said_by(lambda: claimed(root))


def claimed(root: Path) -> str:
    """How a claim ends; all that it leaves is taken away again."""
    try:
        shardproof.ReceiptStore(root).claim(1).abandon()
    finally:
        for path in (root / "claims").iterdir():
            if path.name != CLAIM:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return ""


CLAIM = "shard_000001.json"


def list_of(values: Any) -> str:
    return "; ".join(getattr(value, "reason", value) for value in values)


def claims(base: Path) -> Path:
    root = testing.write_layout(testing.Layout(n_shards=2, format="receipts", absent=[1]), base)
    claim = {
        "token": "0" * 32,
        "owner": "uid 1 on host, process 1",
        "process": "a/b/1/2",
        "since": 1.7e9,
        "stale_after": 300.0,
        "beat": 3,
        "note": {"x": 1},
    }
    (root / "claims").mkdir(exist_ok=True)
    (root / "claims" / CLAIM).write_text(json.dumps(claim))
    return root


def checkpoint(base: Path) -> Path:
    return Path(testing.write_layout(testing.Layout(format="checkpoint"), base / "model")).parent


def read_checkpoint(root: Path) -> Iterator[str]:
    prefix = root / "model"
    loader = MultiShardLoader(workers=1)
    yield from said_by(lambda: str(loader.load_metadata(prefix)) and "")
    yield from said_by(lambda: str(len(loader.load_shard(prefix, 0))))
    yield from validated(root)


def resealed(data: bytes) -> bytes:
    """Metadata end with the checksum of what is before it."""
    body = data.rpartition(b"sha256:")[0] or data.rstrip(b"}\n")
    if not body.endswith(b'"checksum":"'):
        body = body.rstrip(b"}") + b',"checksum":"'
    return body + b"sha256:" + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def safetensors(base: Path) -> Path:
    to_safetensors(checkpoint(base / "from") / "model", base / "files")
    return base / "files"


def read_safetensors(root: Path) -> Iterator[str]:
    into = root.parent / "into"
    shutil.rmtree(into, ignore_errors=True)
    yield from said_by(lambda: str(from_safetensors(root, into / "model")))


def with_length(data: bytes) -> bytes:
    """The header of a file of safetensors begins with its length."""
    return struct.pack("<Q", len(data)) + data


def header(base: Path) -> Path:
    base.mkdir(exist_ok=True)
    entry = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
    said = {"a": entry, "b": entry | {"data_offsets": [16, 32]}, "__metadata__": {"step": "1"}}
    (base / "model.safetensors").write_text(json.dumps(said))
    return base


def npy(base: Path) -> Path:
    base.mkdir(exist_ok=True)
    np.save(base / "ids.npy", np.arange(40, dtype="<u8"))
    return base


def read_npy(root: Path) -> Iterator[str]:
    fd = os.open(root / "ids.npy", os.O_RDONLY)
    try:
        yield str(read_header(fd, os.fstat(fd).st_size, IDS))
    finally:
        os.close(fd)


CARD = """\
---
language: [en]
dataset_info:
  - config_name: en
    features: [{name: text, dtype: string}]
configs:
  - config_name: en
    default: true
    data_files:
      - split: train
        path: ["en/train-*.parquet", "en/more/**"]
      - {split: test, path: en/test.parquet}
  - config_name: de
    data_dir: de
---
# Text
"""


def card(base: Path) -> Path:
    base.mkdir(exist_ok=True)
    (base / "README.md").write_text(CARD.split("---\n")[1])
    return base


def read_card(root: Path) -> Iterator[str]:
    texts = {"README.md": (root / "README.md").read_bytes().decode(errors="replace")}
    url = "hf://datasets/org/name"
    yield from said_by(lambda: repr(told_default(texts, url)))
    yield from said_by(lambda: str(len(configs_of(texts, url))))


def wide_plan(base: Path) -> Path:
    """A plan with all fields that it may have, and many that nobody knows."""
    root = receipts(base)
    path = root / "plan.json"
    more = {f"field{i}": {"a": [i, None, "b"]} for i in range(200)}
    more |= {"kinds": ["bin", "idx"], "pins": [], "config": {"a": {"b": [1]}}, "run_hash": "r"}
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    return root


def read_plan(root: Path) -> Iterator[str]:
    yield from said_by(lambda: str(shardproof.receipts.Plan.load(root)) and "")
    yield from read_receipts(root)


WORST = """\
configs:
- {config_name: "\\u0301\\u0301", data_dir: "a*[",
   data_files: [{split: a, path: ["**/**/*", "*?*?*["]}]}
- config_name: 1:59:59:59
  data_files: |
    a/**/b
    - c
  default: yes
- {config_name: !!str x, data_files: &a ["x"], more: *a}
dataset_info: {config_name: 0x_f, features: [[[[{a: 2001-01-01}]]]]}
"""


def worst_card(base: Path) -> Path:
    base.mkdir(exist_ok=True)
    (base / "README.md").write_text(WORST)
    return base


def parquet(base: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    base.mkdir(exist_ok=True)
    pq.write_table(pa.table({"text": ["a", "b"], "n": [1, 2]}), base / "x.parquet")
    return base


def read_parquet(root: Path) -> Iterator[str]:
    with contextlib.closing(open_source(f"file://{root}")) as source:
        yield str(row_count(source, source.stat("x.parquet", timeout=5), Limits()))


def records(base: Path) -> Path:
    base.mkdir(exist_ok=True)
    source = {
        "source": "https://h/x",
        "resource": "r",
        "name": "x",
        "size": 9,
        "digest": None,
        "identity": '"t"',
    }
    (base / "part").write_text(json.dumps(source))
    stamp = {"name": "x", "source": [1, 2, 3, 4], "copy": [1, 2, 3], "digest": None, "boot": "b"}
    (base / ".shardproof-stage.jsonl").write_text(f"\n{json.dumps(stamp)}\n")
    proof = {"name": "x", "size": 9, "mtime_ns": 1, "inode": 2}
    (base / "proof").write_text(json.dumps(proof))
    return base


def with_lines(data: bytes) -> bytes:
    """Lines as they follow in the record of a part, and in a sidecar."""
    return data + b"\n0 5 " + b"0" * 32 + b"\n5 9 " + b"a" * 32 + b"\n"


def read_records(root: Path) -> Iterator[str]:
    yield from said_by(lambda: str(provenance_in(str(root / "part")) and ""))
    yield from said_by(lambda: str(len([*extents_in(str(root / "part"))])))
    Sidecar(str(root)).read()
    ProofFiles(str(root)).of_file("proof")
    holds.observe(str(root / "proof"))


TARGETS = [
    Target("saev", saev, ["shards.json", "metadata.json"], read_saev),
    Target("receipts", receipts, ["plan.json", "receipts/shard_000000.json"], read_receipts),
    Target("plan of many fields", wide_plan, ["plan.json"], read_plan),
    Target("worst card", worst_card, ["README.md"], read_card),
    Target("claims", claims, [f"claims/{CLAIM}"], read_claims),
    Target("checkpoint", checkpoint, ["model.metadata.json"], read_checkpoint),
    Target("sealed", checkpoint, ["model.metadata.json"], read_checkpoint, resealed),
    Target("shard", checkpoint, ["model_shard_0.shard"], read_checkpoint),
    Target("index", safetensors, ["model.safetensors.index.json"], read_safetensors),
    Target("header", header, ["model.safetensors"], read_safetensors, with_length),
    Target("npy", npy, ["ids.npy"], read_npy),
    Target("card", card, ["README.md"], read_card),
    Target("parquet", parquet, ["x.parquet"], read_parquet),
    Target(
        "records", records, ["part", ".shardproof-stage.jsonl", "proof"], read_records, with_lines
    ),
]


def said_by(call: Callable[[], str]) -> Iterator[str]:
    """What a call returns, or how it ended, if that is documented."""
    try:
        yield call()
    except ShardproofError as error:
        yield str(error)
    except OSError as error:
        if error.errno is None:
            raise


def harms_of(messages: Sequence[str]) -> Iterator[str]:
    """What is wrong with that which was said."""
    text = "\n".join(messages)
    if len(text) > LONGEST:
        yield f"{len(text)} characters are said"
    if not all(character.isprintable() or character == "\n" for character in text):
        yield f"a control character is said: {ascii(text)[:300]}"
    if any(line.startswith(FORGED) for line in text.split("\n")):
        yield f"a line is forged: {ascii(text)[:300]}"


def outcome_of(read: Read, root: Path) -> list[str]:
    """The harms of one file."""
    try:
        messages = [said for part in said_by_all(read, root) for said in part]
        return [*harms_of(messages)]
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return [f"{type(error).__name__} in {last.filename}:{last.lineno}: {ascii(error)[:200]}"]


def said_by_all(read: Read, root: Path) -> Iterator[list[str]]:
    yield [*said_by(lambda: "\n".join(read(root)))]


def cases_of(target: Target, n: int) -> list[tuple[str, int]]:
    return [(file, seed) for seed in range(n // len(target.files)) for file in target.files]


def run(target: Target, read: Read, cases: Sequence[tuple[str, int]], base: Path) -> Iterator[str]:
    """Yield the harms of all cases; in children, whom the kernel ends when one takes too long."""
    root = target.make(base)
    done = 0
    while done < len(cases):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            in_child(target, read, cases[done:], root, writer)
        os.close(writer)
        with open(reader, "rb") as pipe:
            while (found := next_of(pipe)) is not None:
                done += 1
                yield from (f"{target.name}, {cases[done - 1]}: {harm}" for harm in found)
        _, status = os.waitpid(child, 0)
        assert not os.WIFEXITED(status) or not status, f"the harness broke: {cases[done]}"
        if status:
            yield f"{target.name}, {cases[done]}: ended by signal {os.WTERMSIG(status)}"
            done += 1


def next_of(pipe: Any) -> list[str] | None:
    try:
        return pickle.load(pipe)
    except EOFError:
        return None


def in_child(
    target: Target, read: Read, cases: Sequence[tuple[str, int]], root: Path, writer: int
) -> None:
    try:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        whole = {file: (root / file).read_bytes() for file in target.files}
        room = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        most = room + target.memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        with open(writer, "wb") as pipe:
            for file, seed in cases:
                (root / file).write_bytes(target.seal(mutated(whole[file], seed)))
                signal.setitimer(signal.ITIMER_PROF, target.patience)
                found = outcome_of(read, root)
                signal.setitimer(signal.ITIMER_PROF, 0)
                (root / file).write_bytes(whole[file])
                pickle.dump(found, pipe)
                pipe.flush()
        os._exit(0)
    finally:
        traceback.print_exc(file=sys.__stderr__)
        os._exit(1)


def note(tally: Tally, harm: str) -> None:
    if "ended by signal" in harm:
        tally.harm("hang", harm)
    elif "forged" in harm:
        tally.harm("lie", harm)
    else:
        tally.harm("wrong class", harm)


@pytest.mark.attack("hostile files")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_spoiled_file_is_refused_in_our_words(
    target: Target, tmp_path: Path, tally: Tally
) -> None:
    cases = cases_of(target, 10_000)
    chosen = tally.sample(cases, 250)
    for harm in run(target, target.read, chosen, tmp_path):
        note(tally, harm)
    tally.count(len(chosen))


def naive(root: Path) -> Iterator[str]:
    """What most programs do."""
    shards = json.loads((root / "shards.json").read_text())
    yield "\n".join(shard["name"] for shard in shards)


@pytest.mark.attack("hostile files")
def test_a_reader_that_trusts_its_files_is_caught(tmp_path: Path, request) -> None:
    found = Tally("control", is_exhaustive=False)
    for harm in run(TARGETS[0], naive, cases_of(TARGETS[0], 400), tmp_path):
        note(found, harm)

    assert found.harms["wrong class"] > 20
    assert found.harms["lie"]


def test_mutations_are_the_same_in_each_run() -> None:
    assert [mutated(b'{"a":[1]}', seed) for seed in range(50)] == [
        mutated(b'{"a":[1]}', seed) for seed in range(50)
    ]
