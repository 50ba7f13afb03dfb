"""What is run while a call fails: public readers, commands, and what writes."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardproof
import shardproof.cli.app
from shardproof import ReceiptStore, checkpoint, datasets, fetching, receipts, testing
from shardproof.fetching import Limits
from shardproof.formats import detect  # noqa: F401 - as above
from shardproof.staging import stage
from tests.attacks.failing import Subject, command, findings_of
from tests.helpers.token_files import write_shard

__all__ = ["COMMANDS", "READERS", "WRITERS"]

LIMITS = Limits(attempts=1, max_backoff=0.01)
LEVELS = ("present", "complete", "valid")


# Directories


def saev(**keywords: Any) -> Callable[[Path], object]:
    value = testing.Layout(
        n_shards=2, examples_per_shard=2, d_model=2, layers=[6], labels=True, **keywords
    )

    def prepare(root: Path) -> None:
        with tempfile.TemporaryDirectory() as base:
            shutil.copytree(testing.write_layout(value, base), root, dirs_exist_ok=True)

    return prepare


def bad_labels(root: Path) -> None:
    saev()(root)
    with open(root / "labels.bin", "ab") as file:
        file.write(b"x")


def beside_another(*, cut: bool = False) -> Callable[[Path], object]:
    """A directory, another one that it is compared with, and a list of the other one's digests."""

    def prepare(root: Path) -> None:
        for name in ("a", "other"):
            (root / name).mkdir()
            saev()(root / name)
        files = sorted(path for path in (root / "other").iterdir() if path.suffix == ".bin")
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
        (root / "list.sha256").write_text("".join(sums))
        if cut:
            os.truncate(root / "a" / files[0].name, 7)

    return prepare


def unlabelled(root: Path) -> None:
    saev()(root)
    (root / "labels.bin").unlink()


def plan(n_shards: int = 2, **keywords: Any) -> Callable[[Path], object]:
    def prepare(root: Path) -> None:
        with tempfile.TemporaryDirectory() as base:
            made = testing.write_layout(
                testing.Layout(n_shards=n_shards, format="receipts", **keywords), base
            )
            shutil.copytree(made, root, dirs_exist_ok=True)

    return prepare


def run_dir(root: Path) -> None:
    made = receipts.make_plan("corpus", [source("a.txt")], n_shards=2)
    receipts.open_run(root, datasets=["corpus"]).store(made)


def source(path: str) -> receipts.InputFile:
    return receipts.InputFile(path=path, size=1, local_path=None)


def checkpoints(**keywords: Any) -> Callable[[Path], object]:
    def prepare(root: Path) -> None:
        testing.write_layout(testing.Layout(2, format="checkpoint", **keywords), root)

    return prepare


def steps(root: Path) -> None:
    """Three whole ones, of which the last lies in a directory of its own; and an unfinished one."""
    for step in (1, 2, 3):
        directory = root / "step_3" if step == 3 else root
        directory.mkdir(exist_ok=True)
        save(directory / f"m{step}", step)
    checkpoint.MultiShardSaver().save_shard(str(root / "m4"), 0, arrays(4, 0), step=4)


def torn_steps(root: Path) -> None:
    """The newest is torn."""
    steps(root)
    shard = root / "step_3" / "m3_shard_1.shard"
    shard.write_bytes(shard.read_bytes()[:-1])


def arrays(step: int, rank: int) -> dict[str, np.ndarray]:
    return {f"w{rank}": np.full((2, 3), step + rank, "f4"), f"b{rank}": np.arange(step + 2)}


def save(prefix: Path, step: int = 1, *, overwrite: bool = False) -> None:
    saver = checkpoint.MultiShardSaver()
    for rank in (0, 1):
        saver.save_shard(prefix, rank, arrays(step, rank), step=step, overwrite=overwrite)
    saver.save_metadata(prefix, world_size=2, step=step)


