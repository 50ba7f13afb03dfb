"""What Hugging Face's client downloaded."""

from collections.abc import Iterable
from pathlib import Path

from ._readers import reader


@reader("hf-cache", "hf-cache-dataset", "hf-local-dir", "hf-local-dir-dataset")
def snapshot(root: Path) -> Iterable[object]:
    from huggingface_hub import snapshot_download

    is_rows = root.name.endswith("-dataset")
    repo, kind = ("org/rows", "dataset") if is_rows else ("org/tiny", "model")
    where: dict[str, object] = {"cache_dir": root}
    if "local-dir" in root.name:  # its commit is known to the cache only, but listed here, too
        listings = (root / ".cache/huggingface/trees").glob("*.json")
        revision = next((path.stem for path in listings), None)
        where = {"cache_dir": root / "none", "local_dir": root, "revision": revision}
    folder = Path(snapshot_download(repo, repo_type=kind, local_files_only=True, **where))
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if ".cache" not in name.parts and not path.is_dir():
            yield name, path.read_bytes()
