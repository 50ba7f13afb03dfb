"""Run the contracts with each loader, and compare with what was recorded.

::

    python tests/peers/outcomes.py        # record anew, and print the tables of docs/peers.md
    python tests/peers/outcomes.py 5      # from five runs, where timing decides

A test's outcome is ``passed`` or ``failed``; that of ``test_one_pass`` is the word for what the
loader gave. Where runs differed, all that were seen are recorded.
"""

import collections
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.helpers import ROOT

RECORD = Path(__file__).with_name("outcomes.json")
DISTRIBUTIONS = ("torch", "numpy", "mosaicml-streaming", "litdata", "webdataset")
PEERS = {
    "TestFromFile": "F",
    "TestMemmap": "M0",
    "TestMemmapWorkers": "M2",
    "TestStreaming": "S",
    "TestStreamingHash": "SH",
    "TestStreamingCache": "SC",
    "TestStreamingCacheHash": "SCH",
    "TestLitData": "L",
    "TestWebDataset": "W",
}
"""Class in `contracts`, and the head of its column."""


class Seen(NamedTuple):
    """How one test ended."""

    outcome: str
    says: str


def versions() -> dict[str, str]:
    # Behind a plus stands which build it is.
    return {name: importlib.metadata.version(name).partition("+")[0] for name in DISTRIBUTIONS}


def run(peer: str) -> dict[str, Seen]:
    """Run one loader's contract and return how each test of it ended."""
    with tempfile.TemporaryDirectory(prefix="peers-") as base:
        report = Path(base, "report.xml")
        contracts = Path(__file__).with_name("contracts.py")
        command = [sys.executable, "-m", "pytest", f"{contracts}::{peer}", "-q", "-W", "ignore"]
        command += ["-p", "no:cacheprovider", f"--junitxml={report}", f"--basetemp={base}/pytest"]
        environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
        done = subprocess.run(
            command, cwd=ROOT, env={**environ, "TMPDIR": base}, capture_output=True, timeout=900
        )
        if done.returncode > 1:  # 1: there were failures
            raise RuntimeError(done.stdout.decode() + done.stderr.decode())
        return dict(map(_seen, ElementTree.parse(report).iter("testcase")))


def _seen(case: ElementTree.Element) -> tuple[str, Seen]:
    told = {each.get("name"): each.get("value", "") for each in case.iter("property")}
    failure = case.find("failure")
    if case.find("error") is not None:
        raise RuntimeError(ElementTree.tostring(case).decode())
    outcome = told.get("gave", "passed" if failure is None else "failed")
    says = told.get("says", "" if failure is None else failure.get("message", ""))
    return case.get("name", ""), Seen(outcome, _first_line(says))


def _first_line(text: str) -> str:
    line = text.strip().split("\n")[0]
    line = re.sub(r"/\S*?/(contract-\d+|mds-cache-\w+)", r"<\1>", line)
    return re.sub(r"(?<![\w./])\d{4,}\b", "...", line)[:200]  # of processes and threads


def recorded() -> dict[str, dict[str, dict[str, str]]]:
    """Return for each class and test what was seen, and the first line of what was said then."""
    return json.loads(RECORD.read_text())["peers"]


def run_all() -> dict[str, dict[str, Seen]]:
    """Run all, two at a time; those of Streaming share names in shared memory, and take turns."""
    shared = [peer for peer in PEERS if "Streaming" in peer]
    lanes = [shared, [peer for peer in PEERS if peer not in shared]]
    with ThreadPoolExecutor(len(lanes)) as pool:
        found = pool.map(lambda lane: {peer: run(peer) for peer in lane}, lanes)
        return {peer: seen for lane in found for peer, seen in lane.items()}


def record(n_runs: int) -> None:
    """Run everything so often, and write down what was seen, after each run."""
    runs: list[dict[str, dict[str, Seen]]] = []
    while len(runs) < n_runs:
        runs.append(run_all())
        peers = {peer: _merged([found[peer] for found in runs]) for peer in PEERS}
        content = {"versions": versions(), "n_runs": len(runs), "peers": peers}
        RECORD.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _merged(runs: list[dict[str, Seen]]) -> dict[str, dict[str, str]]:
    return {
        test: {found[test].outcome: found[test].says for found in reversed(runs)}
        for test in runs[0]
    }


def tables() -> tuple[str, str, str]:
    """Return the tables of docs/peers.md: two of what one pass gives, and the contracts' tests."""
    peers = recorded()
    names = list(dict.fromkeys(test for found in peers.values() for test in found))
    groups = dict.fromkeys(map(_group, names))
    return (
        _pass_table("test_one_pass", "the second of four shards is", names, peers),
        _pass_table("test_one_pass_cut", "each shard, after the first sample,", names, peers),
        _table("test", [_test_row(each, peers) for each in groups if "one_pass" not in each]),
    )


def _group(test: str) -> str:
    return test.partition("[")[0]


def _pass_table(group: str, corner: str, names: list[str], peers: dict) -> str:
    return _table(corner, [_pass_row(name, peers) for name in names if _group(name) == group])


def _pass_row(test: str, peers: dict) -> list[str]:
    case = test.partition("[")[2].rstrip("]")
    return [case, *(" / ".join(sorted(found[test])) for found in peers.values())]


def _test_row(group: str, peers: dict) -> list[str]:
    return [f"`{group}`", *(_cell(group, found) for found in peers.values())]


def _cell(group: str, found: dict) -> str:
    of_group = [seen for test, seen in found.items() if _group(test) == group]
    counts = collections.Counter("/".join(sorted(seen)) for seen in of_group)
    if not of_group:
        return ""
    if len(of_group) == 1:
        return {"passed": "yes", "failed": "no"}.get(*counts, "varies")
    varies = f", {counts['failed/passed']} varies" * ("failed/passed" in counts)
    return f"{counts['passed']} of {len(of_group)}{varies}"


def _table(corner: str, rows: list[list[str]]) -> str:
    head = [corner, *PEERS.values()]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    record(int(sys.argv[1]) if sys.argv[1:] else 1)
    sys.stdout.write("\n\n".join(tables()) + "\n")
