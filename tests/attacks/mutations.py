"""Files that somebody has spoiled on purpose: the same ones for the same seed."""

import json
import random
from collections.abc import Iterator
from typing import Any

FORGED = "FORGED: all files are whole"
"""What begins no line of anything that is told, though hostile texts hold it as one."""

LONGEST = 2**16

_TEXTS = [
    *(f"a\n{FORGED}\n", f"\x1b]0;{FORGED}\x07", f"\r{FORGED}", "\x1b[2J\x9b1m", "nib.\u202eexe"),
    *("a\u2028b\u0085c", "../../etc/passwd", "/etc/passwd", "a\0b", "\u0315\u0300" * 3000),
    *("x" * 100_000, "", " ", "é" * 200, "\ud800", "(((((a+)+)+)+)+)+$", "*?" * 500),
    *("sha256:" + "g" * 64, "=" * 1000),
]
_NUMBERS = [
    *(0, -1, 1, 2**31, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**400),
    *(1e308, -0.0, 0.5, 1e-320, float("nan"), float("inf"), -float("inf")),
]
_OTHERS: list[Any] = [None, True, False, [], {}, [[]], [None] * 100, {"a": {"a": {}}}]
_SPELLED = [
    *("[" * 100_000, "[" * 500 + "]" * 500, '{"a":' * 5000 + "1" + "}" * 5000, "1" * 100_000),
    *("1e999999999", "-" * 100, '"\\ud800"', '"\\u0000"', "NaN", "tru", '{"a":1,"a":2}'),
]
_HOLE = "0d5e3b7a-hole"


def harms_of(text: str) -> Iterator[str]:
    """What is wrong with a text that was printed, logged or raised."""
    if len(text) > LONGEST:
        yield f"{len(text)} characters"
    if not all(character.isprintable() or character == "\n" for character in text):
        yield f"a control character in {ascii(text)[:400]}"
    if any(line.strip().startswith(FORGED) for line in text.splitlines()):
        yield f"a forged line in {ascii(text)[:400]}"


def mutated(data: bytes, seed: int) -> bytes:
    chosen = random.Random(seed)
    if chosen.random() < 0.6 and (said := _as_json(data)) is not None:
        return _by_structure(said, chosen)
    return _by_bytes(data, chosen)


def _as_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _by_bytes(data: bytes, chosen: random.Random) -> bytes:
    spoiled = bytearray(data)
    for _ in range(chosen.choice([1, 1, 2, 8])):
        at = chosen.randrange(len(spoiled) + 1)
        until = min(len(spoiled), at + chosen.choice([1, 1, 2, 4, 8, 100]))
        do = chosen.randrange(7)
        if do == 0 and at < len(spoiled):
            spoiled[at] ^= 1 << chosen.randrange(8)
        elif do == 1:
            del spoiled[at:]
        elif do == 2:
            del spoiled[at:until]
        elif do == 3:
            spoiled[at:until] = chosen.randbytes(until - at)
        elif do == 4:
            spoiled[at:at] = chosen.choice(_TEXTS).encode(errors="surrogatepass")
        elif do == 5:
            spoiled[at:until] = chosen.choice([b"\0", b"\xff", b"9", b'"', b"\n"]) * (until - at)
        else:
            spoiled[at:at] = spoiled[at:until] * chosen.choice([1, 2, 50])
    return bytes(spoiled)


def _by_structure(said: Any, chosen: random.Random) -> bytes:
    spelled = ""
    for _ in range(chosen.choice([1, 1, 1, 2, 5])):
        holders = [found for found in _all_in(said) if isinstance(found, (dict, list)) and found]
        if not holders:
            break
        holder = chosen.choice(holders)
        key = (
            chosen.choice([*holder]) if isinstance(holder, dict) else chosen.randrange(len(holder))
        )
        if chosen.random() < 0.1:
            spelled = chosen.choice(_SPELLED)
            new = isinstance(holder, dict) and chosen.random() < 0.5
            holder["more" if new else key] = _HOLE
        else:
            _spoil(holder, key, chosen)
    text = json.dumps(said, ensure_ascii=chosen.random() < 0.5)
    text = text.replace(f'"{_HOLE}"', spelled, 1)
    if chosen.random() < 0.05:
        text = text[:-1] + ',"a":1,"a":1}'
    return text.encode(errors="surrogatepass")


def _spoil(holder: Any, key: Any, chosen: random.Random) -> None:
    do = chosen.randrange(8)
    if do == 0:
        del holder[key]
    elif do == 1 and isinstance(holder, dict):
        holder[chosen.choice(_TEXTS)] = holder.pop(key)
    elif do == 2 and isinstance(holder, dict):
        holder[chosen.choice(_TEXTS)] = _copy(chosen.choice(_OTHERS))
    elif do == 2:
        holder += _copy(holder) * chosen.choice([1, 30])
    elif do in {3, 4}:
        holder[key] = chosen.choice(_TEXTS)
    elif do in {5, 6}:
        holder[key] = chosen.choice(_NUMBERS)
    else:
        holder[key] = _copy(chosen.choice(_OTHERS))


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _all_in(said: Any) -> list[Any]:
    found, todo = [], [said]
    while todo:
        value = todo.pop()
        found.append(value)
        todo += (
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        )
    return found
