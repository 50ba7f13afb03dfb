"""The page of `shardproof report` in a browser: read, filtered, and used without a mouse."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardproof import FindingKind
from shardproof.rendering import Survey, page
from shardproof.rendering._survey import Change
from tests.helpers.chromium import browser, screenshot, settle, show
from tests.helpers.surveys import file_state, large, survey_of

WIDTHS = [360, 1280, 2560]


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser() as driver:
        yield driver


@pytest.fixture
def opened(driver, tmp_path):
    def opened(survey: Survey, width: int = 1280, scheme: str = "light") -> Any:
        path = tmp_path / "page.html"
        path.write_bytes(page(survey))
        driver.get_log("browser")  # of another page
        show(driver, path, width, scheme)
        return driver

    return opened


def text(driver: Any, selector: str) -> str:
    return driver.find_element("css selector", selector).text


def names(driver: Any) -> list[str]:
    driver.execute_async_script("setTimeout(arguments[0], 150)")  # the list follows a moment later
    return [each.text for each in driver.find_elements("css selector", "#files td.name")]


def small() -> Survey:
    kinds = {1: FindingKind.MISSING, 5: FindingKind.SIZE, 9: FindingKind.MISSING}
    files = [file_state(index, f"acts{index:06d}.bin", kinds.get(index)) for index in range(120)]
    change = Change([files[5].name], [files[7].name], ["Its level was valid"])
    return survey_of(files, change)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_is_accessible_and_loads_nothing(opened, width: int, scheme: str, request) -> None:
    spec = importlib.util.find_spec("axe_selenium_python")
    if spec is None:
        pytest.skip("needs axe-selenium-python")
    driver = opened(small(), width, scheme)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert driver.get_log("browser") == []
    folder = Path(spec.origin).parent / "node_modules/axe-core"
    driver.execute_script((folder / "axe.min.js").read_text())
    found = driver.execute_async_script("axe.run().then(arguments[0])")
    assert found["passes"]
    assert [(each["id"], each["nodes"]) for each in found["violations"]] == []


def test_a_policy_forbids_what_it_does_not_need(opened) -> None:
    """Seen to bite: code that is put in runs nowhere, and nothing is fetched."""
    driver = opened(small())
    driver.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.bad = 1';"
        "document.body.append(s); new Image().src = 'http://localhost:9/x.png'"
    )
    settle(driver)
    assert driver.execute_script("return window.bad") is None
    log = " ".join(each["message"] for each in driver.get_log("browser"))
    assert "script-src" in log
    assert "img-src" in log


def test_findings_come_first_and_say_what_to_do(opened) -> None:
    driver = opened(small())
    assert text(driver, "h1") == "abc12345: 3 findings"
    assert names(driver)[:4] == [
        "acts000001.bin",
        "acts000005.bin",
        "acts000009.bin",
        names(driver)[3],
    ]
    assert "expected 4096 bytes, found nothing; make it again" in text(driver, "#files tbody tr")
    assert text(driver, "#files caption") == "1 to 25 of 120 files"
    driver.find_element("id", "next").click()
    assert text(driver, "#files caption") == "26 to 50 of 120 files"


def test_the_list_is_filtered_by_name_and_state_and_ordered_by_age(opened) -> None:
    driver = opened(small())
    driver.find_element("id", "search").send_keys("TS00011")
    assert names(driver) == [f"acts00011{digit}.bin" for digit in range(10)]
    driver.find_element("id", "search").clear()
    driver.find_element("id", "search").send_keys(" \b")
    driver.find_element("css selector", "[data-kind=missing]").click()
    assert names(driver) == ["acts000001.bin", "acts000009.bin"]
    driver.find_element("css selector", "[data-kind=broke]").click()
    driver.find_element("css selector", "[data-kind=missing]").click()
    assert names(driver) == ["acts000005.bin"]
    assert "broke" in text(driver, "#files tbody td.state")
    driver.find_element("css selector", "[data-kind=broke]").click()
    driver.find_element("css selector", "#order option[value=age]").click()
    assert names(driver)[0] == "acts000099.bin"
    assert "1 broke, 1 healed." in text(driver, "#since")
    assert "Its level was valid" in text(driver, "#since")


def test_the_map_is_used_by_keys_and_says_where_it_is(opened) -> None:
    driver = opened(small())
    canvas = driver.find_element("id", "map")
    canvas.send_keys("\ue014")  # right
    assert text(driver, "#cell").startswith("acts000001.bin: missing")
    columns = driver.execute_script("return columns")
    canvas.send_keys("\ue015")  # down
    assert text(driver, "#cell").startswith(f"acts{columns + 1:06d}.bin: as expected")
    canvas.send_keys("\ue007")  # enter
    assert names(driver) == [f"acts{columns + 1:06d}.bin"]


def test_a_cell_has_the_color_of_its_state(opened) -> None:
    driver = opened(small())
    pixel = "return [...paint.getImageData(edge * arguments[0] + 4, 4, 1, 1).data]"
    fine, missing = (driver.execute_script(pixel, column) for column in (2, 1))
    assert fine[1] > fine[0]
    assert missing[0] > 2 * missing[1]


def test_names_from_outside_are_text(opened) -> None:
    hostile = "</script><script>window.bad = 1</script><img src=x onerror='window.bad = 1'>{data}"
    driver = opened(
        survey_of([file_state(0, hostile, FindingKind.MISSING), file_state(1, "\u202ea\x1b")])
    )
    assert names(driver) == [hostile, r"\u202ea\x1b"]
    assert driver.execute_script("return window.bad") is None
    assert driver.get_log("browser") == []


def test_a_hundred_thousand_cells_are_all_reached(opened) -> None:
    driver = opened(large(100_000))
    canvas = driver.find_element("id", "map")
    for _ in range(12):
        driver.find_element("id", "larger").click()
    driver.execute_script("move(n - 1)")
    settle(driver)
    assert text(driver, "#cell").startswith("acts099999.bin")
    assert driver.execute_script("return $('scroller').scrollTop") > 50_000
    assert canvas.size["height"] < 800
    assert len(screenshot(driver)) > 10_000
