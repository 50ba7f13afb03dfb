"""What torch saves: the structure of its archives, without unpickling."""

import json
import os
import pickle
import tempfile
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from shardproof import ManifestError, formats, validate
from shardproof._base.opening import Descriptor
from shardproof.formats.weights import TORCH as FORMAT
from shardproof.probes import zipped
from tests.formats.looking import found_in, named, of_golden, said_of
from tests.goldens import golden

look = partial(named, FORMAT)
INDEX = "pytorch_model.bin.index.json"
LEGACY = (golden("torch-legacy").path / "step_0.pt").read_bytes()
WRITTEN = (golden("torch").path / "step_0.pt").read_bytes()


def archive(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members.items():
            file.writestr(f"archive/{name}", data)
    return path


class Acts:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("acted",)


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    archive(tmp_path / "a.pt", {"data.pkl": pickle.dumps(Acts()), "data/0": b"x"})
    (tmp_path / "b.pt").write_bytes(pickle.dumps(Acts()))
    assert validate(tmp_path, level="valid").ok
    assert not (tmp_path / "acted").exists()


SOUND: dict[str, dict[str, bytes]] = {
    "legacy beside new": {"a.pt": LEGACY, "b.pth": WRITTEN, "c.ckpt": WRITTEN},
    "of Trainer": dict.fromkeys(
        ["pytorch_model.bin", "optimizer.pt", "rng_state.pth", "training_args.bin"], WRITTEN
    )
    | {"trainer_state.json": b"{}", "config.json": b"{}", "vocab.txt": b"a"},
    "of accelerate": {"optimizer.bin": WRITTEN, "random_states_0.pkl": pickle.dumps(1)},
    "of DeepSpeed": {f"mp_rank_0{n}_model_states.pt": WRITTEN for n in range(2)},
    "of LLaMA": {"consolidated.00.pth": WRITTEN, "params.json": b"{}"},
    "of diffusers": {"diffusion_pytorch_model.fp16.bin": WRITTEN, "config.json": b"{}"},
    "an adapter": {"adapter_model.bin": LEGACY, "adapter_config.json": b"{}"},
    "a pickle of another program": {"a.pt": WRITTEN, "b.pt": pickle.dumps([1])},
    "other files of that end": {"model.bin": b"fasttext", "pytorch_model.bin": WRITTEN},
    "an index of one file": {
        "pytorch_model.bin": WRITTEN,
        INDEX: json.dumps({"weight_map": {"w": "pytorch_model.bin"}}).encode(),
    },
}


@pytest.mark.parametrize("what", SOUND)
def test_what_is_sound(tmp_path: Path, what: str) -> None:
    for name, data in SOUND[what].items():
        (tmp_path / name).write_bytes(data)
    assert formats.detect(str(tmp_path)).name == "torch"
    report = validate(tmp_path, level="valid")
    assert report.ok, str(report)


def test_members_may_be_packed_as_those_of_torchscript_are(tmp_path: Path) -> None:
    code = {"code/__torch__.py": b"x" * 999, "data.pkl": b"\x80\2N.", "version": b"3"}
    archive(tmp_path / "a.pt", code, zipfile.ZIP_DEFLATED)
    assert look(tmp_path, "valid") == []


@pytest.mark.parametrize("name", ["a.pth", "a.bin", "a.ckpt"])
def test_other_files_of_that_end_are_not_claimed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("../src")
    with pytest.raises(ManifestError, match="of no known format"):
        validate(tmp_path)


@pytest.mark.parametrize("n_bytes", [1, 22, 23, 500, 2000, 2900])
def test_an_archive_that_is_cut_or_longer(tmp_path: Path, n_bytes: int) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(WRITTEN[:-n_bytes])
    assert [each[1] for each in look(tmp_path)] == ["structure"]
    path.write_bytes(WRITTEN + bytes(n_bytes))
    assert [each[1] for each in look(tmp_path)] == ["structure"]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_bytes_that_changed_in_a_storage_have_another_checksum(tmp_path: Path) -> None:
    at = WRITTEN.index(b"\0\0\x80\x3f" * 4)
    (tmp_path / "a.pt").write_bytes(flipped(WRITTEN, at + 9))
    assert (look(tmp_path), len(look(tmp_path, "valid"))) == ([], 1)


def test_an_archive_without_checksums_has_none_to_prove(tmp_path: Path) -> None:
    """As torch writes it after ``set_crc32_options(False)``."""
    path = archive(tmp_path / "a.pt", {"data.pkl": b"\x80\2N.", "data/0": bytes(range(99))})
    data, begin = bytearray(path.read_bytes()), 0
    for mark, at in ((b"PK\1\2", 16), (b"PK\3\4", 14)):
        while (begin := data.find(mark, begin)) >= 0:
            data[begin + at : begin + at + 4] = bytes(4)
            begin += 4
        begin = 0
    path.write_bytes(data)
    assert look(tmp_path, "valid") == []


@pytest.mark.parametrize("data", [b"version https://git-lfs", bytes(99), b"<html>", b"PK\3\4"])
def test_what_stands_in_the_place_of_one(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(data)
    [(_, kind, *_)] = look(tmp_path)
    assert kind == ("impostor" if data == b"<html>" else "structure")


def test_what_an_index_names_is_expected(tmp_path: Path) -> None:
    path = of_golden("torch-bin", tmp_path)
    one, two, _three = sorted(path.glob("*.bin"))
    one.unlink()
    assert found_in(path, "present") == [("missing", one.name)]
    one.write_bytes(two.read_bytes())
    [(expected, said)] = said_of(path)
    assert expected == "the tensor 'lm_head.weight'"
    assert said.startswith("0 of the ")
    (path / INDEX).unlink()
    assert found_in(path, "present") == [("missing", INDEX)]
    one.unlink()
    assert found_in(path, "present") == [("missing", one.name), ("missing", INDEX)]


def test_a_pickle_is_read_once_for_all_names(tmp_path: Path) -> None:
    """Looked for one by one, as many names in as long a pickle took minutes."""
    names, name = [f"layer.{n}.weight" for n in range(30_000)], "pytorch_model-00001-of-00002.bin"
    texts = b"".join(b"X" + len(each).to_bytes(4, "little") + each.encode() for each in names)
    path = archive(tmp_path / name, {"data.pkl": b"\x80\2" + texts + b"X" * 2**19})
    path.rename(tmp_path / (second := name.replace("01-", "02-")))
    archive(tmp_path / name, {"data.pkl": b"\x80\4\x8cX\x8c\1aX"})
    weights = dict.fromkeys(names, second) | {"a": name}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weights}))
    assert found_in(tmp_path) == []
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weights | {"layer.x": second}}))
    found = "30000 of the 30001 that the index names"
    assert said_of(tmp_path) == [("the tensor 'layer.x'", found)]


