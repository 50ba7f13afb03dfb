"""Text from outside in every message: no control character, no line of its own, no flood."""

import contextlib
import inspect
import itertools
import json
import logging
import os
import pty
import shlex
import shutil
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import shardproof
from shardproof import errors, testing
from shardproof.checkpoint import MultiShardLoader, from_safetensors, to_safetensors
from shardproof.cli.app import app
from shardproof.datasets import SharedShardedDataset
from shardproof.fetching.cache._settings import cleanup_policy
from shardproof.report import Finding, FindingKind, Report, ShardValidationError
from tests.attacks.mutations import FORGED, harms_of
from tests.attacks.raw_server import RawServer
from tests.attacks.tally import Tally
from tests.helpers.saving import saved

TEXTS = [
    *(f"\n{FORGED}\n", f"\r{FORGED}", f"\x1b]0;{FORGED}\x07\x1b[2J", "\x9b2J\x85\u2028"),
    *("\u202egpj.exe\u200b", "\x7f\x08\x08\x08", "\udcff\udc9b", "x" * 200),
]
"""What can be part of a file's name, or all but the surrogates of a field of JSON."""

ERRORS = sorted(
    {
        value
        for value in (*vars(errors).values(), ShardValidationError)
        if isinstance(value, type) and issubclass(value, errors.ShardproofError)
    },
    key=lambda kind: kind.__name__,
)


def judged(tally: Tally, where: object, text: str) -> None:
    tally.count()
    for harm in harms_of(text):
        tally.harm("lie" if "forged" in harm else "wrong class", f"{where}: {harm}")


def arguments_of(kind: type, text: str) -> Iterator[dict[str, Any]]:
    """Each argument that takes text, one at a time; a problem is made by us, and has our lines."""
    given = inspect.signature(kind).parameters
    right = {"problem": "wrong", "path": "/d/x", "url": "https://h/x", "line": 3, "field": "$[0]"}
    plain = {name: right[name] for name in given if name in right}
    for name in plain:
        if name not in {"line", "problem"}:
            yield plain | {name: text}
    if "problem" in given:
        yield plain | {"problem": on_a_line_of_ours(text)}
    if "causes" in given:
        yield plain | {"causes": [on_a_line_of_ours(text)] * 3}


def on_a_line_of_ours(text: str) -> str:
    """Where a line ends, says who makes the text: a problem may have several."""
    return f"found {text}".replace("\n", "")


def report_of(text: str) -> Report:
    path = Path(f"/d/{text}")
    findings = tuple(Finding(kind, path / f"{text}.bin", "a", "b") for kind in FindingKind)
    return Report(path, "saev", "valid", 9, findings, (path,), 1)


@pytest.mark.attack("hostile text in messages")
@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_no_error_says_hostile_text_as_it_is(kind: type, tally: Tally) -> None:
    for text in TEXTS:
        if kind is ShardValidationError:
            judged(tally, kind, str(kind(report_of(text))))
            continue
        made = [kind(**given) for given in arguments_of(kind, text)]
        if not made:
            made = [kind(on_a_line_of_ours(text))]
        for error in made:
            judged(tally, kind, str(error))
            judged(tally, kind, f"of {vars(error).get('problem')} {vars(error).get('field')}")


def in_json(text: str) -> str:
    return text.encode(errors="replace").decode()


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def hostile_saev(base: Path, text: str) -> Path:
    return testing.write_layout(testing.Layout(n_shards=3, missing=[1]), base / f"d{text}")


def saev_that_says(base: Path, shards: object, **metadata: str) -> Path:
    root = testing.write_layout(testing.Layout(n_shards=3), base)
    edit(root / "metadata.json", **metadata)
    (root / "shards.json").write_text(json.dumps(shards, ensure_ascii=False))
    return root


def hostile_fields(base: Path, text: str) -> Path:
    told = in_json(text)
    shards = [{"name": f"a{told}", "n_examples": 4, told: 1}, {"name": told, told: told}]
    return saev_that_says(base, shards, **{told: told, "dtype": told})


def unknown_fields(base: Path, text: str) -> Path:
    told = in_json(text)
    names = ["acts000000.bin", f"{told}.bin".replace("/", ""), "acts000002.bin"]
    return saev_that_says(base, [{"name": n, "n_examples": 4} for n in names], **{told: told})


