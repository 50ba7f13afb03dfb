"""Loaders and checkpoints beside their limits and others, with a CUDA device or without one.

::

    python benchmarks/device.py [--device cpu] [--gib N] [--only SECTION ...] [--json FILE]

Every contender runs in a process of its own; they take turns, after one round that is not counted.
What can't run here is left out, and the section's note says why. A contender that fails is left out
too: what it raised is on standard error. There are also the figures of each section when it ends.
"""

import argparse
import contextlib
import functools
import importlib.util
import itertools
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import checkpoint
import loaders
import proving
import validate as looks
from _device_rows import CONTENDERS, N_CPUS, N_THREADS, N_WARM, save_of, state_of
from _figures import Ruler, Section, figures, ratio_of
from _loader_peers import saev_missing
from _races import Command, child, play_or, warm_race
from _report import parser, report

KINDS = {"ordered": loaders.ORDERED, "shuffled": loaders.SHUFFLED}
DIGESTS = ("sha256", "sha256-tree", "blake3")
N_STEPS, N_BATCHES, N_ROWS, N_FILES = 100, 64, 2**17, 64
RESIDENT = "a batch that is on the device already"
PINNED, PAGEABLE = "a batch copied from pinned memory", "a batch copied from pageable memory"
PREADV = f"`os.preadv`, {N_THREADS} threads, buffers used again"
WRITE = f"`os.pwritev`, {N_THREADS} threads, pieces of 16 MiB"
READ = f"`os.preadv`, {N_THREADS} threads, the same arrays"
STREAMERS = ("fastsafetensors", "runai_model_streamer")
PLACES = {"cpu": "new memory", "cuda": "the device"}
FROM_DEVICE = ", tensors of the device"
HASH, HASH_B3 = (f"{name}, {N_CPUS} threads, of memory" for name in ("SHA-256", "BLAKE3"))


Row = tuple[Command, str]
"""A contender, and the modules, commands or the device ("cuda") without which there is none."""


def row(what: str, *arguments: object, needs: str = "") -> Row:
    return child(what, *arguments), needs


def missing(needs: str, device: str) -> str:
    """Return what isn't there, if anything."""
    if "cuda" in needs and device == "cpu":
        return "needs a device"
    found = [name for name in needs.split() if name != "cuda" and not is_installed(name)]
    return f"not installed: {found[0]}" if found else ""


def is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None or shutil.which(name) is not None


def raced(
    options: argparse.Namespace, section: Section, rows: Sequence[Row], n: int = 0, scale: float = 1
) -> Section:
    """Let contenders take turns; the note names those that can't run here, or failed."""
    why = {command.what: missing(needs, options.device) for command, needs in rows}
    commands = [command for command, _ in rows if not why[command.what]]
    race = warm_race(commands, n or options.rounds)
    try:
        section.figures = figures(commands, race, scale) if commands else []
    except ValueError:  # no figure came from one that died
        section.note += " Nothing was measured: a contender died."
    why |= {f.what: "failed" for f in section.figures if any(map(math.isnan, f.values))}
    section.figures = [figure for figure in section.figures if not why[figure.what]]
    section.note += f" {options.rounds} rounds."
    for reason in dict.fromkeys(filter(None, why.values())):
        names = [what for what in why if why[what] == reason]
        left_out = "; ".join(names) if section.figures else "all"
        section.note += f" Left out, {reason}: {left_out}."
    return section


def aim(
    section: Section, what: str, limits: Mapping[str, float], limit: float, at_least: bool = True
) -> None:
    """Add a ruler over the lesser of some limits, or a share of each, unless nobody ran."""
    found = {figure.what: figure for figure in section.figures}
    over = " and ".join(f"{share:g} x {name}" for name, share in limits.items())
    text = f"{what} over {'the lesser of ' * (len(limits) > 1)}{over}".replace(" 1 x ", " ")
    ratios = [(ratio_of(found, what, name), share) for name, share in limits.items()]
    measured = max((ratio / share for ratio, share in ratios if ratio is not None), default=None)
    if what in found:
        section.rulers.append(Ruler(text, limit, measured, at_least))


# The sections of loaders.


def shards_of(options: argparse.Namespace, place: Path) -> Path:
    """Return the data set, which is made unless it is there."""
    path = place / "saev" / "shards" / "bench"  # saev insists on such a path
    return loaders.make_shards_dir(path, 1, options.gib * 2**30)


