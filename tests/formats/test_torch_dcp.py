"""PyTorch's distributed checkpoints, made without PyTorch."""

import os
import pickle
import pickletools
import struct
import sys
import time
import types
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.formats.weights import TORCH_DCP as FORMAT
from shardproof.formats.weights import _pickle
from shardproof.formats.weights._pickle import Pairs, PickledObject, read_pickle
from shardproof.testing.contracts import FormatContract
from tests.formats.looking import contract, found
from tests.goldens import golden
from tests.helpers.drawing import examples

WRITTEN_BY_TORCH = golden("torch-dcp").path
META, FILES = "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"


class Fields:
    """An object of any fields, as those of torch's dataclasses are pickled."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def stand_in(name: str, module: str) -> Any:
    return type(name, (Fields,), {"__module__": module, "__qualname__": name})


Metadata = stand_in("Metadata", META)
MetadataIndex = stand_in("MetadataIndex", META)
StorageInfo = stand_in("_StorageInfo", FILES)
StorageMeta = stand_in("StorageMeta", META)


STAND_INS = [Metadata, MetadataIndex, StorageInfo, StorageMeta]


def dumped(value: Any) -> bytes:
    modules = {"torch": types.ModuleType("torch")}
    for each in STAND_INS:
        module = modules.setdefault(each.__module__, types.ModuleType(each.__module__))
        setattr(module, each.__name__, each)
    with mock.patch.dict(sys.modules, modules):
        return pickle.dumps(value)


Item = tuple[str, Any, Any]


def metadata_of(items: Sequence[Item], **more: Any) -> bytes:
    stored = {
        MetadataIndex(fqn=f"layer.{i}", index=0, offset=(i,)): StorageInfo(
            relative_path=file, offset=offset, length=length, **more
        )
        for i, (file, offset, length) in enumerate(items)
    }
    names = [f"layer.{i}" for i in range(len(items))]
    value = Metadata(
        state_dict_metadata=OrderedDict.fromkeys(names),
        planner_data=dict.fromkeys(names, ("layer", 0)),
        storage_data=stored,
        storage_meta=StorageMeta(checkpoint_id=PurePosixPath("step-7"), modules=[]),
        version="1.0.0",
        of_a_later_version={"a": {1, 2}, (1, 2): frozenset({b"x"})},
    )
    return dumped(value)


def put(folder: Path, items: Sequence[Item], sizes: Mapping[str, int], **more: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".metadata").write_bytes(metadata_of(items, **more))
    for name, size in sizes.items():
        (folder / name).write_bytes(b"PK" * (size // 2) + b"x" * (size % 2))
    return folder


ITEMS = [("__0_0.distcp", 0, 30), ("__0_0.distcp", 30, 12), ("__1_0.distcp", 0, 8)]
SIZES = {"__0_0.distcp": 42, "__1_0.distcp": 8}


look = partial(found, FORMAT)


def write_dir(n_shards: int, base: Path) -> None:
    names = [f"__{i}_0.distcp" for i in range(n_shards)]
    put(base, [(name, at, 64) for name in names for at in (0, 64)], dict.fromkeys(names, 128))


class TestFormat(contract(FORMAT, ".metadata", write_dir, "*.distcp")):
    def test_hostile_json_is_refused(self, form: Any, root: Path) -> None:
        """All JSON is, and any other text."""
        for text in (b"", b"{}", b"[]", b"null", b"1", b"\xff", b"# Flutter\n", b"\x80\x04."):
            (root / ".metadata").write_bytes(text)
            assert str(root / ".metadata") in self.refused(form, root).text

    @pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../b", "", "a\0b", "\ud800"])
    def test_hostile_names_are_refused(self, form: Any, root: Path, name: str) -> None:
        (root / ".metadata").write_bytes(metadata_of([(name, 0, 1)]))
        assert str(root / ".metadata") in self.refused(form, root).text

    def test_twins_are_refused(self, form: Any, root: Path) -> None:
        """But each file is named as often as it has items."""
        (root / ".metadata").write_bytes(metadata_of([("a.distcp", 0, 1), ("A.distcp", 0, 1)]))
        assert str(root / ".metadata") in self.refused(form, root).text


def test_other_files_of_that_name_are_not_claimed(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_text("# This file tracks properties of this Flutter project.\n")
    assert not FORMAT.recognizes(str(tmp_path))
    (tmp_path / ".metadata").unlink()
    (tmp_path / ".metadata").mkdir()
    (tmp_path / "0_0.distcp").touch()  # Paddle's
    assert not FORMAT.recognizes(str(tmp_path))


def test_an_interrupted_save_is_told(tmp_path: Path) -> None:
    put(tmp_path, ITEMS, SIZES)
    (tmp_path / ".metadata").rename(tmp_path / ".metadata.tmp")
    assert FORMAT.recognizes(str(tmp_path))
    with pytest.raises(ManifestNotFoundError, match=r"2 .* '.metadata.tmp': it is written last"):
        FORMAT.read_manifest(str(tmp_path))
    (tmp_path / ".metadata.tmp").unlink()
    with pytest.raises(ManifestNotFoundError, match=r"2 '.distcp' files: it is written last"):
        FORMAT.read_manifest(str(tmp_path))
    (tmp_path / ".metadata").symlink_to("nothing")
    with pytest.raises(ManifestNotFoundError, match=r"there is no such file$"):
        FORMAT.read_manifest(str(tmp_path))


def test_a_later_save_that_was_interrupted_is_told(tmp_path: Path) -> None:
    put(tmp_path, ITEMS, SIZES)
    (tmp_path / ".metadata.tmp").write_bytes(b"\x80")
    told = ("a save that finished: '.metadata' alone", "one that was interrupted")
    for level in ("present", "complete"):
        assert look(tmp_path, level) == [("structure", ".metadata.tmp", *told)]


def test_ranks_that_saved_for_themselves(tmp_path: Path) -> None:
    for rank, name in enumerate(SIZES):
        put(tmp_path, [(name, 0, SIZES[name])], {name: SIZES[name]})
        (tmp_path / ".metadata").rename(tmp_path / f"__{rank}.metadata")
    assert FORMAT.recognizes(str(tmp_path))
    assert look(tmp_path) == []
    (tmp_path / "__1_0.distcp").unlink()
    assert [finding[:2] for finding in look(tmp_path)] == [("missing", "__1_0.distcp")]
    (tmp_path / "__1.metadata").rename(tmp_path / "__1.metadata.tmp")
    assert [finding[:2] for finding in look(tmp_path)] == [("structure", "__1.metadata.tmp")]
    (tmp_path / "__1.metadata.tmp").unlink()
    put(tmp_path, ITEMS, SIZES)  # and later all together
    assert look(tmp_path) == []
    assert len(FORMAT.read_manifest(str(tmp_path)).files) == 2
    for name in (".metadata", *SIZES):
        (tmp_path / name).unlink()
    assert FORMAT.recognizes(str(tmp_path))


def test_tensors_in_safetensors_are_behind_a_header(tmp_path: Path) -> None:
    name = "__0_0.distcp"
    for items, before in (
        ([(name, 0, 5)], 5),
        ([(name, 0, 20)], 0),
        ([(name, 0, 5), (name, 5, 20)], 5),
        ([(name, 0, 5), (name, 5, 20), (name, 5, 10)], 5),
    ):
        put(tmp_path, items, {})
        (tmp_path / name).write_bytes(b"x" * before + struct.pack("<Q", 2) + b"{}" + bytes(20))
        assert look(tmp_path) == []
        os.truncate(tmp_path / name, max(offset + length for _, offset, length in items) - 1)
        assert len(look(tmp_path)) == 1


def test_a_file_of_items_that_were_saved_twice_may_be_longer(tmp_path: Path) -> None:
    """What another rank saved as well is in a hole, or behind the last; or they are compressed."""
    put(tmp_path, [ITEMS[1]], {"__0_0.distcp": 50})
    assert look(tmp_path) == []
    put(tmp_path, [ITEMS[1]], {"__0_0.distcp": 41})
    assert len(look(tmp_path)) == 1
    put(tmp_path, ITEMS[:2], {"__0_0.distcp": 50}, transform_descriptors=["stream.zstd"])
    assert look(tmp_path) == []
    put(tmp_path, ITEMS[:2], {"__0_0.distcp": 50}, transform_descriptors=[])
    assert look(tmp_path) == [("structure", "__0_0.distcp", "42 bytes", "50 bytes")]


def test_items_that_share_bytes_are_told(tmp_path: Path) -> None:
    put(tmp_path, [*ITEMS, ("__0_0.distcp", 29, 2)], SIZES)
    told = ("items apart", "one from 0 to 30 and one from 29")
    assert look(tmp_path) == [("structure", "__0_0.distcp", *told)]
    assert look(tmp_path, "present") == []


def refused(path: Path, metadata: bytes, why: str) -> None:
    (path / ".metadata").write_bytes(metadata)
    with pytest.raises(ManifestError, match=why):
        FORMAT.read_manifest(str(path))


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (("a", -1, 1), "`int` >= 0"),
        (("a", 0, -1), "`int` >= 0"),
        (("a", 0, 2**63), "`int` <= 4"),
        (("a", 0.0, 1), "`int`, got `float`"),
        (("a", None, 1), "`int`, got `null`"),
        ((b"a", 0, 1), "`str`, got `bytes`"),
        ((MetadataIndex(), 0, 1), "`str`, got `PickledObject`"),
    ],
)
def test_an_item_that_is_nowhere_is_refused(tmp_path: Path, item: Item, why: str) -> None:
    refused(tmp_path, metadata_of([item]), f"entry 0: Expected {why}")


def test_other_metadata_are_refused(tmp_path: Path) -> None:
    for info in (2, StorageInfo(), (None, {"relative_path": "a"})):
        metadata = dumped(Metadata(storage_data={1: info}))
        refused(tmp_path, metadata, "missing required field `relative_path`")
    too_many = Metadata(**{f"x{i}": i for i in range(99)}, storage_data={})
    others = (None, {}, {"storage_data": {}}, Metadata(), Metadata(storage_data=None), 7)
    for value in (*others, Metadata(storage_data=[]), too_many):
        refused(tmp_path, dumped(value), "the metadata of a checkpoint in files")


# The reader of pickles.

START = b"\x80\4"

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
    | st.binary(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=5)
    ),
    max_leaves=20,
)


def plain(value: Any) -> Any:
    if isinstance(value, Pairs):
        return dict(zip(map(plain, value[::2]), map(plain, value[1::2]), strict=True))
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    return value


@pytest.mark.slow
@given(value=PLAIN, protocol=st.integers(3, 5))
@examples(200)
def test_plain_data_are_read_as_they_were(value: Any, protocol: int) -> None:
    assert plain(read_pickle(pickle.dumps(value, protocol), path="x")) == value


def test_other_data_are_read_as_what_they_are_of() -> None:
    shared = ["a"]
    value = [{1}, frozenset({2}), bytearray(b"3"), shared, shared, range(3), OrderedDict(a=1)]
    read: Any = read_pickle(pickle.dumps(value, 5), path="x")
    assert read[:5] == [[1], [2], b"3", ["a"], ["a"]]
    assert read[3] is read[4]
    assert (read[5].name, read[5].args) == ("builtins.range", (0, 3, 1))
    assert read[6].name == "collections.OrderedDict"
    assert read[6].fields() == {}


class Acts:
    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


def named(module: str, name: str) -> bytes:
    return START + b"".join(b"\x8c" + bytes([len(each)]) + each.encode() for each in (module, name))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Acts(os.system, "touch /tmp/x"), "posix.system"),
        (Acts(eval, "1"), "builtins.eval"),
        ([{"a": (time.sleep,)}], "time.sleep"),
    ],
)
@pytest.mark.parametrize("protocol", [3, 4])
def test_a_pickle_that_acts_is_refused(value: Any, name: str, protocol: int) -> None:
    with pytest.raises(ManifestError, match=f"the name '{name}'"):
        read_pickle(pickle.dumps(value, protocol), path="x")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *(("io", "open_code"), ("torch.serialization", "os.system"), ("builtins", "getattr")),
        *(("pathlib", "os.system"), ("collections", "abc.Mapping"), ("importlib", "import_module")),
        *(("builtins", "type"), ("pathlib", "Path.unlink"), ("os.path", "join")),
    ],
)
def test_what_leads_to_pythons_library_is_refused(module: str, name: str) -> None:
    with pytest.raises(ManifestError, match="expected a pickle of plain data"):
        read_pickle(named(module, name) + b"\x93.", path="x")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *(("torch", "float32"), ("pathlib._local", "PosixPath"), ("builtins", "slice")),
        *(("megatron.core.dist_checkpointing.mapping", "A.B"), ("__main__", "Mine")),
        *(("collections", "ChainMap"), ("_codecs", "encode"), ("numpy._core.multiarray", "scalar")),
    ],
)
def test_classes_of_data_are_written_down(module: str, name: str) -> None:
    read = read_pickle(named(module, name) + b"\x93.", path="x")
    assert isinstance(read, PickledObject)
    assert (read.name, read.args) == (f"{module}.{name}", None)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"]", b"t.", b"\x85.", b"0.", b"a.", b"]a.", b"](Ke", b"2.", b"1.", b"q\0.", b"."),
        *(b"\x94.", b"\x93.", b"R.", b"b.", b"u.", b"\x8c\xffab.", b"X\xff\xff\xff\x7fa."),
        *(b"\x8d" + b"\xff" * 8 + b"a.", b"B" + b"\xff" * 4, b"\x8a\xff1.", b"G1.", b"\x95\1\0."),
    ],
)
def test_a_pickle_that_breaks_off_is_refused(data: bytes) -> None:
    with pytest.raises(ManifestError, match="expected a pickle of plain data, found at byte"):
        read_pickle(START + data, path="x")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"P1\n.", "found at byte 2: the step PERSID"),
        (b"NQ.", "found at byte 3: the step BINPERSID"),
        (b"\x82\1.", "the step EXT1"),
        (b"ios\nsystem\n.", "the step INST"),
        (b"NNR.", "a call of a NoneType"),
        (b"ctorch\nfloat32\nNR.", "a call of a PickledObject"),
        (b"NNb.", "a state for a NoneType"),
        (b"NNa.", "items for a NoneType"),
        (b"}(Nu.", "a key without a value"),
        (b"NN\x93.", "a name that is no text"),
        (b"h\5.", "it refers to what is not there"),
        (b"(" * 1001, "it is nested too deep"),
        (b"cos", "no newline found"),
        (b"ctorch\\)\nx\n(", "no step"),
        (b"c" + b"a" * 9999 + b"\nb\n", "a name of no class"),
        (b"X\xe8\x07\0\0" + b"a" * 2024 + b"\x8c\1b\x93.", "a name of no class"),
        (b"X\1\0\0\0\xff.", "can't decode byte 0xff"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ManifestError, match=why):
        read_pickle(START + data, path="x")


@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_older_protocols_are_refused(protocol: int) -> None:
    """In those ``__builtin__`` is ``builtins``, ``commands`` is ``subprocess``, and so on."""
    data = pickle.dumps([Acts(eval, "1")], protocol)
    assert b"__builtin__" in data
    for each in (data, START + pickle.dumps(None, 2)):
        with pytest.raises(ManifestError, match="expected a pickle of plain data"):
            read_pickle(each, path="x")


def bombs() -> Iterator[bytes]:
    yield b")" + b"2\x86" * 100_000 + b"."  # a tuple of itself twice, and so on
    yield b"})" + b"2\x86" * 60 + b"Ns."  # as a key
    yield b"]q\0" + b"h\0a" * 10_000 + b"."  # in itself
    yield b"Nr\xff\xff\xff\xff."  # a memo of which the last place is used
    yield b"]" + b"](" * 900 + b"e" * 900 + b"."


@pytest.mark.parametrize("data", [*bombs()])
def test_a_bomb_does_not_go_off(data: bytes) -> None:
    start = time.process_time()
    read_pickle(START + data, path="x")
    assert time.process_time() - start < 2


def test_steps_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pickle, "_MAX_STEPS", 100)
    assert read_pickle(START + b"N" * 98 + b".", path="x") is None
    with pytest.raises(ManifestError, match="more than 100 steps"):
        read_pickle(START + b"N" * 99 + b".", path="x")


def refusal_of(function: Any, *args: Any) -> str:
    try:
        function(*args, **({"path": "x"} if function is read_pickle else {}))
    except ManifestError as error:
        return str(error)
    return ""


_CODES = [code.code.encode("latin-1") for code in pickletools.opcodes]
_USUAL = [b"N", b"]", b"}", b")", b"(", b"K\1", b"\x8c\1a"]
_STEPS = st.sampled_from(_CODES) | st.sampled_from(_USUAL)


@given(data=st.data())
@examples(500)
def test_no_pickle_makes_it_fail(data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        whole = START + b"".join(data.draw(st.lists(_STEPS, max_size=40)))
        whole += data.draw(st.binary(max_size=9))
    else:
        broken = bytearray((WRITTEN_BY_TORCH / ".metadata").read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
        whole = bytes(broken[: data.draw(st.integers(0, len(broken)))])
    assert len(refusal_of(read_pickle, whole)) < 1000


def test_nothing_in_a_pickle_is_imported_or_opened() -> None:
    """Seen by an audit hook (PEP 578), which stays: so in a child."""
    hostile = [
        pickle.dumps(Acts(os.system, "true")),
        (WRITTEN_BY_TORCH / ".metadata").read_bytes(),
        START + b"canything\nat_all\n)RNb.",
        *(START + bomb for bomb in bombs()),
    ]

    def events() -> list[str]:
        seen: list[str] = []
        sys.addaudithook(lambda event, _: seen.append(event))
        for data in hostile:
            refusal_of(read_pickle, data)
        acting = ("import", "open", "exec", "compile", "os.", "pickle.", "socket.", "subprocess.")
        return [event for event in seen if event.startswith(acting)]

    assert FormatContract().look(events).value == []
