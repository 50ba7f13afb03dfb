"""The tables of docs/testing-kit.md: what a loader may raise, and who finds which planted fault.

::

    python -m tests.mutants.kit_page docs/testing-kit.md

writes them anew. What they claim is tried by tests/testing/test_kit_page.py.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

from shardproof.testing import ShardState
from shardproof.testing.samples._oracle import MAY_REPORT
from tests.mutants.loaders import Bug

FIXTURE, STRATEGY = "test_with_the_fixture.py", "test_with_hypothesis.py"
PROPERTY = "test_my_loader_opens_what_is_whole_and_nothing_else"
SAYS = "test_a_refusal_says_what_is_wrong"
DELIVERED = "test_damage_is_never_delivered"
LOOKED_AT = "test_what_could_not_be_looked_at_is_not_missing"
WHOLE = "test_a_whole_directory_is_delivered"


class Fault(NamedTuple):
    """A mistake in a loader, whom it hurts, and the tests that find it."""

    does: str
    wrong: list[Bug] | list[tuple[str, str]]
    """The bugs, or which kind is taken for which; each of them is found."""
    harm: str
    contract: str
    fixture: str = ""
    strategy: str = ""


def _taken(kind: str, *others: str) -> list[tuple[str, str]]:
    return [(kind, other) for other in others]


FAULTS = [
    Fault(
        "calls a missing shard unreadable, empty, not regular or of another size",
        _taken("missing", "unreadable", "empty", "not-regular", "size"),
        "manners",
        SAYS,
        "test_a_missing_shard_is_named",
        PROPERTY,
    ),
    Fault(
        "calls a shard missing that nobody may read (`chmod 0`)",
        [Bug.DENIED_IS_MISSING],
        "unsafe",
        LOOKED_AT,
        "test_a_shard_that_nobody_may_read",
        PROPERTY,
    ),
    Fault(
        "calls it empty, not regular or of another size",
        _taken("unreadable", "empty", "not-regular", "size"),
        "manners",
        SAYS,
        "test_a_shard_that_nobody_may_read",
        PROPERTY,
    ),
    Fault(
        "calls an empty shard missing, unreadable or not regular",
        _taken("empty", "missing", "unreadable", "not-regular"),
        "manners",
        SAYS,
        strategy=PROPERTY,
    ),
    Fault(
        "calls a directory, a link out, a FIFO or a socket missing, empty or of another size",
        _taken("not-regular", "missing", "empty", "size"),
        "manners",
        SAYS,
        strategy=PROPERTY,
    ),
    Fault(
        "calls a shard of another size missing, empty, unreadable or not regular",
        _taken("size", "missing", "empty", "unreadable", "not-regular"),
        "manners",
        SAYS,
        strategy=PROPERTY,
    ),
    Fault(
        "calls a shard missing whose open fails with EIO", [Bug.EIO_IS_MISSING], "unsafe", LOOKED_AT
    ),
    Fault("calls a shard missing whose stat fails with EIO", [Bug.STATS], "unsafe", LOOKED_AT),
    Fault(
        "accepts every damage when it is opened",
        [Bug.NEVER],
        "manners",
        "test_damage_is_refused_on_opening",
        "test_a_missing_shard_is_named",
        PROPERTY,
    ),
    Fault(
        "leaves damaged shards out, and goes on",
        [Bug.NO_DAMAGE],
        "unsafe",
        DELIVERED,
        "test_other_damage",
        PROPERTY,
    ),
    Fault("is killed by SIGBUS", [Bug.MAPS], "unsafe", "test_damage_during_iteration"),
    Fault("ends the process", [Bug.EXITS], "unsafe", DELIVERED, "test_a_missing_shard_is_named"),
    Fault("hangs", [Bug.WAITS], "unsafe", DELIVERED),
    Fault(
        "names another shard than the damaged one",
        [Bug.WRONG_SHARD],
        "manners",
        "test_a_refusal_names_the_absolute_path",
        "test_a_missing_shard_is_named",
        PROPERTY,
    ),
    Fault(
        "names all shards, the whole ones too",
        [Bug.BLAMES_ALL],
        "manners",
        "test_all_problems_are_named_at_once",
    ),
    Fault(
        "names only the first of all problems",
        [Bug.FIRST_ONLY],
        "manners",
        "test_all_problems_are_named_at_once",
        strategy=PROPERTY,
    ),
    Fault(
        "delivers half of a batch, and then raises an error",
        [Bug.HALF_BATCH],
        "unsafe",
        DELIVERED,
        "test_other_damage",
        PROPERTY,
    ),
    Fault("deletes what it refuses", [Bug.DELETES], "unsafe", DELIVERED),
    Fault(
        "accepts a shard that was never written",
        [Bug.UNWRITTEN],
        "unsafe",
        DELIVERED,
        "test_other_damage",
        PROPERTY,
    ),
    Fault("takes a short read for the end", [Bug.STOPS], "unsafe", "test_reads_that_fail"),
    Fault(
        "delivers a half-written file that lies beside a shard",
        [Bug.LEFTOVERS],
        "unsafe",
        WHOLE,
        strategy="test_my_loader_does_not_cry_wolf",
    ),
    Fault(
        "looks at the shards when the first sample is asked for",
        [Bug.LATE],
        "manners",
        "test_damage_is_refused_on_opening",
        "test_a_missing_shard_is_named",
        PROPERTY,
    ),
]


def states_table() -> str:
    rows = [["a shard that is", "class of the error", "its findings or its words call the shard"]]
    rows += [["---"] * 3, *(_state_row(state) for state in ShardState if state in MAY_REPORT)]
    return _table(rows)


def _state_row(state: ShardState) -> list[str]:
    kinds = MAY_REPORT[state]
    if not kinds:
        return [f"`{state}`", "none: nothing is wrong", ""]
    name = {
        "missing": "`FileNotFoundError`",
        "unreadable": "`PermissionError`, or any other `Exception`",
    }.get(kinds[0], "any `Exception`")
    return [f"`{state}`", name, ", ".join(f"`{kind}`" for kind in kinds)]


def faults_table() -> str:
    rows = [
        ["", "a loader that", "is", "test with the fixture", "with the strategy", "in the contract"]
    ]
    rows += [["---"] * 6]
    for number, fault in enumerate(FAULTS, 1):
        tests = [
            f"`{name}`" if name else "" for name in (fault.fixture, fault.strategy, fault.contract)
        ]
        rows.append([str(number), fault.does, fault.harm, *tests])
    return _table(rows)


def _table(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def page(text: str) -> str:
    """Return the page with both tables as they should be."""
    for name, table in {"states": states_table(), "faults": faults_table()}.items():
        between = rf"(?s)(<!-- {name} -->\n).*?(<!-- end -->)"
        text = re.sub(
            between, lambda found, table=table: f"{found[1]}\n{table}\n\n{found[2]}", text
        )
    return text


if __name__ == "__main__":
    PAGE = Path(sys.argv[1])
    PAGE.write_text(page(PAGE.read_text()))
