"""Contenders of device.py: each is prepared with a directory, and returns what measures it once."""

import functools
import importlib
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import checkpoint
import loaders
import numpy as np
from _loader_peers import load_saev

from shardproof._base.fanout import available_cpus
from shardproof.checkpoint import MultiShardLoader, MultiShardSaver

# Here and in children, the directories and contenders of loaders.py have rows of that length.
loaders.D_MODEL, loaders.ROW_BYTES = 1024, 4096

MIB = 2**20
BATCH_BYTES = loaders.BATCH * loaders.ROW_BYTES
LARGE, N_SMALL = 2**24, 256  # values of a large tensor, and how many small ones there are
N_CPUS = available_cpus()
N_THREADS = min(8, N_CPUS)
D_SAE, N_WARM = 16384, 10

Run = loaders.Run
State = dict[str, Any]
Acts = Callable[[], Iterator[Any]]
Piece = tuple[int, int, memoryview]
"""Descriptor, offset and memory."""


def module(name: str) -> Any:
    return importlib.import_module(name)


def synchronize(device: str) -> None:
    """Wait until a device has done all that it was asked for."""
    if device.startswith("cuda"):
        module("torch").cuda.synchronize()


def seconds(do: Callable[[], object]) -> float:
    begin = time.perf_counter()
    do()
    return time.perf_counter() - begin


def gb_a_second(n_bytes: float, do: Callable[[], object]) -> float:
    return n_bytes / 1e9 / seconds(do)


def spread(call: Callable[..., int], pieces: Sequence[Piece]) -> None:
    """Read or write pieces by os.preadv or os.pwritev; each thread has every n-th."""

    def some(start: int) -> None:
        for fd, at, view in pieces[start::N_THREADS]:
            done = 0
            while done < len(view):
                done += call(fd, [view[done:]], at + done)

    with ThreadPoolExecutor(N_THREADS) as executor:
        list(executor.map(some, range(N_THREADS)))


# Loaders: GB/s of float32.


def loader_of(kind: str, shards_dir: Path, workers: str, **options: Any) -> Any:
    n_workers = None if workers == "None" else int(workers)
    return loaders.loader_of(kind, shards_dir, workers=n_workers, **options)


def delivered(loader: Any, n_batches: str, device: str, skip: int = 0) -> float:
    """From the start of an iteration, or from what is skipped, to the arrival of the last one."""
    batches, n_rows = iter(loader), 0
    for _ in itertools.islice(batches, skip):
        pass
    begin = time.perf_counter()
    for batch in itertools.islice(batches, int(n_batches)):
        n_rows += len(batch["act"])
    synchronize(device)
    # The iteration is still held here, so what it does at its end is not timed.
    return n_rows * loaders.ROW_BYTES / 1e9 / (time.perf_counter() - begin)


def delivering(place: Path, device: str, n_batches: str, kind: str, workers: str) -> Run:
    more = {} if device == "host" else {"framework": "torch", "device": device}
    loader = loader_of(kind, place, workers, **more)
    return lambda: delivered(loader, n_batches, device)


def through_torch(place: Path, device: str, n_batches: str, kind: str, workers: str) -> Run:
    """Torch's DataLoader over one of ours; the start of its processes is not timed."""
    ours = loader_of(kind, place, "None", framework="torch").torch_dataset(num_workers=int(workers))
    options = {"num_workers": int(workers), "pin_memory": device == "cuda"}
    loader = module("torch.utils.data").DataLoader(ours, batch_size=None, **options)
    return lambda: delivered(loader, n_batches, device, 1)


def preadv(place: Path) -> Run:
    """Bare reads of all bytes, by each thread into a buffer of its own."""
    buffers = [np.ones(BATCH_BYTES, np.uint8).data for _ in range(N_THREADS)]
    places = loaders.whole_pieces(place)
    pieces = [(fd, at, buffers[n % N_THREADS][:size]) for n, (fd, at, size) in enumerate(places)]
    n_bytes = sum(size for *_, size in places)
    return lambda: gb_a_second(n_bytes, lambda: spread(os.preadv, pieces))