def flooded_entry(base: Path, text: str) -> Path:
    entry = {"name": "acts000000.bin", "n_examples": 4, in_json(text) * 10_000: 1}
    return saev_that_says(base, [entry])


def hostile_link(base: Path, text: str) -> Path:
    root = testing.write_layout(testing.Layout(n_shards=3, missing=[1]), base / "d")
    outside = base / f"out{text}"
    outside.mkdir()
    (outside / "x").write_bytes(b"x" * 1024)
    (root / "acts000001.bin").symlink_to(outside / "x")
    return root


def hostile_checkpoint(base: Path, text: str) -> Path:
    layout = testing.Layout(format="checkpoint", missing=[1])
    return testing.write_layout(layout, base / f"c{text}" / "model").parent


def hostile_receipts(base: Path, text: str) -> Path:
    root = testing.write_layout(
        testing.Layout(n_shards=3, format="receipts", absent=[1]), base / f"r{text}"
    )
    told = in_json(text)
    receipts = root / "receipts"
    edit(receipts / "shard_000000.json", **{"plan_hash": told, "status": told, told: told})
    edit(receipts / "shard_000002.json", status="failed", error_message=told * 3)
    return root


def hostile_tensors(base: Path, text: str) -> Path:
    """A checkpoint that is whole, and a file of safetensors; their tensors have hostile names."""
    told = in_json(text)
    arrays = {told: np.zeros(2), told * 2: np.zeros(1)}
    saved(base / "model", [arrays], strategy=told, precision=told)
    entry = {"dtype": told, "shape": [2], "data_offsets": [0, 2]}
    said = {told: entry, "b": entry | {"dtype": "U8"}, "__metadata__": {told: told}}
    header = json.dumps(said).encode()
    (base / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"xx")
    return base


def hostile_index(base: Path, text: str) -> Path:
    told = in_json(text)
    for name in ("a", text):
        index = {"weight_map": {told: f"{told}.safetensors", "a": "b"}}
        (base / f"{name}.safetensors.index.json").write_text(json.dumps(index))
    return base


MAKERS = [
    *(hostile_tensors, hostile_index, hostile_saev, hostile_fields, unknown_fields, flooded_entry),
    *(hostile_link, hostile_checkpoint, hostile_receipts),
]

COMMANDS = [
    *("validate --verbose", "validate --level=valid", "receipts", "stage --to=STAGED"),
    *("adopt --source=file:///nowhere", "checkpoint verify", "checkpoint show"),
    *("checkpoint latest", "fetch", "checkpoint convert ROOT STAGED"),
    *("checkpoint convert ROOT/model ROOT", "validate --json", "receipts --json", "adopt --json"),
    *("checkpoint verify --json", "checkpoint show --json"),
]


def run(arguments: list[str]) -> str:
    result = CliRunner().invoke(app, arguments)
    for name in ("shardproof.fetching", "shardproof.checkpoint"):
        logging.getLogger(name).handlers.clear()  # a process runs one command, and ends
    crash = result.exception
    assert crash is None or isinstance(crash, (SystemExit, KeyboardInterrupt)), repr(crash)
    return result.output


@pytest.mark.attack("hostile text in messages")
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_no_command_prints_or_logs_hostile_text(make, tmp_path, tally, caplog) -> None:
    caplog.set_level(logging.DEBUG, "shardproof")
    for n, command, base, root in made(make, COMMANDS, tmp_path, tally, 12):
        words = (command if "ROOT" in command else f"{command} ROOT").split()
        words = [word.replace("STAGED", str(base / "staged")) for word in words]
        judged(tally, (command, n), run([word.replace("ROOT", str(root)) for word in words]))
        judged(tally, (command, n), "\n".join(record.getMessage() for record in caplog.records))
        caplog.clear()


def made(make, met_by, path, tally, n) -> Iterator[tuple[int, Any, Path, Path]]:
    base = path / "b"
    for number, each in tally.each([*itertools.product(range(len(TEXTS)), met_by)], n):
        base.mkdir()
        yield number, each, base, make(base, TEXTS[number].replace("/", ""))
        shutil.rmtree(base)


