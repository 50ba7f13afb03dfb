"""A run that is killed, damaged and resumed ends with the bytes of an undisturbed one."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import shardproof
from tests.helpers import ROOT, megatron, pipeline

SCRIPT = [sys.executable, "-m", "tests.helpers.pipeline"]
WORDS = "and as but for in it not of on so that the they to"

CORPORA = {"many files": 20, "fewer files than shards": 3, "fewer rows than shards": 1}


def make_corpus(path: Path, n_files: int) -> Path:
    """Text files of quite different sizes, some of their lines empty."""
    generator = random.Random(n_files)
    path.mkdir()
    for number in range(n_files):
        n_lines = generator.choice([1, 20, 60]) if n_files > 1 else 3
        choices = (
            generator.choices(WORDS.split(), k=generator.randrange(12)) for _ in range(n_lines)
        )
        lines = [" ".join(words) for words in choices]
        (path / f"part{number:03}.txt").write_text("\n".join(lines) + "\n")
    return path


class Runs:
    def __init__(self, output_dir: Path, corpus: Path) -> None:
        self.output_dir = output_dir
        self.corpus = corpus

    def start(self, pause: float = 0.0) -> subprocess.Popen:
        argv = [*SCRIPT, self.output_dir, self.corpus, str(pause)]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)

    def finish(self) -> str:
        process = self.start()
        done, error = process.communicate()
        assert process.returncode == 0, error.decode()
        return done.decode()

    @property
    def plan_dir(self) -> Path:
        (plan,) = self.output_dir.glob("runs/*/datasets/*/*/plan.json")
        return plan.parent

    def outputs(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.plan_dir.glob("shard_*"))}


def disturb(runs: Runs, generator: random.Random) -> int:
    """Start the script and end it somewhere on its way; return what it ended with."""
    process = runs.start(pause=0.01)
    lines = generator.choice([0, 1, 2, 3, 4, 5, 7])
    for _ in range(lines):
        process.stdout.readline()
    time.sleep(generator.uniform(0, 0.25 if not lines else 0.02))
    process.send_signal(generator.choice([signal.SIGKILL, signal.SIGTERM]))
    process.communicate()
    return process.returncode


def damage(runs: Runs, generator: random.Random) -> None:
    """Purge some outputs, as a scratch file system does, and ruin a receipt."""
    if not list(runs.output_dir.glob("runs/*/datasets/*/*/plan.json")):
        return
    outputs = sorted(runs.plan_dir.glob("shard_*"))
    for path in generator.sample(outputs, min(len(outputs), generator.randrange(3))):
        path.unlink()
    written = sorted(runs.plan_dir.glob("receipts/shard_*.json"))
    if written:
        path = generator.choice(written)
        data = path.read_bytes()
        place = generator.randrange(len(data) + 1)
        path.write_bytes(
            generator.choice([b"", b"null", data[:place], data[:place] + b"\x00" + data[place:]])
        )


def rows(documents: list[list[list[int]]]) -> Counter:
    return Counter(tuple(tokens) for document in documents for tokens in document)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("corpus_of", "seed"),
    [
        ("many files", 1),
        pytest.param("many files", 2, marks=pytest.mark.exhaustive),
        pytest.param("fewer files than shards", 1, marks=pytest.mark.exhaustive),
        pytest.param("fewer rows than shards", 1, marks=pytest.mark.exhaustive),
    ],
)
def test_killed_damaged_and_resumed(tmp_path, corpus_of: str, seed: int, stride: int) -> None:
    generator = random.Random(seed)
    corpus = make_corpus(tmp_path / "corpus", CORPORA[corpus_of])
    undisturbed, disturbed = (Runs(tmp_path / name, corpus) for name in "AB")
    undisturbed.finish()
    codes, n_runs = Counter[int](), 8 if stride == 1 else 4
    while codes.total() < n_runs:
        code = disturb(disturbed, generator)
        assert code in {0, -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM}
        codes[code] += 1
        damage(disturbed, generator)
    disturbed.finish()
    assert codes[0] < n_runs
    assert disturbed.outputs() == undisturbed.outputs()
    shardproof.validate(disturbed.plan_dir, level="valid").raise_for_findings()
    assert shardproof.ReceiptStore(disturbed.plan_dir).pending(level="valid") == []


@pytest.mark.slow
@pytest.mark.parametrize("corpus_of", ["fewer files than shards"])
def test_every_line_is_in_exactly_one_shard(tmp_path, corpus_of: str) -> None:
    corpus = make_corpus(tmp_path / "corpus", CORPORA[corpus_of])
    runs = Runs(tmp_path / "A", corpus)
    assert runs.finish().count("done") == pipeline.N_SHARDS
    found: Counter = Counter()
    for path in sorted(runs.plan_dir.glob("shard_*.bin")):
        found += rows(megatron.read(path, path.with_suffix(".idx")))
    lines = [line for path in corpus.iterdir() for line in path.read_text().splitlines()]
    assert found == Counter(tuple(pipeline.tokenized(line)) for line in lines if line.strip())
    assert runs.finish().count("done") == 0
