"""The page in a real browser: a headless Chromium, driven by playwright, judged by axe.

Both come with ``pip install '.[browser]'``, the browser does not: it is the one that INPUTMETA_CHROMIUM names, or one
of the PATH. Without any of them the tests are skipped, as ``no Chromium``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from inputmeta.conformance.report.html import page as page_of

from .cases import FAILING
from .pages import hostile, judged

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless_shell")
SIZES = {"desk": (1280, 900), "phone": (360, 740)}
OPEN_ALL = "document.querySelectorAll('details').forEach(each => each.open = true)"
REACHABLE = "a[href], summary, [tabindex='0']"
FOCUSED = """() => {
    const all = [...document.querySelectorAll("a[href], summary, [tabindex='0']")];
    const at = document.activeElement, style = getComputedStyle(at);
    return [all.indexOf(at), style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2];
}"""


def chromium() -> str | None:
    """The browser, if there is one and what drives it."""
    if not all(importlib.util.find_spec(name) for name in ("playwright", "axe_playwright_python")):
        return None
    named = os.environ.get("INPUTMETA_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        pytest.skip("no Chromium")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - it may not be here

    with sync_playwright() as playwright:
        # Without its sandbox, which a container has no right to make: it reads our own file.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def files(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of failing cases, and one of hostile names with coverage; made only if they can be looked at."""
    folder = tmp_path_factory.mktemp("pages")
    pages = {"failing": page_of(judged(list(FAILING.values()), folder)), "hostile": page_of(hostile())}
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


class Seen:
    """A page that is open, all that it said and asked for."""

    def __init__(self, browser: Browser, file: Path, size: str, scheme: str) -> None:
        width, height = SIZES[size]
        settings: dict[str, Any] = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
        self.page: Page = browser.new_page(**settings)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())


@pytest.fixture(params=["failing", "hostile"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[("desk", "light"), ("desk", "dark"), ("phone", "light"), ("phone", "dark")], ids="-".join)
def seen(request: pytest.FixtureRequest, browser: Browser, files: dict[str, Path], name: str) -> Iterator[Seen]:
    shown = Seen(browser, files[name], *request.param)
    yield shown
    shown.page.close()


def test_it_opens_without_a_word_or_a_request_and_is_accessible_with_everything_open(seen: Seen) -> None:
    from axe_playwright_python.sync_playwright import Axe  # noqa: PLC0415 - it may not be here

    ground, ink = seen.page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    assert ground != ink  # the style sheet holds
    seen.page.evaluate(OPEN_ALL)
    size = seen.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert size[0] <= size[1], "the page itself scrolls sideways"
    found = Axe().run(seen.page).response["violations"]
    assert [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in found] == []
    assert seen.said == []
    assert [url for url in seen.asked if not url.startswith("data:")] == [seen.page.url]


def test_light_and_dark_are_two(browser: Browser, files: dict[str, Path]) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        seen = Seen(browser, files["failing"], "desk", scheme)
        grounds.append(seen.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"))
        seen.page.close()
    light, dark = map(sum, grounds)
    assert light > 600
    assert dark < 150


def test_the_keyboard_reaches_everything_in_order_and_opens_what_is_closed(
    browser: Browser, files: dict[str, Path]
) -> None:
    seen = Seen(browser, files["failing"], "desk", "light")
    page = seen.page
    closed = page.locator("details.failure:not([open]) > summary").first
    closed.focus()
    page.keyboard.press("Enter")
    assert page.locator("details.failure[open]").count() == 2
    page.keyboard.press("Enter")
    assert page.locator("details.failure[open]").count() == 1
    page.evaluate(OPEN_ALL)
    page.evaluate("document.activeElement.blur(); getSelection().removeAllRanges()")
    page.locator("body").click(position={"x": 2, "y": 2})
    count = page.locator(REACHABLE).count()
    reached = []
    for _ in range(count):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(FOCUSED))
    assert [place for place, _ in reached] == list(range(count))
    assert all(visible for _, visible in reached)
    assert count > 30
    page.close()


def test_pictures_have_their_shapes(browser: Browser, files: dict[str, Path]) -> None:
    """Bars lie within their tracks, and a failing cell is where it can be seen."""
    seen = Seen(browser, files["failing"], "phone", "light")
    seen.page.evaluate(OPEN_ALL)
    outside = seen.page.evaluate("""() => [...document.querySelectorAll('.track')].flatMap(track => {
        const own = track.getBoundingClientRect();
        return [...track.querySelectorAll('i')].map(span => span.getBoundingClientRect())
            .filter(box => box.left < own.left - 1 || box.right > own.right + 4 || box.width < 2 || box.height < 8);
    }).length""")
    assert outside == 0
    assert seen.page.locator(".track i").count() > 60
    for cell in seen.page.locator("td.c-failing").all():
        cell.scroll_into_view_if_needed()
        box = cell.bounding_box()
        assert box is not None
        assert box["width"] >= 30
        assert box["height"] >= 15
    seen.page.close()
