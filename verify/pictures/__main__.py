"""``python -m verify.pictures``: every picture as a page in Debian's Chromium, light and dark.

axe-core finds nothing, no request leaves the page, the keyboard reaches everything that can be used and shows where it
is, a telephone shows the page without scrolling sideways, no text is wider than its box or beyond the drawing, and no
boxes overlap unless one is in the other. The page of 8 NUMA nodes and 256 CPUs has at most 200 KB. Screenshots are kept
in build/pictures for people; what is compared are the drawings themselves (docs/pictures), because the pixels of a
screenshot are those of the machine's fonts. Exits with 1 if a target is missed, with 2 without Chromium.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, sync_playwright
from verify.pictures.examples import EXAMPLES, drawn
from verify.pictures.hostile import HOSTILE
from verify.targets import Target, judge

from topomend.picture.form import HTML, SVG

SCREENSHOTS = Path("build/pictures")

OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

BROKEN = """<title>x</title><a href="#" style="outline:none">a</a><div tabindex="0" hidden></div>
<img src="http://127.0.0.1:9/"><script>let x</script>
<svg role="img" width="90" height="50"><rect class="box" width="40" height="40"/><rect class="box" x="20" width="40"
height="30"/><text x="2" y="20">too long for it</text></svg><p style="width:2000px">wide</p>"""
"""A page on which everything is wrong that is looked for."""

MOST_BYTES = 200_000
"""Of the page of the largest machine."""

NARROW = 390
"""The width of a telephone: there a page scrolls up and down alone, and drawings by themselves (WCAG 1.4.10)."""

CHECKS = 6
"""How many kinds of problems are looked for."""

GEOMETRY = Path(__file__).with_name("geometry.js").read_text()
"""What is wrong with the places of texts and boxes of the page."""


def main() -> int:
    """Look at every page, and compare with the targets."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("there is no Chromium: apt-get install chromium")
        return 2
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    written = {example.name: drawn(example, HTML) for example in (*EXAMPLES, *HOSTILE)}
    targets = [Target("bytes of 256 CPUs as HTML", len(written["node-256-cpus"].encode()), MOST_BYTES)]
    targets.append(Target("bytes of 256 CPUs as SVG", len(_large().encode()), MOST_BYTES))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(OPTIONS))
        seen = [kind for kind, problems in _look_at(browser, "broken", BROKEN, "light").items() if problems]
        targets.append(Target("checks that see nothing on a broken page", CHECKS - len(seen), 0))
        for name, content in written.items():
            for scheme in ("light", "dark"):
                targets += _targets(f"{name}, {scheme}", _look_at(browser, name, content, scheme))
        browser.close()
    return judge(targets)


def _large() -> str:
    return drawn(next(example for example in EXAMPLES if example.name == "node-256-cpus"), SVG)


def _look_at(browser: Browser, name: str, content: str, scheme: Any) -> Mapping[str, list[str]]:
    """What is wrong with a page, by kind."""
    file = (SCREENSHOTS / f"{name}.html").absolute()
    file.write_text(content)
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1340, "height": 900})
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    found = {
        "axe": [f"{each['id']}: {each['help']}" for each in Axe().run(page).response["violations"]],
        "requests": [url for url in asked if url != file.as_uri()],
        "keyboard": list(_unreached(page)),
        "geometry": page.evaluate(GEOMETRY),
        "scripts": page.evaluate("[...document.scripts].map(script => script.outerHTML)"),
    }
    page.set_viewport_size({"width": NARROW, "height": 800})
    beyond = page.evaluate("document.documentElement.scrollWidth") - NARROW
    found["narrow"] = [f"the page is {beyond} pixels wider than a telephone"] if beyond > 0 else []
    page.set_viewport_size({"width": 1340, "height": 900})
    page.screenshot(path=SCREENSHOTS / f"{name}-{scheme}.png", full_page=True)
    context.close()
    return found


def _unreached(page: Page) -> Iterator[str]:
    """What can be used and the Tab key does not reach, or reaches without a mark around it."""
    usable = page.locator("a[href], button, summary, [tabindex='0']")
    page.evaluate(
        "document.querySelectorAll('a[href], button, summary, [tabindex]').forEach((e, n) => e.dataset.n = n)"
    )
    reached: set[str] = set()
    for _ in range(usable.count()):
        page.keyboard.press("Tab")
        number, outline = page.evaluate(
            "[document.activeElement.dataset.n || '', getComputedStyle(document.activeElement).outlineStyle]"
        )
        reached.add(number)
        if outline == "none":
            yield f"{number} has no mark when it is focused"
    for element in usable.all():
        if (number := str(element.get_attribute("data-n"))) not in reached:
            yield f"{number} is not reached: {element.get_attribute('aria-label') or element.inner_text()}"


def _targets(name: str, found: Mapping[str, list[str]]) -> Iterator[Target]:
    """One target a page: nothing is wrong with it."""
    for kind, problems in found.items():
        for problem in problems[:10]:
            print(f"{name}: {kind}: {problem}")
    yield Target(name, sum(map(len, found.values())), 0, "problems")


if __name__ == "__main__":
    sys.exit(main())
