"""How fast the loaders deliver, beside a copy in memory, `cat`, bare reads and other loaders.

::

    python benchmarks/loaders.py [--data DIR] [--saev CHECKOUT] [--json FILE]

Every contender runs in a process of its own and times itself. Within a section the contenders take
turns (A B C A B C ...), after one round that is not counted. What is timed comes right after the
same thing untimed: virtual machines lend memory that was free for seconds to others, and fetch it
back page by page when it is touched, which would be all that is measured.
"""

import argparse
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import _loader_peers as peers
import numpy as np
from _figures import Figure, Ruler, Section, figures, ratio_of
from _races import Command, child, play_or
from _races import warm_race as race
from _report import parser, report

from shardproof import Metadata, Shard, ShardInfo
from shardproof.loaders import IndexedDataset, OrderedDataLoader, ShuffledDataLoader

D_MODEL, CONTENT = 768, 196
ROW_BYTES = 4 * D_MODEL
BATCH = 16384
POOL = 2**17
DATA_BYTES, SHARD_BYTES = 2 * 2**30, 2**28
MEMCPY_BYTES = 2**29
UNIT = "1000 tokens a second"
SECTIONS = ("warm", "layers", "first", "memory", "bytes", "cold")

Run = peers.Run
rate = peers.rate


# Contenders: each is prepared with a directory, and returns what measures it once.


def memcpy(_: Path) -> Run:
    """Copy between two arrays that were touched before."""
    source, target = (np.ones(MEMCPY_BYTES, np.uint8) for _ in range(2))

    def run() -> float:
        begin = time.perf_counter()
        np.copyto(target, source)
        return MEMCPY_BYTES / ROW_BYTES / (time.perf_counter() - begin)

    return run


def shard_files(shards_dir: Path) -> list[Path]:
    return [shards_dir / shard.name for shard in ShardInfo.load(shards_dir)]


def cat(shards_dir: Path, cold: str = "") -> Run:
    """Every byte of the shards to /dev/null; where one layer is wanted, only its tokens count."""
    files = shard_files(shards_dir)
    metadata = Metadata.load(shards_dir)
    n_tokens = metadata.n_examples * metadata.tokens_per_example

    def run() -> float:
        if cold:
            drop_cache(files)
        begin = time.perf_counter()
        subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)
        return n_tokens / (time.perf_counter() - begin)

    return run


Piece = tuple[int, int, int]
"""Descriptor, offset and length."""


def whole_pieces(shards_dir: Path) -> list[Piece]:
    """All bytes, in pieces as large as a batch."""
    size, step = Metadata.load(shards_dir).shard_bytes, BATCH * ROW_BYTES
    fds = [os.open(file, os.O_RDONLY) for file in shard_files(shards_dir)]
    return [(fd, at, min(step, size - at)) for fd in fds for at in range(0, size, step)]


def layer_pieces(shards_dir: Path) -> list[Piece]:
    """The content tokens of the first layer, in a piece an example."""
    examples, layers, tokens, _ = Metadata.load(shards_dir).shard_shape
    fds = [os.open(file, os.O_RDONLY) for file in shard_files(shards_dir)]
    starts = [(example * layers * tokens + 1) * ROW_BYTES for example in range(examples)]
    return [(fd, start, CONTENT * ROW_BYTES) for fd in fds for start in starts]


def preadv(shards_dir: Path, what: str, n_threads: str, memory: str) -> Run:
    """Bare reads, into buffers that are used again or into fresh ones."""
    pieces = (whole_pieces if what == "all" else layer_pieces)(shards_dir)
    longest = max(length for *_, length in pieces)
    ring = [np.ones(longest, np.uint8) for _ in range(5)]

    def read(number: int) -> int:
        fd, offset, length = pieces[number]
        buffer = np.empty(length, np.uint8) if memory == "fresh" else ring[number % 5][:length]
        done = 0
        while done < length:
            done += os.preadv(fd, [buffer[done:].data], offset + done)
        return done

    executor = ThreadPoolExecutor(int(n_threads))

    def run() -> float:
        begin = time.perf_counter()
        n_bytes = sum(executor.map(read, range(len(pieces))))
        return n_bytes / ROW_BYTES / (time.perf_counter() - begin)

    return run


