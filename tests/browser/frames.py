"""How smooth the page is with 100 000 cells, and the pictures of it for the documentation.

::

    python -m tests.browser.frames            # frames a second, of this machine
    python -m tests.browser.frames docs       # and docs/report-light.png, docs/report-dark.png
"""

import sys
import tempfile
from pathlib import Path

from shardproof.rendering import page
from tests.helpers.chromium import browser, screenshot, show
from tests.helpers.surveys import large

SECONDS = 4
COUNT = f"""
const done = arguments[arguments.length - 1], act = new Function("frame", arguments[0]);
let frames = 0, longest = 0, last = performance.now(); const begin = last;
const step = (now) => {{
  longest = Math.max(longest, now - last); last = now;
  if (now - begin > {SECONDS} * 1000) return done([frames / (now - begin) * 1000, longest]);
  act(frames++); requestAnimationFrame(step);
}};
requestAnimationFrame(step);
"""
ACTS = {
    "nothing": "",
    "scroll the map": "$('scroller').scrollTop = frame * 37 % ($('room').clientHeight - 300)",
    "move by keys": "move((frame * 997) % n)",
    "filter while typing": "$('search').value = ['', '1', '12', '123'][frame % 4]; choose()",
    "filter by state": "chosen.clear(); if (frame % 2) chosen.add('missing'); choose()",
}


def main(to: Path | None) -> None:
    with browser() as driver, tempfile.TemporaryDirectory() as place:
        path = Path(place, "page.html")
        path.write_bytes(page(large(100_000)))
        driver.set_script_timeout(10 * SECONDS)
        for width in (360, 1280, 2560):
            show(driver, path, width, height=1400)
            for what, code in ACTS.items():
                rate, longest = driver.execute_async_script(COUNT, code)
                sys.stdout.write(
                    f"{width:5} px, {what}: {rate:.0f} frames a second, longest {longest:.0f} ms\n"
                )
        if to is not None:
            path.write_bytes(page(large(4_000)))
            for scheme in ("light", "dark"):
                show(driver, path, 1000, scheme, height=1180)
                (to / f"report-{scheme}.png").write_bytes(screenshot(driver))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
