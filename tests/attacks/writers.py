"""What is run while a call fails, and killed, or loses power: all that writes."""

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import shardproof
from shardproof import ReceiptStore, checkpoint, errors, fetching, receipts
from tests.attacks import directories as made
from tests.attacks import repairs
from tests.attacks.children import findings_of
from tests.attacks.directories import within
from tests.attacks.readers import Act, of
from tests.attacks.subjects import State, Subject
from tests.helpers import checkpoint_files as files

LIMITS = repairs.LIMITS


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:8]


def bytes_of(*patterns: str) -> Callable[[Path], State]:
    """State: the digest of each file of which the name is final, and none of ours."""

    def state(root: Path) -> State:
        found = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
        names = {path: path.relative_to(root) for path in found}
        return {
            str(name): digest(path.read_bytes())
            for path, name in names.items()
            if not any(part.startswith(".") for part in name.parts)
        }

    return state


def whole_checkpoints(root: Path) -> State:
    """State: of each checkpoint what is in it, without the code, and whether that agrees."""
    found, steps = {}, {}
    for path in sorted(root.glob("**/*.metadata.json")):
        prefix = str(path).removesuffix(".metadata.json")
        if not files.is_whole(prefix):
            found[os.path.relpath(prefix, root)] = "broken"
            continue
        tensors, steps[prefix] = files.read(prefix), files.metadata_of(prefix)["step"]
        loaded = [*map(files.tensors_of, checkpoint.MultiShardLoader().load_all_shards(prefix))]
        said = digest(repr(tensors).encode())
        found[os.path.relpath(prefix, root)] = f"{said}, step {steps[prefix]}, {loaded == tensors}"
    newest = max(steps, key=lambda prefix: steps[prefix], default=None)
    return found | {"latest is the newest": str(checkpoint.latest_checkpoint(root) == newest)}


def saves(name: str, step: int, attempt: int, *, overwrite: bool = False) -> Act:
    return lambda root: made.save(root / name, step, attempt=attempt, overwrite=overwrite)


def unless_there_is_one(act: Act) -> Act:
    def act_again(root: Path) -> None:
        try:
            act(root)
        except errors.CheckpointError as error:
            if "already" not in str(error):
                raise
            checkpoint.prune(root, keep=99)  # which sweeps

    return act_again


def converts(name: str) -> Act:
    return lambda root: checkpoint.to_safetensors(root / name, root / "st", overwrite=True)


def makes_of_safetensors(root: Path) -> object:
    return checkpoint.from_safetensors(root / "st", root / "made", step=3)


def set_in(root: Path) -> State:
    """State: what is made of the files of safetensors; nothing where they are refused."""
    with tempfile.TemporaryDirectory() as base:
        try:
            checkpoint.from_safetensors(root / "st", Path(base, "m"))
        except errors.CheckpointError:
            return {}
        return {"st": digest(repr(files.read(Path(base, "m"))).encode())}


NOTES = r"_shard_\d+\.(tensors\.json|shard)$"

SAVES = unless_there_is_one(saves("step_9/m9", 9, 1))
OVER, OVER_AGAIN = (saves("m2", 2, attempt, overwrite=True) for attempt in (1, 2))
MAKES_AGAIN = unless_there_is_one(makes_of_safetensors)
PRUNED = r"\.pruned$"

CHECKPOINTS = (
    Subject("saves", made.steps, saves("step_9/m9", 9, 0), whole_checkpoints, SAVES, NOTES),
    Subject(
        *("saves behind", made.steps, lambda root: made.save_behind(root / "step_9/m9", 9)),
        *(whole_checkpoints, SAVES, NOTES),
    ),
    Subject(
        *("overwrites", made.steps, OVER, whole_checkpoints, OVER_AGAIN),
        kept=rf"{NOTES}|{PRUNED}",
        given_up="^m2$",
    ),
    Subject(
        *("prune", made.steps, lambda root: checkpoint.prune(root, keep=1), whole_checkpoints),
        kept=PRUNED,
    ),
    Subject("to_safetensors", made.steps, converts("m1"), bytes_of("st/*", "*.shard")),
    Subject(
        *("to_safetensors, over a set", made.converted, converts("m2"), set_in), given_up="^st$"
    ),
    Subject(
        *("from_safetensors", made.safetensors, makes_of_safetensors, whole_checkpoints),
        *(MAKES_AGAIN, NOTES),
    ),
)


def is_right(plan_dir: Path, index: int) -> bool:
    """Whether a shard is done, found out without the code under test."""
    try:
        said = json.loads((plan_dir / "receipts" / f"shard_{index:06d}.json").read_bytes())
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    return said["status"] == "completed" and all(
        (plan_dir / file["path"]).is_file()
        and file["checksum"]
        == "sha256:" + hashlib.sha256((plan_dir / file["path"]).read_bytes()).hexdigest()
        for file in said["files"].values()
    )