READERS: dict[str, Callable[[Path], object]] = {
    "validate": shardproof.validate,
    "prove": lambda root: shardproof.validate(root, level="valid").raise_for_findings(),
    "ShardInfo": shardproof.ShardInfo.load,
    "Metadata": shardproof.Metadata.load,
    "receipts": lambda root: shardproof.ReceiptStore(root).pending(level="complete"),
    "stage": lambda root: shardproof.stage(root, root.parent),
    "checkpoint": lambda root: MultiShardLoader().load_metadata(prefix_in(root)),
    "tensors": lambda root: from_safetensors(root, root.parent / "made"),
    "a file of tensors": lambda root: from_safetensors(root / "x.safetensors", root / "made"),
}


def prefix_in(root: Path) -> Path:
    names = [name for name in os.listdir(root) if name.endswith(".metadata.json")]
    return root / names[0].removesuffix(".metadata.json") if names else root


@pytest.mark.attack("hostile text in messages")
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_no_traceback_has_hostile_text(make, tmp_path, tally) -> None:
    for n, name, _, root in made(make, READERS, tmp_path, tally, 40):
        tally.count()
        try:
            READERS[name](root)
        except (shardproof.ShardproofError, OSError, ValueError) as error:
            judged(tally, (name, n), "".join(traceback.format_exception(error)))


def on_a_terminal(words: list[str]) -> str:
    """What a command prints on a terminal without colours, by whose line ends lines end."""
    main, side = pty.openpty()
    env = {**os.environ, "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "1000"}
    command = [sys.executable, "-m", "shardproof", *words]
    with subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=env):
        os.close(side)
        output = b""
        with contextlib.suppress(OSError):  # EIO: how a terminal ends (pty(7))
            while chunk := os.read(main, 65536):
                output += chunk
    os.close(main)
    return output.decode(errors="surrogateescape").replace("\r\n", "\n")


ON_A_TERMINAL = [
    *("validate ROOT ROOT", "stage -q ROOT --to BASE", "checkpoint verify BASE"),
    *("checkpoint latest BASE", "checkpoint convert BASE/model BASE/made", "receipts BASE"),
    *("demo --to BASE/demo", "fetch -q file://ROOT/acts000000.bin BASE"),
    *("fetch file://ROOT/acts000000.bin BASE", "stage ROOT --to BASE/loop"),
]


@pytest.mark.attack("hostile text in messages")
def test_no_command_paints_the_terminal_or_forges_a_line(tmp_path: Path, tally: Tally) -> None:
    cases = [(n, words) for words in ON_A_TERMINAL for n in range(len(TEXTS))]
    for n, words in tally.each(cases, 5):
        base = tmp_path / "b" / TEXTS[n].replace("/", "")
        base.mkdir(parents=True)
        (base / "loop").symlink_to("loop")
        root = testing.write_layout(testing.Layout(n_shards=2), base / "d")
        testing.write_layout(testing.Layout(format="checkpoint"), base / "model")
        given = [w.replace("ROOT", str(root)).replace("BASE", str(base)) for w in words.split()]
        judged(tally, (n, words), on_a_terminal(given))
        shutil.rmtree(tmp_path / "b")


WRONG_USAGE = [
    *("TEXT", "--TEXT", "validate -TEXT x", "validate --TEXT x", "validate --level=TEXT x"),
    *("validate --workers=TEXT x", "demo TEXT", "receipts --level TEXT x", "stage x --to=TEXT"),
    *("fetch TEXT x TEXT", "checkpoint TEXT", "checkpoint show x TEXT"),
    "checkpoint convert x x --step=TEXT",
]


