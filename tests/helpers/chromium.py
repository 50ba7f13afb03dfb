"""A page in a headless Chromium, which loads nothing from elsewhere."""

import base64
import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def _found(*names: str) -> str:
    for name in names:
        if (path := shutil.which(name)) is not None:
            return path
    return pytest.skip(f"needs {names[0]}")


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Start one with a profile of its own; skip where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = _found("chromium", "chromium-browser", "google-chrome")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(_found("chromedriver")))
        try:
            yield driver
        finally:
            driver.quit()


def show(driver: Any, page: Path, width: int, scheme: str = "light", height: int = 900) -> None:
    """Open a page in a window of a size, as a phone below 500 pixels."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(page.as_uri())
    settle(driver)


def settle(driver: Any) -> None:
    """Wait until two frames are drawn."""
    driver.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
    )


def screenshot(driver: Any) -> bytes:
    """What the window shows, as PNG."""
    return base64.b64decode(
        driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
    )