def shards_of_the_plan(root: Path) -> State:
    """State: which outputs there are, which shards are done, and whether the code agrees."""
    path = made.plan_dir(root)
    done = [is_right(path, index) for index in range(2)]
    pending = [index for index in range(2) if not done[index]]
    agrees = ReceiptStore(path).pending(level="valid") == pending
    found = {f"shard {index}": "done" for index in range(2) if done[index]}
    for receipt in path.glob("receipts/shard_*.json"):
        try:
            json.loads(receipt.read_bytes())
        except json.JSONDecodeError:
            found[receipt.name] = "torn"
    return found | bytes_of("*.bin", "*.idx")(path) | {"the code agrees": str(agrees)}


def completes(root: Path) -> None:
    with ReceiptStore(made.plan_dir(root)).claim(0, level="valid") as work:
        made.write_outputs(work, "new")


def records_a_failure(root: Path) -> None:
    store = ReceiptStore(made.plan_dir(root))
    with contextlib.suppress(ZeroDivisionError), store.claim(0, level="valid") as work:
        made.write_outputs(work, "new")
        raise ZeroDivisionError


def completes_what_is_pending(root: Path) -> None:
    for work in ReceiptStore(made.plan_dir(root)).claim_pending(level="valid"):
        with work:
            made.write_outputs(work, "run")


def opens_run(root: Path) -> object:
    listed = receipts.input_files(root / "corpus", "**/*.txt", identity="size")
    plan = receipts.make_plan("corpus", listed, n_shards=2)
    return str(receipts.open_run(root / "to", datasets=["corpus"]).store(plan).plan_hash)


def plan_text(root: Path) -> State:
    return {
        str(path.relative_to(root)): json.loads(path.read_bytes())["plan_hash"]
        for path in root.glob("to/runs/*/datasets/*/*/plan.json")
    }


WHYS = ("new", "purged", "cut", "rotten", "damaged", "failed")
AT_A_SHARD = [*((why, completes) for why in WHYS)]
AT_A_SHARD += [("new", records_a_failure), ("rotten", records_a_failure)]

RECEIPTS = (
    *(
        Subject(
            *(f"{act.__name__}, {why}", made.to_do(why), act, shards_of_the_plan),
            *(completes_what_is_pending, r"claims|receipts/"),
        )
        for why, act in AT_A_SHARD
    ),
    Subject("open_run", within("corpus", made.corpus), opens_run, plan_text),
)


def seals(root: Path) -> object:
    return shardproof.seal(root, workers=1, update=(root / made.LIST).exists()) and None


def seals_again(root: Path) -> None:
    with contextlib.suppress(errors.SealError):  # it is sealed
        seals(root)


SEALS = tuple(
    Subject(f"seal, {name}", prepare, seals, bytes_of(made.LIST), seals_again, r"\.journal$")
    for name, prepare in made.SEALS.items()
)


def _repaired(name: str) -> Subject:
    def act(root: Path) -> object:
        for why in repairs.KINDS[name].at(root).repair().failed.values():
            [number] = [n for n in errno.errorcode if os.strerror(n) in why]
            raise OSError(number, why)
        return None

    def state(root: Path) -> State:
        base = repairs.KINDS[name].at(root).path
        found = repairs.bytes_in(base)
        return {name: digest(data) for name, data in found.items() if repairs.parts() not in name}

    return Subject(f"repair, {name}", repairs.KINDS[name].make, act, state, kept=repairs.parts())


REPAIRS = tuple(map(_repaired, repairs.KINDS))


def stages(root: Path) -> object:
    path = shardproof.stage(root / "shards", root / "to", level="valid", workers=1)
    return {"findings": findings_of(shardproof.validate(path)), "path": str(path)}


def copies(root: Path) -> dict[str, bytes]:
    """What is in each copy that has its final name, less what staging itself puts there."""
    return {
        str(file.relative_to(copy)): file.read_bytes()
        for copy in (root / "to").glob("shardproof-*/*")
        if copy.suffix != ".unfinished"
        for file in copy.rglob("*")
        if not file.name.startswith(".shardproof-") and file.suffix != ".tmp" and file.is_file()
    }


def whole_copy(root: Path) -> State:
    """State: of what has its final name all as one thing, so that half of it is neither."""
    found = copies(root)
    state = bytes_of("shards/*")(root)
    return state | {"copy": digest(repr(sorted(found.items())).encode())} if found else state


def files_of_the_copy(root: Path) -> State:
    return bytes_of("shards/*")(root) | {f"copy/{n}": digest(d) for n, d in copies(root).items()}


def purged_copy(make: made.Prepare) -> made.Prepare:
    """There is a copy of which a file is gone, of the data and of the manifest each."""

    def prepare(root: Path) -> None:
        within("shards", make)(root)
        copy = shardproof.stage(root / "shards", root / "to")
        names = sorted(path for path in copy.iterdir() if not path.name.startswith("."))
        for path in (names[0], names[-1]):
            path.unlink() if path.is_file() else shutil.rmtree(path)

    return prepare


