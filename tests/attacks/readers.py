"""What is run while a call fails, and changes nothing: public readers, and commands."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardproof
import shardproof.cli.app
from shardproof import ReceiptStore, checkpoint, datasets, receipts
from shardproof.receipts import claims_in
from tests.attacks import directories as made
from tests.attacks.children import command, findings_of
from tests.attacks.subjects import Subject

LEVELS: tuple[Any, ...] = ("present", "complete", "valid")

Act = Callable[[Path], object]


def plainly(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plainly(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plainly(each) for each in value]
    return np.asarray(value).tolist() if hasattr(value, "dtype") else str(value)


def validated(level: Any, name: str = "", against: str = "") -> Act:
    def act(root: Path) -> object:
        elsewhere = root / against if against else None
        report = shardproof.validate(root / name, level=level, against=elsewhere)
        unproven = sorted(map(str, report.unproven)) if report.ok else []
        return {"findings": findings_of(report), "n": report.n_files, "unproven": unproven}

    return act


def batches(loader: Any) -> Act:
    return lambda root: plainly([*loader(root, layer=6, batch_size=3)])


def indexed(root: Path) -> object:
    with contextlib.closing(shardproof.IndexedDataset(root, layer=6)) as dataset:
        return plainly([dataset[n] for n in range(len(dataset))])


def info(root: Path) -> object:
    loaded = shardproof.ShardInfo.load(root)
    loaded.validate(root)
    return [[shard.name, shard.n_examples] for shard in loaded]


def pending(level: Any) -> Act:
    def act(root: Path) -> object:
        found = ReceiptStore(root).verdicts(pending=True, level=level)
        return {"findings": [_as_finding(verdict) for verdict in found]}

    return act


def one_verdict(root: Path) -> object:
    verdict = ReceiptStore(root).verdict(0, level="valid")
    return {"findings": [] if verdict else [_as_finding(verdict)]}


def _as_finding(verdict: receipts.Verdict) -> dict[str, Any]:
    """Who may not read a receipt is told so in the reason; all else that can't be seen raises."""
    if "permission denied" in verdict.reason.lower():
        return {"path": str(verdict.index), "kind": "unreadable", "errno": "EACCES"}
    return {"path": str(verdict.index), "kind": verdict.status, "errno": verdict.reason}


def receipt(root: Path) -> object:
    store = ReceiptStore(root)
    return [str(store.receipt(0)), store.is_completed(0)]


def planned(identity: Any) -> Act:
    def act(root: Path) -> object:
        files = receipts.input_files(root, "**/*.txt", identity=identity)
        plan = receipts.make_plan("corpus", files, n_shards=2)
        return [plan.plan_hash, [str(file) for file in files]]

    return act


def verified(level: Any) -> Act:
    def act(root: Path) -> object:
        result = checkpoint.ShardFileVerifier().verify_checkpoint(root / "model", level=level)
        return {"findings": findings_of(result), "n": result.n_files, "ok": result.ok}

    return act


def loads(how: str, *arguments: Any) -> Act:
    def act(root: Path) -> object:
        found = getattr(checkpoint.MultiShardLoader(), how)(root / "model", *arguments)
        return plainly(dict(found) if how == "iter_tensors" else found)

    return act


def token_rows(level: Any) -> Act:
    def act(root: Path) -> object:
        rows = shardproof.SharedShardedDataset(3, 4, shards_path=root, level=level)
        with contextlib.closing(rows) as dataset:
            ids = [dataset.sample_id(n) for n in range(len(dataset))]
            return [dataset.read(range(len(dataset))).tolist(), ids]

    return act


def texts_of(root: Path) -> datasets.TextSpec:
    return datasets.TextSpec(f"{root}/a*.txt")


def pytested(level: str) -> Act:
    """Run the plugin with a project elsewhere, so that only its own looks are counted."""

    def act(root: Path) -> object:
        with tempfile.TemporaryDirectory() as project:
            os.chdir(project)
            without = ("cacheprovider", "xdist", "hypothesispytest")
            options = ["-q", *(f"-pno:{plugin}" for plugin in without)]
            options += [f"--rootdir={project}", "-c", os.devnull, "--validate-shards"]
            code = pytest.main([*options, f"--shards-level={level}", f"--shards-dir={root}"])
            os.chdir("/")
        sys.stdout.flush()
        text = os.pread(1, os.fstat(1).st_size, 0).decode()
        # What is not a failed test is an error, by which a job's prolog ends as well.
        if code and ("Errno" in text or "could not be looked at" in text):
            code = 3
        lines = [line for line in text.splitlines() if line[:6] in {"FAILED", "ERROR "}]
        return {"code": int(code), "out": "\n".join(lines), "err": text}

    return act


def of(*arguments: str) -> Act:
    def act(root: Path) -> object:
        places = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(root))
        os.environ |= {"COLUMNS": "100", **places}
        tempfile.tempdir = str(root)  # where it is looked for is not of ours
        ended = command(*[argument.replace("{}", str(root)) for argument in arguments])
        ended["out"] = re.sub(r"shardproof-demo-\w+", "shardproof-demo-x", ended["out"])
        return ended

    return act


