"""Look at the built site as a reader does: `python doc/check_site.py <site> [page ...]`.

On a phone and on a desktop: nothing is wider than the window, no picture is empty, the console
is silent, nothing is fetched from the network; every link within the site leads somewhere, and
its search finds what readers ask for. Exits with 1 if there is a fault.
"""

import functools
import http.server
import importlib
import os
import shutil
import sys
import threading
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

from playwright.sync_api import sync_playwright

WIDTHS = (390, 1280)
# What is searched for, and what is among the first results
SEARCHES = {
    "missing values": "skcircuits.CircuitImputer",
    "EM": "skcircuits.GaussianMixtureDensity",
    "imputer": "skcircuits.CircuitImputer",
    "HCLT": "skcircuits.HiddenChowLiuDensity",
}
N_FIRST = 5
ENOUGH = "n => document.querySelectorAll('ul.search li').length >= n || Search._pulse_status < 0"
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")

# Elements that stick out, unless a box around them scrolls; pictures without a pixel drawn.
LOOK = """() => {
  const scrolls = e => {
    const page = e.closest('article') || document.body;  // boxes around a whole page do not count
    for (let p = e.parentElement; p && p !== page; p = p.parentElement)
      if (/auto|scroll/.test(getComputedStyle(p).overflowX)) return true;
    return false; };
  const seen = e => { const r = e.getBoundingClientRect(), s = getComputedStyle(e);
    return r.width > 1 && r.height > 1 && s.visibility !== 'hidden' && s.position !== 'fixed'; };
  const name = e => e.tagName.toLowerCase() + '.' + [...e.classList].join('.') + ' '
    + (e.textContent || e.src || '').trim().slice(0, 40);
  const wide = [...document.body.querySelectorAll('*')].filter(e => seen(e) && !scrolls(e)
    && e.getBoundingClientRect().right > window.innerWidth + 1).map(name);
  const empty = [...document.images].filter(i => i.getBoundingClientRect().width > 1).filter(i => {
    if (!i.complete || i.naturalWidth < 2) return true;
    const c = document.createElement('canvas'); c.width = c.height = 64;
    const g = c.getContext('2d'); g.drawImage(i, 0, 0, 64, 64);
    const d = g.getImageData(0, 0, 64, 64).data, colours = new Set();
    for (let k = 0; k < d.length; k += 4) colours.add((d[k] << 16) | (d[k + 1] << 8) | d[k + 2]);
    return colours.size < 3; }).map(name);
  const page = document.documentElement;
  const scroll = page.scrollWidth > window.innerWidth + 1 ? ['the page scrolls sideways'] : [];
  return [...scroll, ...wide.slice(0, 3).map(w => 'too wide: ' + w),
          ...empty.map(i => 'empty picture: ' + i)]; }"""
LINKS = "() => [...document.querySelectorAll('a[href]')].map(a => a.href)"
ANCHORS = "() => [...document.querySelectorAll('[id], a[name]')].map(e => e.id || e.name)"


def serve(site):
    """Address of a server of the site, on a thread that ends with the program."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *request: None  # the browser leaves before pictures have come
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/"


def launch(playwright):
    """Browser of the machine, or the one that playwright installed."""
    path = os.environ.get("BROWSER") or next(filter(None, map(shutil.which, CHROMIUMS)), None)
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


def open_tab(browser, root, width):
    """Tab of a window, and the list that takes what its console and its network say."""
    tab = browser.new_page(viewport={"width": width, "height": 900})
    tab.set_default_timeout(120_000)
    said = []

    def listen(request):
        if not request.url.startswith((root, "data:")):
            said.append(f"fetched from outside: {request.url}")

    tab.on("console", lambda m: said.append(f"console: {m.text}") if m.type == "error" else None)
    tab.on("pageerror", lambda error: said.append(f"console: {error}"))
    tab.on("request", listen)
    return tab, said


def look_at_pages(browser, root, pages):
    """Faults of all pages at all widths; links and anchors by page."""
    faults, links, anchors = [], {}, {}
    for width in WIDTHS:
        tab, said = open_tab(browser, root, width)
        for page in pages:
            said.clear()
            tab.goto(root + page, wait_until="load")
            if tab.locator("span.math, div.math").count():
                tab.wait_for_selector("mjx-container", timeout=20_000)
            faults += [f"{page} at {width}: {fault}" for fault in [*tab.evaluate(LOOK), *said]]
            links[page], anchors[page] = tab.evaluate(LINKS), set(tab.evaluate(ANCHORS))
        tab.close()
    return faults, links, anchors


def broken_links(root, site, links, anchors):
    """Links within the site that lead to no page, no file, or no place on the page."""
    for page, targets in links.items():
        for target in sorted(set(targets)):
            if not target.startswith(root):
                continue
            address, anchor = urldefrag(target)
            path = unquote(urlparse(address).path).lstrip("/") or "index.html"
            if not (site / path).is_file():
                yield f"{page}: no {path}"
            elif anchor and path in anchors and unquote(anchor) not in anchors[path]:
                yield f"{page}: no {path}#{anchor}"


def fruitless_searches(browser, root):
    """Searches whose first results lack the page that they ask for."""
    tab = browser.new_page()
    for words, page in SEARCHES.items():
        tab.goto(f"{root}search.html?q={words}")
        try:
            tab.wait_for_selector("ul.search li a", timeout=20_000)
            tab.wait_for_function(ENOUGH, arg=N_FIRST, timeout=60_000)
        except Exception:
            yield f"search.html: nothing found for {words!r}"
            continue
        found = tab.locator("ul.search li > a").all_text_contents()[:N_FIRST]
        if page not in found:
            yield f"search.html: {words!r} finds {found} first, not {page}"


def undocumented_methods(anchors):
    """Methods of public classes without a place on the page of their class."""
    for page, places in anchors.items():
        module, _, name = Path(page).stem.rpartition(".")
        if not page.startswith("api/") or not module:
            continue
        found = getattr(importlib.import_module(module), name)
        if isinstance(found, type):
            for key in dir(found):
                # What scikit-learn gives to estimators it documents itself
                home = getattr(getattr(found, key, None), "__module__", None) or ""
                is_own = key[0] != "_" and home.startswith("skcircuits.")
                if is_own and f"{module}.{name}.{key}" not in places:
                    yield f"{page}: nothing about {key}"


def main(site, *pages):
    """Print the faults of all pages, or of some, and count them."""
    site = Path(site).resolve()
    found = (page for page in site.rglob("*.html") if "_static" not in page.parts)
    pages = pages or sorted(str(page.relative_to(site)) for page in found)
    root = serve(site)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        faults, links, anchors = look_at_pages(browser, root, pages)
        faults += broken_links(root, site, links, anchors)
        faults += undocumented_methods(anchors)
        faults += fruitless_searches(browser, root)
        browser.close()
    for fault in faults:
        print(fault)
    print(f"{len(pages)} pages at {' and '.join(map(str, WIDTHS))} px: {len(faults)} faults")
    return len(faults)


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:]), 1))