def rows(place: Path, name: str, *arguments: str) -> Run:
    """A contender of loaders.py, which counts rows."""
    run = loaders.CONTENDERS[name](place, *arguments)
    return lambda: run() * loaders.ROW_BYTES / 1e9


def copying(_: Path, device: str, memory: str) -> Run:
    """Copy a batch to the device, over and over."""
    like = {"dtype": module("torch").uint8}
    host = module("torch").empty(BATCH_BYTES, pin_memory=memory == "pinned", **like).fill_(1)
    target = module("torch").empty(BATCH_BYTES, device=device, **like)

    def copy() -> None:
        for _ in range(64):
            target.copy_(host, non_blocking=True)
        synchronize(device)

    return lambda: gb_a_second(64 * BATCH_BYTES, copy)


# Steps of a sparse autoencoder, as in docs/training.md, whose batches come from somewhere.


def trainer(device: str) -> Callable[[Any], None]:
    torch = module("torch")
    like = {"device": device, "dtype": torch.bfloat16}
    encoder = torch.nn.Linear(loaders.D_MODEL, D_SAE, **like)
    decoder = torch.nn.Linear(D_SAE, loaders.D_MODEL, **like)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)

    def step(act: Any) -> None:
        optimizer.zero_grad()
        code = encoder(act).relu()
        loss = (decoder(code) - act).square().mean() + 1e-3 * code.mean()
        loss.backward()
        optimizer.step()

    return step


def again(loader: Any, device: str = "") -> Iterator[Any]:
    """Yield the values of batches, epoch after epoch; those of the host are sent by the loop."""
    for batch in itertools.chain.from_iterable(itertools.repeat(loader)):
        act = batch["act"]
        if device:
            act = act.to(device, non_blocking=act.is_pinned()).to(module("torch").bfloat16)
        yield act


def resident(_: Path, device: str) -> Acts:
    """One batch, which is on the device already."""
    torch, shape = module("torch"), (loaders.BATCH, loaders.D_MODEL)
    act = torch.randn(shape, device=device, dtype=torch.bfloat16)
    return lambda: itertools.repeat(act)


def ours(place: Path, device: str, kind: str, workers: str, how: str) -> Acts:
    """One of our loaders, which sends its batches ahead, or whose batches the loop sends."""
    more = {"device": device, "dtype": "bfloat16"} if how == "sent" else {}
    loader = loader_of(kind, place, workers, framework="torch", drop_last=True, **more)
    return lambda: again(loader, "" if how == "sent" else device)


def mapped(place: Path, device: str, workers: str) -> Acts:
    """Whole batches, which processes of torch's DataLoader copy from memory maps."""
    shape = loaders.BATCH, loaders.D_MODEL
    maps = [
        np.memmap(file, np.float32, "r", offset=at, shape=shape)
        for file in loaders.shard_files(place)
        for at in range(0, file.stat().st_size - BATCH_BYTES + 1, BATCH_BYTES)
    ]
    options = {"num_workers": int(workers), "pin_memory": device == "cuda"}
    load = functools.partial(module("torch.utils.data").DataLoader, collate_fn=copied, **options)
    loader = load(maps, batch_size=None)
    return lambda: again(loader, device)


def copied(act: Any) -> State:
    return {"act": module("torch").from_numpy(np.array(act))}


def saev(place: Path, device: str, checkout: str) -> Acts:
    made = load_saev(checkout, "shuffled")
    loader = made.DataLoader(made.Config(shards=place, layer=0, buffer_size=8))
    return lambda: again(loader, device)


def stepping(place: Path, device: str, n_steps: str, source: str, *arguments: str) -> Run:
    """Milliseconds a step, from one moment when the device has no work to another."""
    sources = {made.__name__: made for made in (resident, ours, mapped, saev)}
    step, acts_of = trainer(device), sources[source](place, device, *arguments)

    def steps(acts: Iterator[Any], n: int) -> None:
        for act in itertools.islice(acts, n):
            step(act)
        synchronize(device)

    def run() -> float:
        acts = acts_of()
        steps(acts, N_WARM)
        return seconds(lambda: steps(acts, int(n_steps))) / int(n_steps) * 1e3

    return run