DIRECTORIES: dict[str, made.Prepare] = {
    "saev": made.saev(),
    "saev, a shard missing": made.saev(missing=[1]),
    "saev, labels too long": made.bad_labels,
    "saev, a shard cut": made.saev(truncated=[0]),
    "receipts": made.plan(),
    "receipts, outputs missing and one torn": made.plan(4, missing_bin=[1], torn=[2], absent=[3]),
    "receipts, one flipped": made.plan(flipped=[1]),
    "checkpoint": made.checkpoints(),
    "checkpoint, a shard missing": made.checkpoints(missing=[1]),
    "checkpoint, one flipped": made.checkpoints(flipped=[0]),
    "two checkpoints": made.steps,
}


def _readers() -> Iterator[Subject]:
    ordered, shuffled = map(batches, (shardproof.OrderedDataLoader, shardproof.ShuffledDataLoader))
    for name, prepare in DIRECTORIES.items():
        for level in LEVELS if ", " not in name else LEVELS[1:]:
            yield Subject(f"validate {level}: {name}", prepare, validated(level))
            if level != "present" and name.startswith("receipts"):
                yield Subject(f"pending {level}: {name}", prepare, pending(level))
            if level != "present" and name.startswith("checkpoint"):
                yield Subject(f"verify_checkpoint {level}: {name}", prepare, verified(level))
    for cut, level in ((False, "present"), (False, "valid"), (True, "valid")):
        for against in ("other", "list.sha256"):
            name = f"validate {level} against {against}, {cut=}"
            yield Subject(name, made.beside_another(cut=cut), validated(level, "a", against))
    for name in ("saev", "saev, a shard missing", "saev, labels too long"):
        yield Subject(f"ShardInfo: {name}", DIRECTORIES[name], info)
        yield Subject(f"OrderedDataLoader: {name}", DIRECTORIES[name], ordered)
    yield Subject("shuffled: saev", made.saev(), shuffled)
    yield Subject("indexed: saev", made.saev(), indexed)
    yield Subject("Metadata: saev", made.saev(), lambda root: str(shardproof.Metadata.load(root)))
    yield Subject("OrderedDataLoader: saev, no labels", made.unlabelled, ordered)
    yield Subject("Shuffled: saev, labels too long", made.bad_labels, shuffled)
    yield Subject("ReceiptStore.read", made.plan(), receipt)
    yield Subject("ReceiptStore.verdict", made.plan(), one_verdict)
    yield Subject("plan_dirs", made.several, lambda root: [*map(str, receipts.plan_dirs(root))])
    yield Subject("claims_in", made.claimed, lambda root: [n for n, _ in claims_in(str(root))])
    for identity in ("size", "digest"):
        yield Subject(f"input_files {identity}", made.corpus, planned(identity))
    for how in ("load_metadata", "load_all_shards", "load_tensors", "iter_tensors"):
        yield Subject(how, made.checkpoints(), loads(how))
    yield Subject("load_shard", made.checkpoints(), loads("load_shard", 1))
    flipped = made.checkpoints(flipped=[0])
    yield Subject("load_all_shards: one flipped", flipped, loads("load_all_shards"))
    for name, prepare in {"": made.steps, ": the newest torn": made.torn_steps}.items():
        yield Subject(f"latest_checkpoint{name}", prepare, checkpoint.latest_checkpoint)
    yield Subject(
        "unfinished_steps",
        made.steps,
        lambda root: [step.prefix for step in checkpoint.unfinished_steps(root)],
    )
    for level in LEVELS[1:]:
        yield Subject(f"tokens {level}", made.tokens, token_rows(level))
        yield Subject(f"tokens {level}: torn", made.torn_tokens, token_rows(level))
    yield Subject(
        "text rows", made.texts, lambda root: [*datasets.load_dataset_from_spec(texts_of(root))]
    )
    yield Subject(
        "text resume", made.texts, lambda root: str(datasets.resolve_resume_plan(texts_of(root), 3))
    )


def _commands() -> Iterator[Subject]:
    damaged = {
        "saev": made.saev(),
        "labels too long": made.bad_labels,
        "receipts": made.plan(missing_bin=[1]),
        "checkpoint": made.checkpoints(),
    }
    for level in LEVELS[1:]:
        for name, prepare in damaged.items():
            act = of("validate", "--level", level, "{}")
            yield Subject(f"validate --level {level}: {name}", prepare, act)
    for verb in ("verify", "latest"):
        for name, prepare in {"steps": made.steps, "the newest torn": made.torn_steps}.items():
            yield Subject(f"checkpoint {verb}: {name}", prepare, of("checkpoint", verb, "{}"))
        yield Subject(f"checkpoint {verb}: none", made.corpus, of("checkpoint", verb, "{}"))
    for verb in ("verify", "show"):
        act = of("checkpoint", verb, "{}/model")
        yield Subject(f"checkpoint {verb}: a prefix", made.checkpoints(), act)
    yield Subject("checkpoint show", made.checkpoints(), of("checkpoint", "show", "{}"))
    yield Subject("validate: nothing known", made.corpus, of("validate", "{}"))
    behind = made.plan(absent=[1])
    yield Subject("receipts", behind, of("receipts", "{}"))
    yield Subject("receipts --pending", behind, of("receipts", "--pending", "{}"))
    yield Subject("receipts: of several plans", made.several, of("receipts", "--json", "{}"))
    yield Subject("receipts: no plan", made.corpus, of("receipts", "{}"))
    yield Subject("pytest: labels too long", made.bad_labels, pytested("complete"))
    yield Subject("pytest: receipts", made.plan(), pytested("valid"))


READERS, COMMANDS = tuple(_readers()), tuple(_commands())