def memmap_counts(shards_dir: Path) -> Iterator[int]:
    """Copies of slices of a memory map, content tokens of the first layer, batches of examples."""
    shape = Metadata.load(shards_dir).shard_shape
    step = BATCH // CONTENT
    for file in shard_files(shards_dir):
        acts = np.memmap(file, np.float32, mode="r", shape=shape)
        for at in range(0, len(acts), step):
            batch = np.array(acts[at : at + step, 0, 1:]).reshape(-1, D_MODEL)
            yield len(batch)


def memmap(shards_dir: Path) -> Run:
    return lambda: rate(memmap_counts(shards_dir))


def loader_of(kind: str, shards_dir: Path, **options: Any) -> Any:
    made = {"ordered": OrderedDataLoader, "shuffled": ShuffledDataLoader}[kind]
    return made(shards_dir, layer=0, **options)


def counts_of(loader: Any) -> Iterator[int]:
    for batch in loader:
        yield len(batch["act"])


def ours(shards_dir: Path, kind: str, workers: str = "2", cold: str = "") -> Run:
    """One of our loaders, a whole epoch; each batch is dropped when the next one is there."""
    loader = loader_of(kind, shards_dir, workers=int(workers))
    files = shard_files(shards_dir)

    def run() -> float:
        if cold:
            drop_cache(files)
        return rate(counts_of(loader))

    return run


def kept(shards_dir: Path) -> Run:
    """All batches of an epoch kept, so that no memory can be used again."""
    loader = loader_of("ordered", shards_dir)

    def run() -> float:
        begin = time.perf_counter()
        batches = list(loader)
        seconds = time.perf_counter() - begin
        return sum(len(batch["act"]) for batch in batches) / seconds

    return run


def permuted(shards_dir: Path, n_rows: str) -> Run:
    """A true permutation; the beginning of an epoch."""
    loader = loader_of("shuffled", shards_dir, buffer_size=None)
    return lambda: rate(counts_of(loader), limit=int(n_rows))


def random_rows(n_rows: int, n_wanted: int) -> Any:
    return np.random.default_rng(0).permutation(n_rows)[:n_wanted]


def indexed(shards_dir: Path, n_rows: str) -> Run:
    """Random rows, 4096 at a time."""
    dataset = IndexedDataset(shards_dir, layer=0)
    batches = random_rows(len(dataset), int(n_rows)).reshape(-1, 4096)
    return lambda: rate(len(dataset.__getitems__(rows)["act"]) for rows in batches)


def memmap_rows(shards_dir: Path, n_rows: str) -> Run:
    """Random rows from memory maps that stay, 4096 at a time."""
    metadata = Metadata.load(shards_dir)
    per_shard = metadata.examples_per_shard * metadata.tokens_per_example
    maps = [np.memmap(file, np.float32, mode="r") for file in shard_files(shards_dir)]
    rows = random_rows(metadata.n_examples * CONTENT, int(n_rows)).reshape(-1, 4096)

    def batch_of(numbers: Any) -> Any:
        example, token = np.divmod(numbers, CONTENT)
        shard, place = np.divmod(example * (CONTENT + 1) + 1 + token, per_shard)
        batch = np.empty((len(numbers), D_MODEL), np.float32)
        for number, acts in enumerate(maps):
            here = np.flatnonzero(shard == number)
            batch[here] = acts.reshape(-1, D_MODEL)[place[here]]
        return batch

    return lambda: rate(len(batch_of(numbers)) for numbers in rows)