def step(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    """Steps of training, whose batches come from loaders."""
    start = functools.partial(row, needs="torch cuda")
    fixed = "stepping", shards_of(options, place), options.device, N_STEPS
    said = {"sent": '`device="cuda"`', "fetched": '`.to("cuda")` by the loop'}
    rows = [start(RESIDENT, *fixed, "resident")]
    for how, kind, n in itertools.product(said, KINDS, (None, 8)):
        rows.append(
            start(f"{KINDS[kind]}, `workers={n}`, {said[how]}", *fixed, "ours", kind, n, how)
        )
    rows.append(start("torch, `np.memmap`, 4 processes, pinned", *fixed, "mapped", 4))
    note = (
        "d_model 1024, d_sae 16384, bfloat16, fused AdamW, 16384 rows of float32 (64 MiB) a step; "
        f"{N_STEPS} steps after {N_WARM}."
    )
    if reason := saev_missing(options.saev):
        note += f" saev: not measured: {reason}."
    else:
        rows.append(start("saev, shuffled, 10 steps", *fixed[:3], 10, "saev", options.saev))
    section = raced(options, Section("Step of training", note, "ms a step"), rows)
    for figure in section.figures:
        if said["sent"] in figure.what:
            aim(section, figure.what, {RESIDENT: 1}, 1.03, at_least=False)
    yield section


def deliver(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    """To the device, and nothing else."""
    start, shards = functools.partial(row, needs="torch cuda"), shards_of(options, place)
    rows = [start(PINNED, "copying", shards, options.device, "pinned")]
    rows.append(start(PAGEABLE, "copying", shards, options.device, "pageable"))
    numbers = [*(n for n in (2, 4, 8, 12, 16) if n <= 2 * N_CPUS), None]
    names = [f"{KINDS[kind]}, `workers={n}`" for kind, n in itertools.product(KINDS, numbers)]
    for name, given in zip(names, itertools.product(KINDS, numbers), strict=True):
        rows.append(start(name, "delivering", shards, options.device, N_BATCHES, *given))
        what = f"{name}, on the host"
        rows.append(start(what, "delivering", shards, "host", N_BATCHES, *given))
    section = Section("Delivery to the device", f"{N_BATCHES} batches of 64 MiB or all.", "GB/s")
    section = raced(options, section, rows)
    for name in names:
        aim(section, name, {f"{name}, on the host": 1, PINNED: 0.9}, 0.8)
    yield section


def host(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    """In memory of the host."""
    shards, n_processes = shards_of(options, place), 4 if N_CPUS > 2 else 2
    rows = [row(PREADV, "preadv", shards), row("`np.copyto`, 1 thread", "rows", shards, "memcpy")]
    for kind, n in itertools.product(KINDS, (1, 2, 4, 8, 12, 16, None)):
        what = f"{KINDS[kind]}, `workers={n}`"
        rows.append(row(what, "delivering", shards, "host", N_BATCHES, kind, n))
    for kind, name in KINDS.items():
        what = f"torch, {n_processes} processes, `torch_dataset()` of {name}"
        fixed = "through_torch", shards, options.device, N_BATCHES, kind, n_processes
        rows.append(row(what, *fixed, needs="torch"))
    rows.append(row(loaders.INDEXED, "rows", shards, "indexed", N_ROWS))
    rows.append(row(loaders.MEMMAP_ROWS, "rows", shards, "memmap_rows", N_ROWS))
    note = f"{options.gib} GiB; {N_BATCHES} batches of 64 MiB or all; {N_ROWS} random rows."
    yield raced(options, Section("Delivery on the host", note, "GB/s"), rows)


# The sections of checkpoints.


def data_of(options: argparse.Namespace, place: Path) -> Path:
    """Write what is saved, a quarter as large as the data set, unless it is there."""
    if not (place / "data").exists():
        checkpoint.make_data(place / "data", options.gib * 2**28)
    return place


def ours(digest: str, where: str) -> str:
    return f"ours, {digest}{FROM_DEVICE if where == 'cuda' else ''}"


def by_digest(call: str, place: Path, *more: object) -> list[Row]:
    """Bare hashing, and ours by each algorithm, with tensors in each place."""
    rows = [row(HASH, "hashing", place, "sha256")]
    rows.append(row(HASH_B3, "hashing", place, "blake3", needs="blake3"))
    for where, digest in itertools.product(("host", "cuda"), DIGESTS):
        needs = f"{'blake3 ' * (digest == 'blake3')}{'torch cuda' * (where == 'cuda')}"
        rows.append(row(ours(digest, where), call, place, where, digest, *more, needs=needs))
    return rows


def save(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    """A shard, not synced."""
    fixed = "saving", data_of(options, place)
    rows = [row(WRITE, *fixed, "host", "plain"), *by_digest(*fixed)]
    rows.append(row("`safetensors.numpy`", *fixed, "host", "numpy", needs="safetensors"))
    at, where = FROM_DEVICE if options.device == "cuda" else "", options.device
    what = f"`safetensors.torch`{at}"
    rows.append(row(what, *fixed, where, "torch", needs="torch safetensors"))
    for how, n in {"dcp": 1, "dcp-threads": N_THREADS}.items():
        rows.append(row(f"`dcp.save`, `thread_count={n}`{at}", *fixed, where, how, needs="torch"))
    section = raced(options, Section("Saving a shard, not synced", size_of(options), "GB/s"), rows)
    for where in ("host", "cuda"):
        aim(section, ours("sha256-tree", where), {WRITE: 1, HASH: 1}, 0.9)
        aim(section, ours("blake3", where), {WRITE: 1}, 0.9)
    yield section


def size_of(options: argparse.Namespace) -> str:
    return f"{options.gib * 256} MiB in tensors of 64 MiB and 256 small ones."


def load(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    """A shard, into memory in use; others make new memory."""
    fixed, start = ("loading", data_of(options, place)), functools.partial(row, needs="torch cuda")
    save_all(place)
    rows = [row(READ, *fixed, "host", "plain"), *by_digest(*fixed, "valid")]
    rows.append(row(ours("unverified", "host"), *fixed, "host", "sha256", "complete"))
    rows.append(start(ours("unverified", "cuda"), *fixed, "cuda", "sha256", "complete"))
    rows.append(row("`safetensors.numpy`", *fixed, "host", "numpy", needs="safetensors"))
    what = "`safetensors.torch`, which only maps the file"
    rows.append(row(what, *fixed, "cpu", "torch", needs="torch safetensors"))
    for how, where in itertools.product(STREAMERS, PLACES):
        needs = f"torch safetensors {how} {'cuda' * (where == 'cuda')}"
        rows.append(row(f"`{how}`, to {PLACES[where]}", *fixed, where, how, needs=needs))
    what = "`safetensors.torch`, to the device"
    rows.append(row(what, *fixed, "cuda", "torch", needs="torch cuda safetensors"))
    section = Section("Loading a shard", f"{size_of(options)} Others make memory.", "GB/s")
    section = raced(options, section, rows)
    for where in ("host", "cuda"):
        aim(section, ours("sha256-tree", where), {READ: 1, HASH: 1}, 0.8)
    for digest, how in itertools.product(("sha256-tree", "blake3"), STREAMERS):
        aim(section, ours(digest, "cuda"), {f"`{how}`, to {PLACES['cuda']}": 1}, 0.8)
    yield section


def save_all(place: Path) -> None:
    """Save in each format that is installed here."""
    state = state_of(place, "host")
    for digest in DIGESTS:
        if digest != "blake3" or is_installed(digest):
            checkpoint.save_as_valid(place / digest / "x", [state], digest)
    if is_installed("safetensors"):
        (place / "numpy").mkdir()
        save_of("numpy")(place / "numpy", state)


def behind(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    """Saves behind the training: until it may go on, and until they are durable."""
    place, n_bytes = data_of(options, place), min(2**30, options.gib * 2**28)
    where, needs = ("cuda", "torch cuda") if options.device == "cuda" else ("host", "")
    mine = "behind", place, where, n_bytes, "ours"
    theirs = "behind", place, options.device, n_bytes, "dcp"
    rows = [
        row("`begin_shard`, `sync=False`", *mine, "", needs=needs),
        row("`begin_shard`, `sync=True`", *mine, "sync", needs=needs),
        row("`dcp.async_save`", *theirs, "", needs="torch"),
        row("`dcp.async_save`, a `DefaultStager` that is kept", *theirs, "staged", needs="torch"),
    ]
    note = f"{n_bytes // 2**20} MiB of tensors ({where}), ours with sha256-tree."
    section = Section("Until training goes on while a save is written", note, "ms")
    section = raced(options, section, rows, 2 * (1 + options.rounds))
    for figure in section.figures:
        going_on, durable = figure.values[::2], figure.values[1::2]
        figure.extra["until durable"] = f"{statistics.median(durable[1:]):.0f}"
        figure.extra["first save"] = f"{going_on[0]:.0f}, durable {durable[0]:.0f}"
        figure.values, figure.beside = going_on[1:], figure.beside[2::2]
    yield section


# Looks.


def validate(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    """Many small files, and then every byte of some large ones."""
    small = looks.make_shards_dir(place / "small", options.files)
    names = {0: "`validate(path)`"} | {n: f"`validate(path, workers={n})`" for n in (1, 4, 16)}
    # Apart from each other: whatever runs after many threads is slower for a moment.
    for title, numbers in {"Small files, present": (0, 1), "The same by threads": (4, 16)}.items():
        fixed = "timed", small, "validate", "validate", "present"
        rows = [row(names[n], *fixed, *filter(None, [n])) for n in numbers]
        section = Section(title, f"{options.files} files.", "us a file")
        section = raced(options, section, rows, scale=1e6 / options.files)
        aim(section, names[0], {names[1]: 1}, 1.05, at_least=False)
        yield section
    yield valid(options, place)


def valid(options: argparse.Namespace, place: Path) -> Section:
    """Prove large files by their SHA-256, which a list states."""
    sizes = argparse.Namespace(files=N_FILES, mebibytes=16 * options.gib)
    large = proving.large_files(sizes, place)
    subprocess.run([*proving.SHARDPROOF, "seal", large], check=True, capture_output=True)
    hashed, ours = f"`hashlib.file_digest`, {N_CPUS} threads", "`validate(path, level='valid')`"
    rows = [
        row(hashed, "timed", large, "proving", "hashing", "sha256"),
        row(ours, "timed", large, "proving", "looking", "valid"),
        row(f"`xargs -P {N_CPUS} sha256sum`", "sha256sum", large, needs="xargs sha256sum"),
    ]
    section = Section("Large files, valid", f"{N_FILES} files of {sizes.mebibytes} MiB.", "s")
    section = raced(options, section, rows)
    for figure in section.figures:
        figure.extra["GB/s"] = f"{options.gib * 2**30 / 1e9 / figure.median:.2f}"
    aim(section, hashed, {ours: 1}, 0.95)
    return section


MEASURES = {made.__name__: made for made in (step, deliver, host, save, load, behind, validate)}
OF_SHARDS = {"step", "deliver", "host"}


def measured(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    """Yield all sections; tell of each when it ends, and remove what none needs any more."""
    done: list[Section] = []
    for number, name in enumerate(options.only):
        begin = time.perf_counter()
        for section in MEASURES[name](options, place):
            done.append(section)
            tell(options, done, time.perf_counter() - begin)
            yield section
        if OF_SHARDS.isdisjoint(options.only[number + 1 :]):
            shutil.rmtree(place / "saev", ignore_errors=True)
        for formats in (*DIGESTS, "numpy"):
            shutil.rmtree(place / formats, ignore_errors=True)


def tell(options: argparse.Namespace, done: Sequence[Section], spent: float) -> None:
    """Print the last section, and write all of them where the figures are to be in the end."""
    print(f"{done[-1].title}: {spent:.0f} s", file=sys.stderr)
    for figure in done[-1].figures:
        extra = "".join(f", {name} {value}" for name, value in figure.extra.items())
        print(f"  {figure.what}: {figure.median:.2f} {done[-1].unit}{extra}", file=sys.stderr)
    if options.json not in {None, "-"}:
        data = {"sections": [section.to_dict() for section in done]}
        Path(options.json).write_text(json.dumps(data, indent=2) + "\n")


def play(contender: str, place: str, *arguments: str) -> None:
    """Be a child: measure once for each line, and print the figure, or that there is none."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # others print what they like: it goes to standard error
    prepared = functools.cache(lambda: CONTENDERS[contender](Path(place), *arguments))
    print("ready", file=answers, flush=True)
    # The first round isn't timed. Where there are processors enough, all prepare at once for it.
    if N_CPUS > 4:
        with contextlib.suppress(BaseException):
            prepared()
    for _ in sys.stdin:
        try:
            figure = prepared()()
        except BaseException:  # such as torch's CheckpointException
            traceback.print_exc()
            figure = math.nan
        print(figure, file=answers, flush=True)


def parse_arguments() -> argparse.Namespace:
    has_cuda = is_installed("torch") and importlib.import_module("torch").cuda.is_available()
    found = parser(__doc__, [*MEASURES])
    found.set_defaults(dir=Path("/dev/shm"))
    found.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if has_cuda else "cpu")
    found.add_argument("--rounds", type=int, default=3)
    found.add_argument("--gib", type=int, help="size of the data set; of a checkpoint a quarter")
    found.add_argument("--files", type=int, default=100_000, help="small files to validate")
    found.add_argument("--saev", metavar="DIR", help="a checkout of OSU-NLP-Group/saev")
    options = found.parse_args()
    options.gib = options.gib or affordable(options.dir)
    return options


def affordable(directory: Path) -> int:
    """Return how many GiB a data set may have: a quarter of the memory, or of the room, or 16."""
    memory = re.search(r"MemAvailable:\s*(\d+)", Path("/proc/meminfo").read_text())
    room = [shutil.disk_usage(directory).free, int(memory[1]) * 2**10 if memory else 2**32]
    return max(1, min(16, min(room) // 4 // 2**30))


def versions(options: argparse.Namespace) -> str:
    text = checkpoint.versions()
    if options.device == "cuda":
        text += f", {importlib.import_module('torch').cuda.get_device_name()}"
    return text


def main() -> None:
    options = parse_arguments()
    report(options, measured, versions(options))


if __name__ == "__main__":
    play_or(main, play)