BEGUN = r"\.unfinished(/\.shardproof-stage\.\w+|(/[^./][^/]*)*)$"
STAGED: dict[str, made.Prepare] = {
    "saev": made.saev(),
    "receipts": made.plan(3, absent=[1]),
    "checkpoint": made.two_steps,
}

FRESH = tuple(
    Subject(f"stage, {name}", within("shards", make), stages, whole_copy, kept=BEGUN)
    for name, make in STAGED.items()
)
MENDED = tuple(
    Subject(f"stage, {name} purged", purged_copy(make), stages, files_of_the_copy, kept=BEGUN)
    for name, make in STAGED.items()
)


def stages_all(root: Path) -> None:
    stages(root)
    source = [path for path in (root / "shards").rglob("*") if path.is_file()]
    if copies(root) != {str(f.relative_to(root / "shards")): f.read_bytes() for f in source}:
        raise errors.ShardproofError("the copy is not its source")


COPY = r"^to/shardproof-\d+/shards-[0-9a-f]+($|/)(?!.*\.tmp$)"  # its name tells where the source is
CUT = tuple(
    dataclasses.replace(subject, state=bytes_of("shards/*"), redo=stages_all, left=COPY)
    for subject in FRESH
)


def prefetches(root: Path) -> object:
    names = ["train/0.bin", "train/1.bin"]
    keywords: Any = {"cleanup": "keep", "limits": LIMITS}
    url = f"file://{root}/remote"
    with shardproof.ShardPrefetcher(url, names, root / "cache", **keywords) as prefetcher:
        return [path.read_bytes().hex()[:8] for path in prefetcher]


def fetches(root: Path) -> object:
    proof = "sha256:" + hashlib.sha256(bytes(100)).hexdigest()
    source, to = fetching.open_source(f"file://{root}/remote/train"), root / "cache" / "0.bin"
    with contextlib.closing(source):
        fetched = fetching.fetch_file(source, "0.bin", to, digest=proof, limits=LIMITS)
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


def reads_rows(root: Path) -> object:
    url, cache = f"file://{root}", root / "cache"
    rows = shardproof.datasets.hf_load_dataset_sharded(
        "org/name", cache_dir=cache, source=url, limits=LIMITS
    )
    return list(rows)


PARTS = r"\.shardproof|\.part"
FETCHED = bytes_of("cache/**/*.bin", "remote/**/*.bin")
ALL_BINS = bytes_of("**/*.bin")

FETCHES = (
    Subject("prefetch", made.remote, prefetches, FETCHED, kept=PARTS),
    Subject("prefetch: there already", made.remote, prefetches, FETCHED, kept=PARTS, again=True),
    Subject(
        *("rows over local files", made.parquet, reads_rows, bytes_of("data/*")),
        kept=rf"{PARTS}|^cache/.*\.parquet$",
    ),
    Subject("fetch_file", made.remote, fetches, FETCHED, kept=PARTS),
    Subject("fetch_file of a callable", made.remote, fetches_by_call, FETCHED, kept=PARTS),
    Subject("adopt", made.foreign, adopts, ALL_BINS, kept=PARTS),
)


def dumps(root: Path) -> None:
    shardproof.ShardInfo([shardproof.Shard("acts000000.bin", 2)]).dump(root)
    shardproof.Metadata.load(root).dump(root)


TO_STAGE = within("shards", made.saev())
STAGES = of("stage", "{}/shards", "--to", "{}/to")
CONVERTS = of("checkpoint", "convert", "{}/m1", "{}/st")
ONCE = of("fetch", "-q", "--attempts", "1", "file://{}/remote/train/0.bin", "{}/cache")
ADOPTS = of("adopt", "-q", "{}/theirs", "--from", "file://{}/remote/train")
SHOWS = of("demo", "--to", "{}/demo")
TEXTS = bytes_of("*.txt")
OTHERS = (
    Subject("stage: again", TO_STAGE, stages, whole_copy, kept=BEGUN, again=True),
    Subject("dump", made.saev(), dumps, bytes_of("*.json")),
    Subject("checkpoint convert", made.steps, CONVERTS, bytes_of("st/*")),
    Subject("stage, the command", TO_STAGE, STAGES, whole_copy, kept=BEGUN),
    Subject("fetch, the command", made.remote, ONCE, FETCHED, kept=PARTS, refused=(1, 3)),
    Subject("adopt, the command", made.foreign, ADOPTS, ALL_BINS, kept=PARTS),
    Subject("demo", made.corpus, of("demo"), TEXTS),
    Subject("demo --to", made.corpus, SHOWS, TEXTS, kept="^demo/"),
)

KILLED = {
    "checkpoints": CHECKPOINTS,
    "receipts": RECEIPTS,
    "seals": SEALS,
    "repairs": REPAIRS,
    "staging": FRESH + MENDED,
}
"""Those that whoever kills them may kill at each call: all but those who leave parts."""

SYNCED = KILLED | {"staging": CUT}
"""After a power cut a copy may be torn, which is not synced: the next run does not believe it."""

WRITERS = KILLED | {"fetches": FETCHES, "others": OTHERS}
