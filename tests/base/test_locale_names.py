"""A name for which the locale has no bytes: nobody can look at such a file, which may be whole.

Python takes the encoding of names from the locale when it starts: so each look is a process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardproof import testing
from tests.helpers.planning import complete, new_store, receipt_path, rewrite_receipt

C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""Names are ASCII, and other bytes are escaped: nothing that a text holds gives them."""

UTF8 = {"LC_ALL": "C", "PYTHONUTF8": "1"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Whole, and one shard has a name of other letters."""
    path = testing.write_layout(testing.Layout(n_shards=3), tmp_path)
    listing = path / "shards.json"
    shards = json.loads(listing.read_text())
    os.rename(path / shards[1]["name"], path / "日本.bin")
    shards[1]["name"] = "日本.bin"
    listing.write_text(json.dumps(shards))
    return path


def run(*args: str | Path, locale: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, args)]
    environment = {**os.environ, **locale, "COLUMNS": "1000"}
    return subprocess.run(
        command, env=environment, capture_output=True, encoding="utf-8", check=False
    )


def assert_in_words(text: str, directory: Path) -> None:
    assert "Traceback" not in text
    assert "'ascii' has no bytes for 1 of the names, such as '\\u65e5\\u672c.bin'" in text
    assert "PYTHONUTF8=1" in text
    assert str(directory / "shards.json") in text


@pytest.mark.slow
def test_the_command_could_not_look(directory: Path) -> None:
    done = run("-m", "shardproof", "validate", "--level", "valid", directory, locale=C)
    assert done.returncode == 3
    assert_in_words(done.stderr, directory)
    assert run("-m", "shardproof", "validate", directory, locale=UTF8).returncode == 0


@pytest.mark.exhaustive
def test_the_plugin_could_not_look(directory: Path) -> None:
    done = run("-m", "pytest", "-p", "no:cacheprovider", "--validate-shards", directory, locale=C)
    assert done.returncode == 1
    assert_in_words(done.stdout, directory)
    assert "Its shards may be whole: this is no finding about them." in done.stdout


QUESTIONS = ("store.verdict(1)", "store.pending()", "store.claim(1)", "validate(store.path)")


@pytest.mark.slow
def test_a_shard_is_not_made_again_for_an_output_at_which_nobody_could_look(tmp_path) -> None:
    store = new_store(tmp_path)
    complete(store, 1)
    receipt = json.loads(receipt_path(store, 1).read_bytes())
    os.rename(store.path / receipt["files"]["bin"]["path"], store.path / "日本.bin")
    receipt["files"]["bin"]["path"] = "日本.bin"
    rewrite_receipt(store, 1, files=receipt["files"])
    before = receipt_path(store, 1).read_bytes()
    script = tmp_path / "ask.py"
    script.write_text(
        "from shardproof import ReceiptStore, validate\n"
        f"for question in {QUESTIONS}:\n"
        f"    store = ReceiptStore({str(store.path)!r})\n"
        "    try: print(eval(question))\n"
        "    except OSError as error: print('could not check:', error)\n"
        "    except Exception: pass  # it is completed\n"
    )
    assert run(script, locale=C).stdout.count("could not check") == len(QUESTIONS)
    assert "could not check" not in run(script, locale=UTF8).stdout
    assert receipt_path(store, 1).read_bytes() == before