def one_by_one(shards_dir: Path, n_rows: str) -> Run:
    """Random rows, one at a time."""
    dataset = IndexedDataset(shards_dir, layer=0)
    rows = random_rows(len(dataset), int(n_rows)).tolist()
    return lambda: rate(len(dataset[row]["act"]) // D_MODEL for row in rows)


def first(shards_dir: Path, kind: str, memory: str) -> Run:
    """Milliseconds from the constructor to the first batch of a loader that is new each time."""

    def once() -> float:
        begin = time.perf_counter()
        with loader_of(kind, shards_dir) as loader:
            batches = iter(loader)
            next(batches)
            return (time.perf_counter() - begin) * 1e3

    def run() -> float:
        if memory == "warm":
            once()
        else:
            time.sleep(4)
        return once()

    return run


def peak(shards_dir: Path, kind: str) -> Run:
    """Peak resident memory in MB, above that of a process that has only imported numpy."""

    def run() -> float:
        idle = _peak_bytes("import numpy")
        code = (
            "import sys, numpy; from shardproof import loaders;"
            f"loader = loaders.{kind}(sys.argv[1], layer=0);\nfor batch in loader: pass"
        )
        return (_peak_bytes(code, os.fspath(shards_dir)) - idle) / 1e6

    return run


# The kernel hands ru_maxrss on from the parent across exec(2); VmHWM begins anew.
def _peak_bytes(code: str, *arguments: str) -> int:
    code += "\nprint(open('/proc/self/status').read())"
    argv = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found = re.search(r"VmHWM:\s*(\d+) kB", done.stdout)
    return int(found[1]) * 1024 if found else 0


def bytes_read(shards_dir: Path, kind: str, counter: str) -> Run:
    """Bytes read over bytes delivered, as the kernel counts them for this process."""
    loader = None if kind == "memmap" else loader_of(kind, shards_dir)
    files = shard_files(shards_dir)

    def run() -> float:
        if counter == "read_bytes":
            drop_cache(files)
        before = _io(counter)
        counts = memmap_counts(shards_dir) if loader is None else counts_of(loader)
        n_rows = sum(counts)
        return (_io(counter) - before) / (n_rows * ROW_BYTES)

    return run


def _io(counter: str) -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)[counter])


def drop_cache(files: Sequence[Path]) -> None:
    """Let the kernel forget what it holds of some files."""
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        os.fsync(fd)  # what is not on the disk yet is not dropped
        if sys.platform == "linux":
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


CONTENDERS: dict[str, Callable[..., Run]] = {
    "memcpy": memcpy,
    "cat": cat,
    "preadv": preadv,
    "memmap": memmap,
    "ours": ours,
    "kept": kept,
    "permuted": permuted,
    "indexed": indexed,
    "memmap_rows": memmap_rows,
    "one_by_one": one_by_one,
    "first": first,
    "peak": peak,
    "bytes_read": bytes_read,
    **peers.CONTENDERS,
}

ONCE = {"first", "peak", "bytes_read", "saev_ordered", "saev_shuffled"}
"""Contenders that are not warmed: memory does not matter to them, or they start new processes."""


def play(contender: str, shards_dir: str, *arguments: str) -> None:
    """Be a child: say "ready", then measure once for each line and print the figure."""
    # Others print what they like: it goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run = CONTENDERS[contender](Path(shards_dir), *arguments)
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        if contender not in ONCE:
            run()
        print(run(), file=answers, flush=True)


# The directories.


def make_shards_dir(
    shards_dir: Path, n_layers: int, n_bytes: int, shard_bytes: int = SHARD_BYTES
) -> Path:
    """Write a directory, unless it is there, whose rows begin with example, token and layer."""
    if (shards_dir / "shards.json").exists():
        return shards_dir
    shards_dir.mkdir(parents=True)
    metadata = _metadata(n_layers, n_bytes, shard_bytes)
    metadata.dump(shards_dir)
    names = [f"acts{number:06}.bin" for number in range(metadata.n_shards)]
    for number, name in enumerate(names):
        _shard(metadata, number).tofile(shards_dir / name)
    _finish(shards_dir, metadata, names)
    return shards_dir