# Checkpoints: of arrays that are mapped from one file, or of tensors on a device.


def state_of(place: Path, where: str, most_bytes: float = float("inf")) -> State:
    """Return large arrays, and small ones: numpy's on the host, or tensors where it says."""
    flat = np.memmap(place / "data", np.float32, "r+").view(np.ndarray)
    flat = flat[: int(min(flat.size, most_bytes // 4))]
    *large, last = np.split(flat, range(LARGE, flat.size, LARGE))
    arrays = [*large, *np.array_split(last, N_SMALL)]
    named = {f"layers.{number}.weight": array for number, array in enumerate(arrays)}
    if where == "host":
        return named
    return {name: module("torch").from_numpy(array).to(where) for name, array in named.items()}


def bytes_of(state: State) -> int:
    return sum(array.nbytes for array in state.values())


def cut(fd: int, at: int, array: Any) -> list[Piece]:
    view, size = array.view(np.uint8).data, 16 * MIB
    return [(fd, at + start, view[start : start + size]) for start in range(0, len(view), size)]


def plain_save(target: Path, state: State) -> None:
    fd, end, pieces = os.open(target / "plain", os.O_RDWR | os.O_CREAT), 0, []
    for array in state.values():
        pieces += cut(fd, end, array)
        end += array.nbytes
    spread(os.pwritev, pieces)
    os.close(fd)


def dcp_save(target: Path, state: State, n_threads: int = 1) -> None:
    dcp = module("torch.distributed.checkpoint")
    writer = dcp.FileSystemWriter(target, thread_count=n_threads, sync_files=False)
    dcp.save(state, storage_writer=writer)


def safetensors_save(target: Path, state: State, library: str = "numpy") -> None:
    module(f"safetensors.{library}").save_file(state, target / "x.safetensors")


SAVES: dict[str, Callable[[Path, State], object]] = {
    "plain": plain_save,
    "numpy": safetensors_save,
    "torch": functools.partial(safetensors_save, library="torch"),
    "dcp": dcp_save,
    "dcp-threads": functools.partial(dcp_save, n_threads=N_THREADS),
}


def save_of(how: str) -> Callable[[Path, State], object]:
    """Return a peer's, or ours by an algorithm."""
    if how in SAVES:
        return SAVES[how]
    saver = MultiShardSaver(algorithm=how, sync=False)  # type: ignore[arg-type] # a text
    return lambda target, state: saver.save_shard(target / "x", 0, state)


def saving(place: Path, where: str, how: str) -> Run:
    """GB/s of a save to files that are new."""
    state, save, target = state_of(place, where), save_of(how), place / "saved"

    def run() -> float:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        rate = gb_a_second(bytes_of(state), lambda: save(target, state))
        shutil.rmtree(target)
        return rate

    return run


def hashing(place: Path, algorithm: str) -> Run:
    """GB/s of a digest by all processors over memory."""
    data = np.memmap(place / "data", np.uint8, "r").data
    run = checkpoint.DIGESTS[algorithm](data, str(N_CPUS))
    return lambda: gb_a_second(len(data), run)


def plain_load(place: Path, out: State) -> State:
    shard = MultiShardLoader().load_metadata(place / "sha256" / "x").shards[0]
    fd = os.open(place / "sha256" / shard.file, os.O_RDONLY)
    spread(os.preadv, [p for t in shard.tensors for p in cut(fd, t.offset, out[t.name])])
    os.close(fd)
    return out


def fastsafetensors_load(path: Path, where: str) -> State:
    made = module("fastsafetensors")
    loader = made.SafeTensorsFileLoader(made.SingleGroup(), where, nogds=True)
    loader.add_filenames({0: [str(path)]})
    files = loader.copy_files_to_device()
    return {name: files.get_tensor(name) for name in files.key_to_rank_lidx}


def runai_load(path: Path, where: str) -> State:
    with module("runai_model_streamer").SafetensorsStreamer() as streamer:
        streamer.stream_file(str(path))
        return {name: tensor.to(where) for name, tensor in streamer.get_tensors()}


def load_of(place: Path, where: str, how: str, level: str = "") -> Callable[[], State]:
    """Return a peer's, or ours of what was saved by an algorithm."""
    path = place / "numpy" / "x.safetensors"
    peers: dict[str, Callable[[], State]] = {
        "numpy": lambda: module("safetensors.numpy").load_file(path),
        "torch": lambda: module("safetensors.torch").load_file(path, device=where),
        "fastsafetensors": lambda: fastsafetensors_load(path, where.replace("cuda", "cuda:0")),
        "runai_model_streamer": lambda: runai_load(path, where),
    }
    if how in peers:
        return peers[how]
    out = {name: array * 0 for name, array in state_of(place, where).items()}
    if how == "plain":
        return lambda: plain_load(place, out)
    framework = "numpy" if where == "host" else "torch"
    loader = MultiShardLoader(level=level, framework=framework)  # type: ignore[arg-type] # texts
    return lambda: loader.load_shard(place / how / "x", 0, out=out)


def loading(place: Path, where: str, *how: str) -> Run:
    """GB/s of a load, whose tensors begin and end as those that were saved."""
    load, expected = load_of(place, where, *how), state_of(place, "host")
    n_bytes = bytes_of(expected)

    def run() -> float:
        begin = time.perf_counter()
        loaded = load()
        synchronize(where)
        spent = time.perf_counter() - begin
        checkpoint.require_same(loaded, expected)
        return n_bytes / 1e9 / spent

    return run


# Saves behind the training: what begins one returns when training may go on, with what waits.

Begin = Callable[[Path, State], Callable[[], object]]


def ours_behind(_: str, sync: str) -> Begin:
    saver = MultiShardSaver(algorithm="sha256-tree", sync=bool(sync))
    return lambda target, state: saver.begin_shard(target / "x", 0, state).result


def dcp_behind(where: str, stager: str) -> Begin:
    """With a stager that is kept, or with the one that is made for each save."""
    dcp, more, is_cuda = module("torch.distributed.checkpoint"), {}, where == "cuda"
    if stager:
        made = module("torch.distributed.checkpoint.staging")
        how = {"use_pinned_memory": is_cuda, "use_non_blocking_copy": is_cuda}
        options = made.StagingOptions(use_shared_memory=False, use_async_staging=True, **how)
        more["async_stager"] = made.DefaultStager(options)

    def begin(target: Path, state: State) -> Callable[[], object]:
        saved = dcp.async_save(state, checkpoint_id=target, **more)
        if stager:
            saved.staging_completion.result()  # until then the tensors must not change
        written: Callable[[], object] = (saved.upload_completion if stager else saved).result
        return written

    return begin


def behind(place: Path, where: str, most_bytes: str, whose: str, how: str = "") -> Run:
    """Answer 0, then for each save two times: until training goes on, and until it is durable."""
    state, target = state_of(place, where, float(most_bytes)), place / f"{whose}-{how}"
    save = ours_behind(where, how) if whose == "ours" else dcp_behind(where, how)

    def answers() -> Iterator[float]:
        yield 0.0
        while True:
            target.mkdir()
            synchronize(where)
            begin = time.perf_counter()
            wait = save(target, state)
            going_on = time.perf_counter() - begin
            wait()
            durable = time.perf_counter() - begin
            shutil.rmtree(target)
            yield from (going_on * 1e3, durable * 1e3)

    return answers().__next__


# Looks at directories, in seconds.


def timed(path: Path, benchmark: str, name: str, *arguments: str) -> Run:
    """A contender of another benchmark, which is timed from outside."""
    run = module(benchmark).CONTENDERS[name](path, *arguments)
    return lambda: seconds(run)


def sha256sum(path: Path) -> Run:
    """As many processes as processors, each for one file at a time."""
    script = f"ls *.bin | xargs -P {N_CPUS} -n 1 sha256sum > /dev/null"
    call = functools.partial(subprocess.run, script, shell=True, cwd=path, check=True)
    return lambda: seconds(call)


CONTENDERS: dict[str, Callable[..., Run]] = {
    made.__name__: made
    for made in (
        *(preadv, copying, delivering, through_torch, rows, stepping),
        *(saving, hashing, loading, behind, timed, sha256sum),
    )
}
