"""Write the golden directories anew, each by the library that people have it from.

::

    python tests/goldens/write.py CASE... --to tests/goldens

Run it with an interpreter that has the library; without a case it writes those whose libraries are
there. ``VERSIONS.json`` gets a line for each. What is written is small: some KB.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

CASES: dict[str, tuple[Callable[[Path], None], str]] = {}
"""Each case: what writes it, and the package that has to be there."""


def case(package: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def register(write: Callable[[Path], None]) -> Callable[[Path], None]:
        CASES[write.__name__.replace("_", "-")] = write, package
        return write

    return register


def mds(to: Path, **options: object) -> None:
    from streaming import MDSWriter

    columns = {"id": "int", "text": "str", "data": "bytes"}
    with MDSWriter(out=str(to), columns=columns, size_limit=700, **options) as writer:
        for number in range(24):
            writer.write({"id": number, "text": f"row {number}", "data": bytes([number]) * number})


@case("mosaicml-streaming")
def mds_raw(to: Path) -> None:
    mds(to)


@case("mosaicml-streaming")
def mds_hashed(to: Path) -> None:
    mds(to, hashes=["sha1", "xxh64"])


@case("mosaicml-streaming")
def mds_zstd(to: Path) -> None:
    mds(to, compression="zstd:3", hashes=["sha256", "xxh3_128"])


@case("litdata")
def litdata_classic(to: Path) -> None:
    litdata(to)


@case("litdata")
def litdata_zstd(to: Path) -> None:
    litdata(to, compression="zstd")


def litdata(to: Path, **options: object) -> None:
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(to), chunk_size=8, **options)
    for number in range(20):
        writer[number] = {"id": number, "text": f"row {number}"}
    writer.done()
    writer.merge()


@case("litdata")
def litdata_tokens(to: Path) -> None:
    import torch
    from litdata.streaming.item_loader import TokensLoader
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(to), chunk_bytes=400, item_loader=TokensLoader())
    for number in range(6):
        writer[number] = torch.arange(32, dtype=torch.int64)
    writer.done()
    writer.merge()


def samples() -> list[dict[str, object]]:
    return [{"__key__": f"{n:04}", "txt": f"row {n}", "cls": n} for n in range(12)]


@case("webdataset")
def webdataset_tar(to: Path) -> None:
    webdataset(to, "tar")


@case("webdataset")
def webdataset_gz(to: Path) -> None:
    webdataset(to, "tar.gz")


def webdataset(to: Path, suffix: str) -> None:
    import webdataset as wds

    with wds.ShardWriter(f"{to}/train-%06d.{suffix}", maxcount=5, verbose=0) as writer:
        for sample in samples():
            writer.write(sample)


@case("webdataset")
def wids(to: Path) -> None:
    webdataset(to, "tar")
    archives = sorted(to.glob("*.tar"))
    shards = [
        {
            "url": path.name,
            "nsamples": 5 if number < 2 else 2,
            "filesize": path.stat().st_size,
            "md5sum": hashlib.md5(path.read_bytes()).hexdigest(),
        }
        for number, path in enumerate(archives)
    ]
    index = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}
    (to / "shardindex.json").write_text(json.dumps(index, indent=2))


def table() -> object:
    import pyarrow as pa

    return pa.table({"id": list(range(40)), "text": [f"row {n}" for n in range(40)]})


def parquet(to: Path, **options: object) -> None:
    import pyarrow.parquet as pq

    for number in range(3):
        name = f"train-{number:05}-of-00003.parquet"
        pq.write_table(table(), to / name, row_group_size=15, **options)


@case("pyarrow")
def parquet_plain(to: Path) -> None:
    parquet(to)


@case("pyarrow")
def parquet_checksums(to: Path) -> None:
    parquet(to, write_page_checksum=True, compression="zstd", data_page_version="2.0")


@case("datasets")
def arrow(to: Path) -> None:
    from datasets import Dataset

    Dataset(table()).save_to_disk(str(to), num_shards=3)


@case("datasets")
def arrow_splits(to: Path) -> None:
    from datasets import Dataset, DatasetDict

    DatasetDict({"train": Dataset(table()), "test": Dataset(table())}).save_to_disk(str(to))


@case("safetensors")
def safetensors(to: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    save_file({"w": np.ones((8, 8), np.float32), "b": np.arange(8)}, to / "model.safetensors")


@case("torch")
def safetensors_sharded(to: Path) -> None:
    import torch
    from huggingface_hub import save_torch_state_dict

    state = {f"layer.{n}.weight": torch.full((16, 16), float(n)) for n in range(4)}
    save_torch_state_dict(state, str(to), max_shard_size=1500)


@case("torch")
def torch_dcp(to: Path) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    state = {
        "model": {"w": torch.ones(16, 16), "b": torch.arange(16)},
        "step": 3,
    }
    dcp.save(state, checkpoint_id=str(to))


@case("bagit")
def bagit(to: Path) -> None:
    import bagit as library

    (to / "sub").mkdir()
    (to / "a.bin").write_bytes(b"a" * 300)
    (to / "sub/b.bin").write_bytes(b"b" * 200)
    library.make_bag(str(to), {"Bagging-Date": "2026-01-01"}, checksums=["md5", "sha256"])


@case("tfrecord")
def tfrecord(to: Path) -> None:
    from tfrecord.writer import TFRecordWriter

    for number in range(2):
        writer = TFRecordWriter(str(to / f"train.tfrecord-{number:05}-of-00002"))
        for n in range(10):
            writer.write({"id": (n, "int"), "text": (f"row {n}".encode(), "byte")})
        writer.close()


@case("shardproof")
def digests(to: Path) -> None:
    (to / "sub").mkdir()
    for name in ("a.bin", "sub/b c.bin"):
        (to / name).write_bytes(name.encode() * 50)
    command = ["sha256sum", "a.bin", "sub/b c.bin"]
    done = subprocess.run(command, cwd=to, capture_output=True, check=True)
    (to / "SHA256SUMS").write_bytes(done.stdout)


def _hub(to: Path, download: Callable[[str], object]) -> None:
    import numpy as np
    from safetensors.numpy import save

    from shardproof.testing.faults import serve_hub

    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    shards = [save({f"w{n}": np.full((8, 8), n, np.float32)}) for n in range(2)]
    index = {"metadata": {"total_size": 512}, "weight_map": {"w0": names[0], "w1": names[1]}}
    files = {
        "config.json": b'{"model_type": "tiny"}',
        "model.safetensors.index.json": json.dumps(index).encode(),
        "tokenizer/vocab.txt": b"a\nb\n",
        **dict(zip(names, shards, strict=True)),
    }
    with serve_hub() as hub:
        for name, data in files.items():
            hub.put(name, data, repo="org/tiny", repo_type="model")
        download(hub.url)


@case("huggingface_hub")
def hf_cache(to: Path) -> None:
    from huggingface_hub import snapshot_download

    _hub(to, lambda url: snapshot_download("org/tiny", cache_dir=str(to), endpoint=url))
    for extra in (".locks", "CACHEDIR.TAG"):
        path = to / extra
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


@case("huggingface_hub")
def hf_local_dir(to: Path) -> None:
    from huggingface_hub import snapshot_download

    _hub(to, lambda url: snapshot_download("org/tiny", local_dir=str(to), endpoint=url))
    state = to / ".cache/huggingface"
    for path in [state / ".gitignore", state / "CACHEDIR.TAG", *state.rglob("*.lock")]:
        path.unlink(missing_ok=True)  # a checkout is to have the rest


@case("mlcroissant")
def croissant(to: Path) -> None:
    import mlcroissant as mlc

    (to / "a.csv").write_text("x\n1\n")
    digest = hashlib.sha256((to / "a.csv").read_bytes()).hexdigest()
    file = mlc.FileObject(
        id="a.csv",
        name="a.csv",
        content_url="a.csv",
        content_size="4 B",
        encoding_formats=["text/csv"],
        sha256=digest,
    )
    metadata = mlc.Metadata(
        name="tiny", description="rows", url="https://example.org", distribution=[file]
    )
    (to / "croissant.json").write_text(json.dumps(metadata.to_json(), indent=2, default=str))


@case("model-signing")
def model_signing(to: Path) -> None:
    import model_signing as library
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    (to / "model.bin").write_bytes(b"weights" * 50)
    (to / "config.json").write_text("{}")
    key = ec.generate_private_key(ec.SECP256R1())
    with tempfile.NamedTemporaryFile() as pem:
        pem.write(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        pem.flush()
        signing = library.signing.Config().use_elliptic_key_signer(private_key=pem.name)
        signing.sign(str(to), str(to / "model.sig"))


@case("dvc")
def dvc(to: Path) -> None:
    run = [shutil.which("dvc") or "dvc"]
    (to / "data").mkdir()
    (to / "a.bin").write_bytes(b"a" * 100)
    (to / "data/x.bin").write_bytes(b"x" * 50)
    (to / "data/y.bin").write_bytes(b"y" * 60)
    for words in (["init", "--no-scm"], ["add", "a.bin", "data"]):
        subprocess.run([*run, "-q", *words], cwd=to, check=True)
    for name in ("tmp", "config.local", ".gitignore", "cache/runs"):
        path = to / ".dvc" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def write_case(name: str, to: Path) -> None:
    write, package = CASES[name]
    with tempfile.TemporaryDirectory(prefix="goldens-") as place:
        made = Path(place, name)
        made.mkdir()
        write(made)
        shutil.rmtree(to / name, ignore_errors=True)
        shutil.copytree(made, to / name, symlinks=True)
    path = to / "VERSIONS.json"
    versions = json.loads(path.read_text()) if path.is_file() else {}
    version = importlib.metadata.version(package)
    versions[name] = f"{package} {version}, Python {platform.python_version()}"
    path.write_text(json.dumps(dict(sorted(versions.items())), indent=2) + "\n")


def is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def main() -> None:
    found = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    found.add_argument("cases", nargs="*", choices=[[], *CASES], metavar="CASE")
    found.add_argument("--to", type=Path, default=Path(__file__).parent)
    options = found.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    for name in options.cases or [name for name, (_, p) in CASES.items() if is_installed(p)]:
        write_case(name, options.to)
        print(name)


if __name__ == "__main__":
    main()