@pytest.mark.attack("hostile text in messages")
@pytest.mark.parametrize("words", WRONG_USAGE)
def test_wrong_usage_is_said_without_hostile_text(words, tally, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")  # or a line could end anywhere
    for text in TEXTS:
        said = run([word.replace("TEXT", text) for word in words.split()])
        judged(tally, (words, text), said)


@pytest.mark.attack("hostile text in messages")
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_what_stands_in_the_way_of_a_conversion_is_quoted(text, tmp_path, tally) -> None:
    where = tmp_path / f"d{text.replace('/', '')}"
    saved(tmp_path / "model", [{"a": np.zeros(2)}])
    to_safetensors(tmp_path / "model", where)
    with pytest.raises(errors.CheckpointError) as error:
        to_safetensors(tmp_path / "model", where)
    judged(tally, "convert", str(error.value))
    for name in ("a", text.replace("/", "")):
        (where / f"{name}.safetensors.index.json").write_text("{}")
    with pytest.raises(errors.CheckpointError) as error:
        from_safetensors(where, tmp_path / "again")
    judged(tally, "several indices", str(error.value))


@pytest.mark.attack("hostile text in messages")
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_who_took_a_claim_over_is_quoted(text, tmp_path, tally) -> None:
    root = testing.write_layout(testing.Layout(n_shards=2, format="receipts", absent=[1]), tmp_path)
    claim = shardproof.ReceiptStore(root).claim(1)
    (path,) = (root / "claims").glob("*.json")
    edit(path, token="0" * 32, owner=in_json(text), process=in_json(text))
    with pytest.raises(errors.ClaimLostError) as error:
        claim.raise_if_lost()
    judged(tally, "lost", str(error.value))
    with pytest.raises(errors.ShardClaimedError) as error:
        shardproof.ReceiptStore(root).claim(1)
    judged(tally, "claimed", str(error.value))


VARIABLES = {
    "HF_SHARD_CACHE_CLEANUP": lambda base: cleanup_policy(),
    "DATASET_BINS_PATH": lambda base: SharedShardedDataset(0, 4),
    "TMPDIR": lambda base: shardproof.stage(hostile_saev(base, "x")),
    "PYTEST_ADDOPTS": None,
}


@pytest.mark.attack("hostile text in messages")
@pytest.mark.parametrize("name", VARIABLES)
def test_no_variable_of_the_environment_is_said_as_it_is(
    name, tmp_path, tally, monkeypatch
) -> None:
    for number, text in enumerate(tally.each(TEXTS, 2 if VARIABLES[name] is None else len(TEXTS))):
        monkeypatch.setenv(name, text)
        judged(tally, name, said_of_variable(name, text, tmp_path / str(number)))


def said_of_variable(name: str, text: str, base: Path) -> str:
    base.mkdir()
    if name == "PYTEST_ADDOPTS":
        command = [sys.executable, "-m", "pytest", "--validate-shards", str(base)]
        option = shlex.quote(f"--shards-level={text}")
        done = subprocess.run(command, capture_output=True, env=os.environ | {name: option})
        return (done.stdout + done.stderr).decode()
    try:
        VARIABLES[name](base)
    except (errors.ShardproofError, ValueError, OSError) as error:
        return str(error)
    raise AssertionError("it was taken for something")


@pytest.mark.attack("hostile text in messages")
def test_pytest_prints_no_hostile_text(tmp_path: Path, tally: Tally) -> None:
    for make in tally.each([hostile_saev, hostile_fields, hostile_link], 1):
        root = make(tmp_path / make.__name__, "\n".join(TEXTS[:3]).replace("/", ""))
        command = [sys.executable, "-m", "pytest", "-vv", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "--validate-shards", f"--shards-dir={root}", "--color=no"],
            capture_output=True,
            cwd=tmp_path,
            env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "", "PYTEST_ADDOPTS": ""},
        )
        assert done.returncode == 1, done.stdout
        judged(tally, make.__name__, (done.stdout + done.stderr).decode())


ANSWERS = [
    b"HTTP/1.1 404 Not\x9b2J\xc2\x85 Found\t\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 404 " + b"x" * 60_000 + b"\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://\x9b2J\xff/\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: \x9b2J\xff\r\nContent-Length: 1\r\n\r\nx",
    b"HTTP/1.1 206 OK\r\nContent-Range: \x9b2J\xff\r\nContent-Length: 1\r\n\r\nx",
    b"HTTP/1.1 404 No\r\nX-Error-Code: \x9b2J" + b"y" * 9999 + b"\r\nContent-Length: 0\r\n\r\n",
]


@pytest.mark.attack("hostile text in messages")
@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: ascii(answer[:40]))
def test_no_answer_of_a_server_is_printed_as_it_is(answer, tmp_path, tally, caplog) -> None:
    caplog.set_level(logging.DEBUG, "shardproof")
    with RawServer(lambda _: [answer]) as server:
        url = f"http://127.0.0.1:{server.port}/x.bin"
        judged(tally, answer[:40], run(["fetch", "-v", "--attempts=2", url, str(tmp_path)]))
    judged(tally, answer[:40], "\n".join(record.getMessage() for record in caplog.records))


@pytest.mark.parametrize("text", TEXTS[:-1], ids=ascii)
def test_what_says_hostile_text_as_it_is_is_caught(text: str) -> None:
    assert list(harms_of(f"Missing files (1):\n  - /d/{text}"))