def safetensors(root: Path) -> None:
    save(root / "x" / "m", 1)
    checkpoint.to_safetensors(root / "x" / "m", root / "st")
    shutil.rmtree(root / "x")


def corpus(root: Path) -> None:
    for name in ("a/x.txt", "b/y.txt", "z.txt"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(name)


def remote(root: Path) -> None:
    """Two shards of a source, and an empty cache."""
    (root / "remote" / "train").mkdir(parents=True)
    for n in (0, 1):
        (root / "remote" / "train" / f"{n}.bin").write_bytes(bytes([n]) * 100)
    (root / "cache").mkdir()


def foreign(root: Path) -> None:
    """Two shards that another tool fetched."""
    remote(root)
    shutil.copytree(root / "remote" / "train", root / "theirs")


def parquet(root: Path) -> None:
    (root / "data").mkdir(parents=True)
    for n in (0, 1):
        table = pa.table({"id": list(range(3 * n, 3 * n + 3))})
        pq.write_table(table, root / "data" / f"train-{n:05d}-of-00002.parquet")
    (root / "cache").mkdir()


def texts(root: Path) -> None:
    for n in range(3):
        (root / f"a{n}.txt").write_text(f"{n}\n{n}\n")


def tokens(root: Path) -> None:
    write_shard(root, 3, np.arange(12, dtype=np.uint32))


def torn_tokens(root: Path) -> None:
    tokens(root)
    path = root / "sample_ids_000003.npy"
    path.write_bytes(path.read_bytes()[:-1])


def several(root: Path) -> None:
    """Plans of two runs, the second behind."""
    for name, keywords in (("a", {}), ("b", {"absent": [1]})):
        where = root / "runs" / name / "datasets" / "corpus" / name
        where.mkdir(parents=True)
        plan(**keywords)(where)


def staged(root: Path) -> None:
    saev()(root / "shards") if (root / "shards").mkdir() is None else None
    (root / "to").mkdir()


def staged_plan(root: Path) -> None:
    (root / "shards").mkdir()
    plan()(root / "shards")
    (root / "to").mkdir()


def staged_checkpoint(root: Path) -> None:
    (root / "shards").mkdir()
    checkpoints()(root / "shards")
    (root / "to").mkdir()


# Answers


def validated(level: str, name: str = "", against: str = "") -> Callable[[Path], object]:
    def act(root: Path) -> object:
        elsewhere = root / against if against else None
        report = shardproof.validate(root / name, level=level, against=elsewhere)  # type: ignore[arg-type]
        unproven = sorted(map(str, report.unproven)) if report.ok else []
        return {"findings": findings_of(report), "n": report.n_files, "unproven": unproven}

    return act


def loaded(make: Callable[..., Any]) -> Callable[[Path], object]:
    def act(root: Path) -> object:
        return [rows_of(batch) for batch in make(root, layer=6, batch_size=3)]

    return act


def rows_of(batch: Any) -> dict[str, Any]:
    if isinstance(batch, dict):
        return {name: np.asarray(value).tolist() for name, value in batch.items()}
    names = [name for name in dir(batch) if not name.startswith("_")]
    return {name: np.asarray(getattr(batch, name)).tolist() for name in names}


def indexed(root: Path) -> object:
    with contextlib.closing(shardproof.IndexedDataset(root, layer=6)) as dataset:
        return [rows_of(dataset[n]) for n in range(len(dataset))]


def info(root: Path) -> object:
    loaded = shardproof.ShardInfo.load(root)
    loaded.validate(root)
    return [[shard.name, shard.n_examples] for shard in loaded]


def metadata(root: Path) -> object:
    return str(shardproof.Metadata.load(root))


def pending(level: str) -> Callable[[Path], object]:
    def act(root: Path) -> object:
        found = ReceiptStore(root).verdicts(pending=True, level=level)  # type: ignore[arg-type]
        return {"findings": [_as_finding(verdict) for verdict in found]}

    return act


def _as_finding(verdict: receipts.Verdict) -> dict[str, Any]:
    """Who may not read a receipt is told so in the reason; all else that can't be seen raises."""
    if "permission denied" in verdict.reason.lower():
        return {"path": str(verdict.index), "kind": "unreadable", "errno": "EACCES"}
    return {"path": str(verdict.index), "kind": verdict.status, "errno": verdict.reason}


def receipt(root: Path) -> object:
    store = ReceiptStore(root)
    return [str(store.receipt(0)), store.is_completed(0)]


def one_verdict(root: Path) -> object:
    verdict = ReceiptStore(root).verdict(0, level="valid")
    return {"findings": [] if verdict else [_as_finding(verdict)]}


def planned(identity: str) -> Callable[[Path], object]:
    def act(root: Path) -> object:
        files = receipts.input_files(root, "**/*.txt", identity=identity)  # type: ignore[arg-type]
        made = receipts.make_plan("corpus", files, n_shards=2)
        return [made.plan_hash, [str(file) for file in files]]

    return act


def found_plans(root: Path) -> object:
    return sorted(map(str, receipts.plan_dirs(root)))


def claims(root: Path) -> object:
    return [index for index, _ in receipts.claims_in(str(root))]


def verified(level: str) -> Callable[[Path], object]:
    def act(root: Path) -> object:
        result = checkpoint.ShardFileVerifier().verify_checkpoint(root / "model", level=level)  # type: ignore[arg-type]
        return {"findings": findings_of(result), "n": result.n_files, "ok": result.ok}

    return act


def loads(how: str, *arguments: Any) -> Callable[[Path], object]:
    def act(root: Path) -> object:
        found = getattr(checkpoint.MultiShardLoader(), how)(root / "model", *arguments)
        return _plain(dict(found) if how == "iter_tensors" else found)

    return act


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return np.asarray(value).tolist() if isinstance(value, np.ndarray) else str(value)


def latest(root: Path) -> object:
    return checkpoint.latest_checkpoint(root)


def unfinished(root: Path) -> object:
    return [step.prefix for step in checkpoint.unfinished_steps(root)]


def token_rows(level: str) -> Callable[[Path], object]:
    def act(root: Path) -> object:
        keywords: Any = {"shards_path": root, "level": level}
        with contextlib.closing(shardproof.SharedShardedDataset(3, 4, **keywords)) as dataset:
            ids = [dataset.sample_id(n) for n in range(len(dataset))]
            return [dataset.read(range(len(dataset))).tolist(), ids]

    return act


def text_rows(root: Path) -> object:
    return list(datasets.load_dataset_from_spec(datasets.TextSpec(f"{root}/a*.txt")))


def text_resume(root: Path) -> object:
    return str(datasets.resolve_resume_plan(datasets.TextSpec(f"{root}/a*.txt"), 3))


def parquet_rows(root: Path) -> object:
    return list(
        datasets.hf_load_dataset_sharded(
            "org/name", cache_dir=root / "cache", source=f"file://{root}", limits=LIMITS
        )
    )


def pytested(level: str) -> Callable[[Path], object]:
    """Run the plugin with a project elsewhere, so that only its own looks are counted."""

    def act(root: Path) -> object:
        with tempfile.TemporaryDirectory() as project:
            os.chdir(project)
            options = [
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
                "-p",
                "no:hypothesispytest",
            ]
            where = [f"--rootdir={project}", "-c", os.devnull, "--validate-shards"]
            code = pytest.main(
                [*options, *where, f"--shards-level={level}", f"--shards-dir={root}"]
            )
            os.chdir("/")
        sys.stdout.flush()
        text = os.pread(1, os.fstat(1).st_size, 0).decode()
        # What is not a failed test is an error, by which a job's prolog ends as well.
        codes = {0: 0, 1: 1}
        if code and ("Errno" in text or "could not be looked at" in text):
            codes = {int(code): 3}
        lines = [line for line in text.splitlines() if line[:6] in {"FAILED", "ERROR "}]
        return {"code": codes.get(int(code), int(code)), "out": "\n".join(lines), "err": text}

    return act


# Commands


def of(*arguments: str) -> Callable[[Path], object]:
    """The command; ``{}`` is the directory."""

    def act(root: Path) -> object:
        os.environ |= {
            "COLUMNS": "100",
            "HOME": str(root),
            "TMPDIR": str(root),
            "XDG_CACHE_HOME": str(root),
        }
        tempfile.tempdir = str(root)  # where it is looked for is not of ours
        ended = command(*[argument.replace("{}", str(root)) for argument in arguments])
        ended["out"] = re.sub(r"shardproof-demo-\w+", "shardproof-demo-x", ended["out"])
        return ended

    return act


# What writes


def bytes_of(*patterns: str) -> Callable[[Path], dict[str, str]]:
    """State: the digest of each file of which the name is final."""

    def state(root: Path) -> dict[str, str]:
        found = {path for pattern in patterns for path in root.glob(pattern)}
        return {
            str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()[:8]
            for path in found
            if path.is_file() and not _is_hidden(path.relative_to(root))
        }

    return state


def _is_hidden(path: Path) -> bool:
    """Whether it is nobody's but ours: a temporary file, a part of a fetch."""
    return any(part.startswith(".") for part in path.parts)


def whole_checkpoints(root: Path) -> dict[str, str]:
    """State: of each checkpoint, what is loaded from it."""
    found = {}
    for path in sorted(root.glob("**/*.metadata.json")):
        prefix = str(path).removesuffix(".metadata.json")
        try:
            shards = checkpoint.MultiShardLoader().load_all_shards(prefix)
            said = json.dumps(_plain(shards))
        except (shardproof.ShardproofError, OSError) as error:
            said = f"broken: {type(error).__name__}"
        found[os.path.relpath(prefix, root)] = said
    return found


def whole_staged(root: Path) -> dict[str, str]:
    """State: of each copy that has its final name, whether it is whole."""
    found = {"source": str(shardproof.validate(root / "shards", level="valid").ok)}
    manifests = {"shards.json", "metadata.json", "plan.json", "model.metadata.json"}
    for path in sorted((root / "to").glob("shardproof-*/[!.]*")):
        is_final = path.is_dir() and path.suffix != ".unfinished"
        if is_final and manifests & {*os.listdir(path)}:
            try:
                report = shardproof.validate(path, level="valid")
                found["copy"] = f"{report.ok} {report.n_files}"
            except shardproof.ManifestError as error:
                found["copy"] = f"broken: {type(error).__name__}"
    return found


def done_shards(root: Path) -> dict[str, str]:
    """State: which shards of the one plan are done."""
    (path,) = receipts.plan_dirs(root)
    store = ReceiptStore(path)
    indices = range(store.n_shards)
    return {str(index): str(store.is_completed(index, level="valid")) for index in indices}


def _plan_of(root: Path) -> Path:
    (path,) = receipts.plan_dirs(root)
    return path


def completes(root: Path) -> None:
    store = ReceiptStore(_plan_of(root))
    with store.claim(0) as work:
        for suffix in ("bin", "idx"):
            work.output(f"shard_000000.{suffix}").write_bytes(b"tokens")
        work.stats["num_sequences"] = 4


def opens_run(root: Path) -> object:
    files = receipts.input_files(root / "corpus", "**/*.txt", identity="size")
    made = receipts.make_plan("corpus", files, n_shards=2)
    return str(receipts.open_run(root / "out", datasets=["corpus"]).store(made).plan_hash)


def run_corpus(root: Path) -> None:
    (root / "corpus").mkdir()
    corpus(root / "corpus")
    (root / "out").mkdir()


def plan_text(root: Path) -> dict[str, str]:
    """State: which plan is under which name."""
    return {
        str(path.relative_to(root)): json.loads(path.read_bytes())["plan_hash"]
        for path in root.glob("out/runs/*/datasets/*/*/plan.json")
    }


def saves(root: Path) -> None:
    save(root / "m9", 9)


def overwrites(root: Path) -> None:
    save(root / "m2", 9, overwrite=True)


def prunes(root: Path) -> object:
    return checkpoint.prune(root, keep=2)


def to_safetensors(root: Path) -> object:
    return checkpoint.to_safetensors(root / "m1", root / "st")


def from_safetensors(root: Path) -> object:
    return checkpoint.from_safetensors(root / "st", root / "made", step=3)


def stages(root: Path) -> object:
    path = stage(root / "shards", root / "to", level="valid")
    return {"findings": findings_of(shardproof.validate(path)), "path": str(path)}


def _prefetched(root: Path) -> object:
    names = ["train/0.bin", "train/1.bin"]
    keywords: Any = {"cleanup": "keep", "limits": LIMITS}
    with shardproof.ShardPrefetcher(
        f"file://{root}/remote", names, root / "cache", **keywords
    ) as prefetcher:
        return [path.read_bytes().hex()[:8] for path in prefetcher]


def prefetches_and_forgets(root: Path) -> object:
    with shardproof.ShardPrefetcher(
        f"file://{root}/remote", ["train/0.bin", "train/1.bin"], root / "cache", limits=LIMITS
    ) as prefetcher:
        return [path.read_bytes().hex()[:8] for path in prefetcher]


def fetches(root: Path) -> object:
    digest = "sha256:" + hashlib.sha256(bytes(100)).hexdigest()
    opened = fetching.open_source(f"file://{root}/remote/train")
    try:
        fetched = fetching.fetch_file(
            opened, "0.bin", root / "cache" / "0.bin", digest=digest, limits=LIMITS
        )
    finally:
        opened.close()
    return [str(fetched.path), fetched.proven, fetched.digest]


def fetches_by_call(root: Path) -> object:
    def fetch(name: str, dest: Path) -> None:
        shutil.copyfile(root / "remote" / "train" / name, dest)

    with contextlib.closing(fetching.CallableSource(fetch, scratch=root / "cache")) as opened:
        path = root / "cache" / "0.bin"
        return str(fetching.fetch_file(opened, "0.bin", path, limits=LIMITS).path)


def adopts(root: Path) -> object:
    report = fetching.adopt(root / "theirs", f"file://{root}/remote/train", limits=LIMITS)
    return {"findings": findings_of(report), "n": report.n_files}


def dumps(root: Path) -> None:
    shardproof.ShardInfo([shardproof.Shard("acts000000.bin", 2)]).dump(root)
    shardproof.Metadata.load(root).dump(root)


# All of them


def _readers() -> Iterator[Subject]:
    directories = {
        "saev": saev(),
        "saev, a shard missing": saev(missing=[1]),
        "saev, labels too long": bad_labels,
        "saev, a shard cut": saev(truncated=[0]),
        "receipts": plan(),
        "receipts, outputs missing and one torn": plan(4, missing_bin=[1], torn=[2], absent=[3]),
        "receipts, one flipped": plan(flipped=[1]),
        "checkpoint": checkpoints(),
        "checkpoint, a shard missing": checkpoints(missing=[1]),
        "checkpoint, one flipped": checkpoints(flipped=[0]),
        "two checkpoints": steps,
    }
    for name, prepare in directories.items():
        for level in LEVELS if ", " not in name else LEVELS[1:]:
            yield Subject(f"validate {level}: {name}", prepare, validated(level))
    for cut, level in ((False, "present"), (False, "valid"), (True, "valid")):
        for against in ("other", "list.sha256"):
            act = validated(level, "a", against)
            yield Subject(
                f"validate {level} against {against}, {cut=}", beside_another(cut=cut), act
            )
    for name in ("saev", "saev, a shard missing", "saev, labels too long"):
        yield Subject(f"ShardInfo: {name}", directories[name], info)
        yield Subject(f"OrderedDataLoader: {name}", directories[name], _ordered)
    for name, act in {"Shuffled": _shuffled, "Indexed": indexed, "Metadata": metadata}.items():
        yield Subject(f"{name}: saev", saev(), act)
    yield Subject("OrderedDataLoader: saev, no labels", unlabelled, _ordered)
    yield Subject("Shuffled: saev, labels too long", bad_labels, _shuffled)
    for level in LEVELS[1:]:
        for name in ("receipts", "receipts, outputs missing and one torn", "receipts, one flipped"):
            yield Subject(f"pending {level}: {name}", directories[name], pending(level))
        for name in ("checkpoint", "checkpoint, a shard missing", "checkpoint, one flipped"):
            yield Subject(f"verify_checkpoint {level}: {name}", directories[name], verified(level))
    yield Subject("ReceiptStore.read", plan(), receipt)
    yield Subject("ReceiptStore.verdict", plan(), one_verdict)
    yield Subject("plan_dirs", several, found_plans)
    yield Subject("claims_in", claimed, claims)
    yield Subject("input_files size", corpus, planned("size"))
    yield Subject("input_files digest", corpus, planned("digest"))
    yield Subject("load_metadata", checkpoints(), loads("load_metadata"))
    yield Subject("load_shard", checkpoints(), loads("load_shard", 1))
    yield Subject("load_all_shards", checkpoints(), loads("load_all_shards"))
    yield Subject(
        "load_all_shards: one flipped", checkpoints(flipped=[0]), loads("load_all_shards")
    )
    yield Subject("load_tensors", checkpoints(), loads("load_tensors"))
    yield Subject("iter_tensors", checkpoints(), loads("iter_tensors"))
    yield Subject("latest_checkpoint", steps, latest)
    yield Subject("latest_checkpoint: the newest torn", torn_steps, latest)
    yield Subject("unfinished_steps", steps, unfinished)
    for level in ("complete", "valid"):
        yield Subject(f"tokens {level}", tokens, token_rows(level))
        yield Subject(f"tokens {level}: torn", torn_tokens, token_rows(level))
    yield Subject("text rows", texts, text_rows)
    yield Subject("text resume", texts, text_resume)


def _ordered(root: Path) -> object:
    return loaded(shardproof.OrderedDataLoader)(root)


def _shuffled(root: Path) -> object:
    return loaded(shardproof.ShuffledDataLoader)(root)


def claimed(root: Path) -> None:
    run_dir(root)
    store = ReceiptStore(_plan_of(root))
    work = store.claim(1)
    work.__enter__()
    files = {p.name: p.read_bytes() for p in (store.path).rglob("*") if p.is_file()}
    places = {p.name: p for p in (store.path).rglob("*") if p.is_file()}
    work.__exit__(RuntimeError, RuntimeError("no"), None)
    shutil.copytree(store.path, root, dirs_exist_ok=True)
    shutil.rmtree(root / "runs")
    for name, data in files.items():
        target = root / places[name].relative_to(store.path)
        target.parent.mkdir(exist_ok=True, parents=True)
        target.write_bytes(data)


def _commands() -> Iterator[Subject]:
    for level in ("complete", "valid"):
        for name, prepare in {
            "saev": saev(),
            "labels too long": bad_labels,
            "receipts": plan(missing_bin=[1]),
            "checkpoint": checkpoints(),
        }.items():
            yield Subject(
                f"validate --level {level}: {name}", prepare, of("validate", "--level", level, "{}")
            )
    yield Subject("validate: nothing known", corpus, of("validate", "{}"))
    yield Subject("receipts", plan(absent=[1]), of("receipts", "{}"))
    yield Subject("receipts --pending", plan(absent=[1]), of("receipts", "--pending", "{}"))
    yield Subject("receipts: of several plans", several, of("receipts", "--json", "{}"))
    yield Subject("receipts: no plan", corpus, of("receipts", "{}"))
    for verb in ("verify", "list", "latest"):
        for name, prepare in {"steps": steps, "the newest torn": torn_steps}.items():
            if verb != "list":
                yield Subject(f"checkpoint {verb}: {name}", prepare, of("checkpoint", verb, "{}"))
    yield Subject(
        "checkpoint verify: a prefix", checkpoints(), of("checkpoint", "verify", "{}/model")
    )
    yield Subject("checkpoint verify: none", corpus, of("checkpoint", "verify", "{}"))
    yield Subject("checkpoint latest: none", corpus, of("checkpoint", "latest", "{}"))
    yield Subject("checkpoint show", checkpoints(), of("checkpoint", "show", "{}"))
    yield Subject("checkpoint show: a prefix", checkpoints(), of("checkpoint", "show", "{}/model"))
    yield Subject("pytest: labels too long", bad_labels, pytested("complete"))
    yield Subject("pytest: receipts", plan(), pytested("valid"))


def _writers() -> Iterator[Subject]:
    notes = r"_shard_\d+\.(tensors\.json|shard)$"
    yield Subject("saves", steps, saves, whole_checkpoints, notes)
    kept = rf"{notes}|\.pruned$"
    yield Subject("overwrites", steps, overwrites, whole_checkpoints, kept, given_up="^m2$")
    yield Subject("prune", steps, prunes, whole_checkpoints, r"\.pruned$")
    yield Subject("to_safetensors", steps, to_safetensors, bytes_of("st/*", "*.shard"))
    yield Subject("from_safetensors", safetensors, from_safetensors, whole_checkpoints, notes)
    yield Subject(
        "checkpoint convert", steps, of("checkpoint", "convert", "{}/m1", "{}/st"), bytes_of("st/*")
    )
    begun = r"\.unfinished(/\.shardproof-stage\.\w+|(/[^./][^/]*)*)$"
    for name, prepare in {
        "saev": staged,
        "receipts": staged_plan,
        "checkpoint": staged_checkpoint,
    }.items():
        yield Subject(f"stage: {name}", prepare, stages, whole_staged, begun)
    yield Subject("stage: again", staged, stages, whole_staged, begun, again=True)
    yield Subject(
        "stage, the command",
        staged,
        of("stage", "{}/shards", "--to", "{}/to"),
        whole_staged,
        begun,
    )
    yield Subject("open_run", run_corpus, opens_run, plan_text)
    yield Subject("claim, complete", run_dir, completes, done_shards, kept=r"claims|receipts/")
    kept = r"\.shardproof|\.part"
    there = bytes_of("cache/**/*.bin", "remote/**/*.bin")
    yield Subject("prefetch", remote, _prefetched, there, kept)
    yield Subject("prefetch: there already", remote, _prefetched, there, kept, again=True)
    yield Subject(
        "rows over local files",
        parquet,
        parquet_rows,
        bytes_of("data/*"),
        rf"{kept}|^cache/.*\.parquet$",
    )
    yield Subject("fetch_file", remote, fetches, there, kept)
    yield Subject("fetch_file of a callable", remote, fetches_by_call, there, kept)
    yield Subject(
        "fetch, the command",
        remote,
        of("fetch", "-q", "--attempts", "1", "file://{}/remote/train/0.bin", "{}/cache"),
        there,
        kept,
        refused=(1, 3),
    )
    yield Subject("adopt", foreign, adopts, bytes_of("**/*.bin"), kept)
    yield Subject(
        "adopt, the command",
        foreign,
        of("adopt", "-q", "{}/theirs", "--from", "file://{}/remote/train"),
        bytes_of("**/*.bin"),
        kept,
    )
    yield Subject("dump", saev(), dumps, bytes_of("*.json"))
    yield Subject("demo", corpus, of("demo"), bytes_of("*.txt"))
    yield Subject("demo --to", corpus, of("demo", "--to", "{}/demo"), bytes_of("*.txt"), "^demo/")


READERS, COMMANDS, WRITERS = tuple(_readers()), tuple(_commands()), tuple(_writers())