def _metadata(n_layers: int, n_bytes: int, shard_bytes: int = SHARD_BYTES) -> Metadata:
    """Shards that are all full, so that whoever reads whole files reads no unused rows."""
    example_tokens = n_layers * (CONTENT + 1)
    per_shard = shard_bytes // (example_tokens * ROW_BYTES)
    return Metadata(
        family="clip",
        ckpt="ViT-B-32/openai",
        layers=tuple(range(n_layers)),
        content_tokens_per_example=CONTENT,
        cls_token=True,
        d_model=D_MODEL,
        n_examples=per_shard * (n_bytes // shard_bytes),
        max_tokens_per_shard=per_shard * example_tokens,
        data="",
        dataset="/data/images",
    )


def _shard(metadata: Metadata, number: int) -> Any:
    n_examples, n_layers, n_tokens, _ = metadata.shard_shape
    acts = np.empty(metadata.shard_shape, np.float32)
    acts[:] = np.random.default_rng(number).standard_normal(D_MODEL, np.float32)
    acts[..., 0] = np.arange(number * n_examples, (number + 1) * n_examples)[:, None, None]
    acts[..., 1] = np.arange(n_tokens)
    acts[..., 2] = np.arange(n_layers)[:, None]
    return acts


def _finish(shards_dir: Path, metadata: Metadata, names: Sequence[str]) -> None:
    ShardInfo([Shard(name, metadata.examples_per_shard) for name in names]).dump(shards_dir)
    labels = np.random.default_rng(0).integers(0, 20, metadata.labels_bytes, np.uint8)
    labels.tofile(shards_dir / "labels.bin")


def begin_of(shards_dir: Path, n_shards: int) -> Path:
    """Return a directory of its first shards: the same files, by hard links."""
    part = shards_dir.with_name(f"{shards_dir.name}-begin")
    if part.exists():
        return part
    part.mkdir()
    n_layers = len(Metadata.load(shards_dir).layers)
    metadata = _metadata(n_layers, n_shards * SHARD_BYTES)
    names = [file.name for file in shard_files(shards_dir)[:n_shards]]
    for name in names:
        os.link(shards_dir / name, part / name)
    metadata.dump(part)
    _finish(part, metadata, names)
    return part


# The sections.


ORDERED, SHUFFLED = "`OrderedDataLoader`", "`ShuffledDataLoader`"
MEMCPY, CAT = "memcpy", "`cat`"
INDEXED, ONE = (
    "`IndexedDataset`, 4096 random rows at a time, 2 threads",
    "`IndexedDataset`, one row at a time",
)
MEMMAP_ROWS = "`np.memmap`, 4096 random rows at a time, 1 thread"
SAEV = {
    "ordered": "saev, ordered",
    "shuffled": "saev, shuffled, pool of 128 Ki rows too",
    "indexed": "saev, one row at a time",
}


def warm(options: argparse.Namespace, place: Path) -> Section:
    """One layer, all of it in the page cache."""
    shards_dir = make_shards_dir(place / "layers-1", 1, DATA_BYTES)
    parts = {"": ""}
    commands = [
        child(MEMCPY, "memcpy", shards_dir),
        child(CAT, "cat", shards_dir),
        child("`preadv`, 1 thread, buffers used again", "preadv", shards_dir, "all", 1, "ring"),
        child("`preadv`, 2 threads, buffers used again", "preadv", shards_dir, "all", 2, "ring"),
        child("`preadv`, 2 threads, fresh memory", "preadv", shards_dir, "all", 2, "fresh"),
        child("`np.memmap`, slices copied", "memmap", shards_dir),
        child(f"{ORDERED}, `workers=1`", "ours", shards_dir, "ordered", 1),
        child(ORDERED, "ours", shards_dir, "ordered"),
        child(f"{ORDERED}, every batch kept", "kept", shards_dir),
        child(SHUFFLED, "ours", shards_dir, "shuffled"),
        _part(parts, f"{SHUFFLED}, `buffer_size=None`", "permuted", shards_dir, 8 * BATCH),
        _part(parts, INDEXED, "indexed", shards_dir, 10 * BATCH),
        _part(parts, MEMMAP_ROWS, "memmap_rows", shards_dir, 10 * BATCH),
        _part(parts, ONE, "one_by_one", shards_dir, 20_000),
    ]
    left_out = _peers(options, shards_dir, commands, parts)
    note = _warm_note(shards_dir, options, left_out)
    values = figures(commands, race(commands, options.rounds), 1e-3)
    section = Section("One layer, warm", note, UNIT, values)
    _beside_cat(section, parts)
    section.rulers = _warm_rulers({figure.what: figure for figure in values})
    return section


def _part(parts: dict[str, str], what: str, name: str, shards_dir: Path, n_rows: int) -> Command:
    """A contender that gets the first rows only, which the table says."""
    parts[what] = f"{n_rows} rows"
    return child(what, name, shards_dir, n_rows)


def _peers(
    options: argparse.Namespace, shards_dir: Path, commands: list[Command], parts: dict[str, str]
) -> list[str]:
    """Add the peers that can run here; return why the others can't."""
    left_out = []
    if reason := peers.saev_missing(options.saev):
        left_out.append(f"saev: not measured: {reason}.")
    else:
        for kind, n_rows in (("ordered", BATCH), ("shuffled", 8 * BATCH), ("indexed", 2000)):
            what = SAEV[kind]
            parts[what] = f"{n_rows} rows"
            commands.append(child(what, f"saev_{kind}", shards_dir, n_rows, options.saev))
    for what, module, name, part in peers.OTHERS:
        if importlib.util.find_spec(module) is None:
            left_out.append(f"{what}: not measured: {module} is not installed.")
            continue
        parts[what] = part
        commands.append(child(what, name, shards_dir))
    return left_out


def _warm_note(shards_dir: Path, options: argparse.Namespace, left_out: Sequence[str]) -> str:
    metadata = Metadata.load(shards_dir)
    n_rows = metadata.n_examples * CONTENT
    size = metadata.n_shards * metadata.shard_bytes / 2**30
    return (
        f"{size:.2f} GiB of float32 in {metadata.n_shards} shards: {n_rows} content tokens of "
        f"{D_MODEL} values; {options.rounds} rounds. Peers without workers, unless the name says "
        "so; the start of each and its first batch are not counted. " + " ".join(left_out)
    ).strip()


def _beside_cat(section: Section, parts: Mapping[str, str]) -> None:
    found = {figure.what: figure for figure in section.figures}
    for figure in section.figures:
        figure.extra["over `cat`"] = f"{ratio_of(found, figure.what, CAT):.2f}"
        figure.extra["part"] = parts.get(figure.what) or "all"


def _warm_rulers(found: Mapping[str, Figure]) -> list[Ruler]:
    aims = [
        (ORDERED, CAT, 1.0),
        (ORDERED, MEMCPY, 0.6),
        (SHUFFLED, CAT, 0.5),
        (SHUFFLED, SAEV["shuffled"], 20),
        (INDEXED, MEMCPY, 0.25),
        (ONE, SAEV["indexed"], 8),
    ]
    return [
        Ruler(f"{what} over {beside}", limit, ratio_of(found, what, beside), at_least=True)
        for what, beside, limit in aims
    ]


def layers(options: argparse.Namespace, place: Path) -> Section:
    """Four layers, one of them wanted, all of it in the page cache."""
    shards_dir = make_shards_dir(place / "layers-4", 4, DATA_BYTES)
    commands = [
        child("`preadv` of what is wanted, 1 thread", "preadv", shards_dir, "layer", 1, "ring"),
        child("`preadv` of what is wanted, 2 threads", "preadv", shards_dir, "layer", 2, "ring"),
        child("`cat` of all layers", "cat", shards_dir),
        child("`np.memmap`, slices copied", "memmap", shards_dir),
        child(ORDERED, "ours", shards_dir, "ordered"),
        child(SHUFFLED, "ours", shards_dir, "shuffled"),
    ]
    n_rows = Metadata.load(shards_dir).n_examples * CONTENT
    note = f"As large, {n_rows} content tokens of the wanted layer; {options.rounds} rounds."
    values = figures(commands, race(commands, options.rounds), 1e-3)
    return Section("Four layers, one wanted, warm", note, UNIT, values)


def first_batch(options: argparse.Namespace, place: Path) -> Section:
    """From the constructor to the first batch."""
    shards_dir = make_shards_dir(place / "layers-1", 1, DATA_BYTES)
    commands = [
        child(f"{what}, {said}", "first", shards_dir, kind, memory)
        for memory, said in (("warm", "memory warm"), ("new", "memory not used for seconds"))
        for kind, what in (("ordered", ORDERED), ("shuffled", SHUFFLED))
    ]
    if not peers.saev_missing(options.saev):
        arguments = (shards_dir, 0, options.saev)
        commands += [
            child(SAEV[kind], f"saev_{kind}", *arguments) for kind in ("ordered", "shuffled")
        ]
    note = (
        "With the check of the directory, one layer, page cache warm; memory warm means that a "
        f"loader was made and dropped right before; {options.rounds} rounds."
    )
    values = figures(commands, race(commands, options.rounds), 1)
    rulers = [Ruler(figure.what, 300, figure.median, unit=" ms") for figure in values[:4]]
    return Section("To the first batch", note, "ms", values, rulers)


def memory(options: argparse.Namespace, place: Path) -> Section:
    """Peak resident memory over an epoch."""
    shards_dir = make_shards_dir(place / "layers-1", 1, DATA_BYTES)
    limit = (POOL + 4 * BATCH) * ROW_BYTES / 1e6 + 100
    commands = [
        child(SHUFFLED, "peak", shards_dir, "ShuffledDataLoader"),
        child(ORDERED, "peak", shards_dir, "OrderedDataLoader"),
    ]
    note = (
        "A new process each time, which drops each batch, above one that has only imported numpy; "
        f"{options.rounds} rounds. The limit is the pool, 4 batches and 100 MB: {limit:.0f} MB."
    )
    values = figures(commands, race(commands, options.rounds), 1)
    ruler = Ruler(SHUFFLED, limit, values[0].median, unit=" MB")
    return Section("Peak memory", note, "MB", values, [ruler])


def n_bytes(options: argparse.Namespace, place: Path) -> Section:
    """How much is read for what is delivered, where one of four layers is wanted."""
    whole = make_shards_dir(place / "layers-4", 4, DATA_BYTES)
    part = begin_of(whole, 2)
    names = {"ordered": ORDERED, "shuffled": SHUFFLED, "memmap": "`np.memmap`, slices copied"}
    commands = [
        child(f"{what}, from the disk", "bytes_read", part, kind, "read_bytes")
        for kind, what in names.items()
    ]
    commands += [
        child(f"{what}, by system calls", "bytes_read", whole, kind, "rchar")
        for kind, what in names.items()
        if kind != "memmap"
    ]
    note = (
        "`rchar` of the kernel's `/proc/self/io` over all of it, and `read_bytes` over the first 2 "
        f"shards after the page cache dropped them; {options.rounds} rounds."
    )
    values = figures(commands, race(commands, options.rounds), 1)
    found = {figure.what: figure for figure in values}
    rulers = [
        Ruler(what, 1.05, figure.median) for what, figure in found.items() if "memmap" not in what
    ]
    return Section(
        "Bytes read over bytes delivered, four layers, one wanted", note, "x", values, rulers
    )


def cold(options: argparse.Namespace, place: Path) -> Section:
    """One layer, nothing of it in the page cache."""
    whole = make_shards_dir(place / "layers-1", 1, DATA_BYTES)
    part = begin_of(whole, 2)
    commands = [
        child(CAT, "cat", part, "cold"),
        child(ORDERED, "ours", part, "ordered", 2, "cold"),
        child(SHUFFLED, "ours", part, "shuffled", 2, "cold"),
    ]
    note = (
        f"The first 2 shards, dropped from the page cache before each run; {options.rounds} rounds."
    )
    values = figures(commands, race(commands, options.rounds), 1e-3)
    note += f" `cat` read {values[0].median * ROW_BYTES / 1e3:.0f} MB a second."
    ruler = Ruler(f"{ORDERED} over {CAT}", 0.9, values[1].ratio, at_least=True)
    return Section("One layer, cold", note, UNIT, values, [ruler])


def parse_arguments() -> argparse.Namespace:
    found = parser(__doc__, SECTIONS)
    found.add_argument("--data", type=Path, help="where the data is, or is made and left")
    found.add_argument("--saev", metavar="DIR", help="a checkout of OSU-NLP-Group/saev")
    found.add_argument("--rounds", type=int, default=5)
    options = found.parse_args()
    if options.data:
        options.data.mkdir(parents=True, exist_ok=True)
        options.dir = options.data  # the tables say on what file system
    return options


MEASURES = {
    "warm": warm,
    "layers": layers,
    "first": first_batch,
    "memory": memory,
    "bytes": n_bytes,
    "cold": cold,
}


def versions() -> str:
    """Versions of what runs, ours as in validate.py."""
    found = importlib.metadata.packages_distributions()
    names = [module for _, module, *_ in peers.OTHERS] + ["torch"]
    installed = dict.fromkeys(found[name][0] for name in names if name in found)
    return "".join(f", {name} {importlib.metadata.version(name)}" for name in installed)


def measured(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    data = (options.data or place).resolve() / "saev" / "shards"  # as saev insists
    data.mkdir(parents=True, exist_ok=True)
    for section in options.only:
        yield MEASURES[section](options, data)


def main() -> None:
    options = parse_arguments()
    report(options, measured, versions() + peers.saev_version(options.saev))


if __name__ == "__main__":
    play_or(main, play)