def test_an_index_that_lies(tmp_path: Path) -> None:
    path = of_golden("torch-bin", tmp_path)
    for text in ("{", '{"weight_map": []}'):
        (path / INDEX).write_text(text)
        with pytest.raises(ManifestError, match=INDEX):
            validate(path)
    (path / INDEX).write_text('{"weight_map": {"a": "../x.bin"}}')
    assert found_in(path, "present") == [("structure", INDEX)]


def put_end(data: bytes, *numbers: int) -> bytes:
    """Return an archive whose end states another size and place of its directory."""
    at = data.rindex(b"PK\5\6")
    return data[: at + 12] + b"".join(n.to_bytes(4, "little") for n in numbers) + data[at + 20 :]


@pytest.mark.parametrize("numbers", [(0, 0), (2**32 - 1, 0), (46, 2**31), (1, 1)])
def test_an_end_that_lies(tmp_path: Path, numbers: Sequence[int]) -> None:
    path = archive(tmp_path / "a.pt", {"data.pkl": b"\x80\2N."})
    path.write_bytes(put_end(path.read_bytes(), *numbers))
    assert [each[1] for each in look(tmp_path, "valid")] == ["structure"]


def test_no_archive_makes_it_fail() -> None:
    """Each byte is another in turn; what is in the directory, or before a member, tells."""
    seen = 0
    for at in range(len(WRITTEN)):
        with tempfile.TemporaryFile() as file:
            file.write(flipped(WRITTEN, at))
            file.flush()
            read, size = Descriptor(file.fileno()), len(WRITTEN)
            wrong = zipped.wrong_end(read, size)
            seen += bool(wrong or zipped.wrong_member(read, size, zipped.read_all))
    assert seen > len(WRITTEN) / 2


def test_a_model_in_safetensors_stays_one(tmp_path: Path) -> None:
    path = of_golden("safetensors-sharded", tmp_path)
    (path / "pytorch_model.bin").write_bytes(WRITTEN)
    (path / "optimizer.pt").write_bytes(WRITTEN)
    assert formats.detect(str(path)).name == "safetensors"
