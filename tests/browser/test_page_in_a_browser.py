"""The HTML page as a person uses it: in Chromium, by mouse, keys and on a phone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
WIDE, PHONE = (1280, 900, False), (360, 740, True)


class Page:
    """A loaded page; what a test asks of it."""

    def __init__(self, browser, path, *, screen=WIDE, dark=False):
        self.browser = browser
        width, height, mobile = screen
        browser.get("about:blank")
        self.emulate(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.emulate("Emulation.setEmulatedMedia", features=[scheme])
        for kind in ("browser", "performance"):
            browser.get_log(kind)
        browser.get(path.as_uri())

    def emulate(self, command, **values):
        self.browser.execute_cdp_cmd(command, values)

    def js(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def until(self, script, *arguments):
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.browser, 20).until(lambda _: self.js(script, *arguments))

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def one(self, selector):
        return self.browser.find_element("css selector", selector)

    def press(self, element, keys):
        element.send_keys(keys)

    def view(self):
        script = "const d = document.querySelector('.tl-scroll').dataset; return [+d.from, +d.to]"
        return self.js(script)

    def until_view(self, condition):
        return self.until(
            "const d = document.querySelector('.tl-scroll').dataset;"
            f"const [from, to] = [+d.from, +d.to]; return {condition} ? [from, to] : null"
        )

    def console(self):
        return [e["message"] for e in self.browser.get_log("browser")]

    def requests(self):
        events = (json.loads(e["message"])["message"] for e in self.browser.get_log("performance"))
        sent = [
            e["params"]["request"]["url"]
            for e in events
            if e["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in sent if not url.startswith("data:")]


@pytest.fixture
def opened(chromium, busy_page):
    return Page(chromium, busy_page)


def open_frame(page, analysis="allreduce_contention", name="windows"):
    details = next(
        d
        for d in page.all("details.frame")
        if page.js(
            "const t = JSON.parse(document.getElementById('data').textContent).tables"
            "[+arguments[0].dataset.table]; return t.analysis + '/' + t.name",
            d,
        )
        == f"{analysis}/{name}"
    )
    details.find_element("css selector", "summary").click()
    page.until("return arguments[0].querySelector('tbody tr') !== null", details)
    return details


def header(table, text):
    return next(
        b for b in table.find_elements("css selector", "thead button") if b.text.startswith(text)
    )


def column(page, table, text):
    """The cells of a column as text."""
    return page.js(
        "const [root, text] = arguments; const heads = [...root.querySelectorAll('thead th')];"
        "const i = heads.findIndex((h) => h.textContent.startsWith(text));"
        "return [...root.querySelectorAll('tbody tr')].map((r) => r.cells[i].textContent)",
        table,
        text,
    )


def test_it_asks_for_nothing_and_complains_of_nothing(opened, busy_page):
    for details in opened.all("details"):
        opened.js("arguments[0].open = true", details)
    opened.until("return document.querySelectorAll('.grid').length > 1")
    assert opened.requests() == [busy_page.as_uri()]
    assert opened.console() == []


def test_m_markup_in_names_stays_text(opened):
    for details in opened.all("details"):
        opened.js("arguments[0].open = true", details)
    opened.until("return document.querySelectorAll('.grid').length > 1")
    assert opened.js("return window.hacked === undefined")
    assert opened.all("img") == []
    assert len(opened.all("script")) == 2
    assert "</script>" in opened.all("details.finding .headline")[1].text


def test_a_finding_opens_to_its_evidence(opened):
    finding = opened.all("details.finding")[0]
    assert not finding.find_element("css selector", ".advice").is_displayed()
    opened.press(finding.find_element("css selector", "summary"), "\n")
    rows = opened.until(
        "return arguments[0].querySelectorAll('.evidence tbody tr').length || null",
        finding,
    )
    assert rows == 7
    assert finding.find_element("css selector", ".advice").text.startswith("Do. Use a fused")
    evidence = finding.find_element("css selector", ".evidence")
    assert column(opened, evidence, "kernel") == ["void dequantize_int4_kernel<(int)128>(int*)"] * 7
    assert column(opened, evidence, "dequant (us)")[-1] == "-"


def test_evidence_is_restricted_to_its_rows_and_columns(opened):
    finding = opened.all("details.finding")[1]
    finding.find_element("css selector", "summary").click()
    opened.until("return arguments[0].querySelector('tbody tr') !== null", finding)
    heads = [
        b.text.rstrip("↕ ") for b in finding.find_elements("css selector", ".grid thead button")
    ]
    assert heads == ["gpu", "length (ms)", "comm"]
    assert set(column(opened, finding.find_element("css selector", ".evidence"), "gpu")) == {"1"}
    assert "2,500 rows" in finding.find_element("css selector", ".count").text


def test_a_table_of_5000_rows_turns_pages_sorts_and_filters(opened):
    table = open_frame(opened)
    assert len(column(opened, table, "length")) == 25
    count = table.find_element("css selector", ".count")
    assert count.text == "1–25 of 5,000 rows"
    table.find_element("css selector", "[aria-label='Next page']").click()
    assert count.text == "26–50 of 5,000 rows"

    header(table, "length").click()
    assert column(opened, table, "length")[:2] == ["5.00", "5.00"]
    assert table.find_element("css selector", "[aria-sort=descending]").text.startswith("length")
    header(table, "length").click()
    assert column(opened, table, "length")[0] == "0.00"
    header(table, "dram read").click()
    assert column(opened, table, "dram read")[0] == "99.0"

    search = table.find_element("css selector", "input[type=search]")
    search.send_keys("gemm length>4.9")
    assert set(column(opened, table, "corunners")) == {"gemm"}
    assert all(float(v) >= 4.9 for v in column(opened, table, "length"))
    assert re.fullmatch(r"1–25 of \d+ rows \(of 5,000\)", count.text)
    search.clear()
    search.send_keys("nothing has this")
    assert count.text == "0 rows (of 5,000)"


def test_the_only_row_of_a_wide_table_reads_downwards(chromium, recorded_page):
    page = Page(chromium, recorded_page("int4_dequant"))
    facts = page.js(
        "return [...document.querySelectorAll('details.frame')]"
        ".find((d) => d.querySelector('.headline').textContent === 'facts')"
    )
    facts.find_element("css selector", "summary").click()
    page.until("return arguments[0].querySelector('table.row') !== null", facts)
    line = page.js(
        "return [...[...arguments[0].querySelectorAll('tr')]"
        ".find((r) => r.cells[0].textContent === 'n reports').cells].map((c) => c.textContent)",
        facts,
    )
    assert line[1] == "1"
    assert facts.find_elements("css selector", "input") == []


def test_what_was_not_measured_sorts_last_and_is_no_number(opened):
    table = open_frame(opened)
    header(table, "dram read").click()
    header(table, "dram read").click()
    assert column(opened, table, "dram read")[0] == "0.0"
    search = table.find_element("css selector", "input[type=search]")
    search.send_keys("dramread<0.5")
    assert set(column(opened, table, "dram read")) == {"0.0"}


def test_a_row_leads_to_the_timeline(opened):
    table = open_frame(opened)
    header(table, "start").click()
    table.find_element("css selector", "td.go button").click()
    start, end = opened.until_view("to - from < 20e6")
    assert 4_980_000_000 < start < end < 4_999_000_000


def test_the_timeline_zooms_and_moves_by_keys(opened):
    scroll = opened.one(".tl-scroll")
    low, high = opened.view()
    opened.press(scroll, "+")
    nearer = opened.until_view(f"to - from < {0.51 * (high - low)}")
    opened.press(scroll, "\ue014")  # arrow right
    later = opened.until_view(f"from > {nearer[0]}")
    assert later[1] - later[0] == pytest.approx(nearer[1] - nearer[0], abs=2)
    opened.press(scroll, "-")
    opened.press(scroll, "0")
    assert opened.until_view(f"from === {low} && to === {high}") == [low, high]


def test_the_timeline_zooms_by_wheel_only_once_chosen(opened):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    canvas = opened.one(".tl-body")
    opened.js("document.getElementById('timeline').scrollIntoView()")
    low, high = opened.view()
    origin = ScrollOrigin.from_element(canvas)
    before = opened.js("return scrollY")
    ActionChains(opened.browser).scroll_from_origin(origin, 0, 40).perform()
    opened.until(
        "return scrollY !== arguments[0] || document.querySelector('.tl-scroll').scrollTop", before
    )
    assert opened.view() == [low, high]
    opened.js("document.querySelector('.tl-scroll').focus()")
    ActionChains(opened.browser).scroll_from_origin(origin, 0, -400).perform()
    opened.until_view(f"to - from < {0.6 * (high - low)}")


def test_the_timeline_moves_by_dragging_and_names_boxes(opened):
    from selenium.webdriver import ActionChains

    opened.one("[aria-label='Zoom in']").click()
    nearer = opened.until_view("from > 0")
    canvas = opened.one(".tl-body")
    ActionChains(opened.browser).click_and_hold(canvas).move_by_offset(-120, 0).release().perform()
    opened.until_view(f"from > {nearer[0]}")
    opened.press(opened.one(".tl-scroll"), "0\ue015.")  # everything, down to a track, next box
    said = opened.until(
        "const t = document.querySelector('.tl-said').textContent;"
        "return t.includes('kernel') ? t : null"
    )
    assert re.match(r"kernel 1 \((comm|gemm)\): 500 us from", said), said


def test_the_worst_window_of_a_finding_is_shown(opened):
    finding = opened.all("details.finding")[1]
    finding.find_element("css selector", "summary").click()
    finding.find_element("css selector", ".show").click()
    start, end = opened.until_view("to - from < 30e6")
    assert start < 1_000_000_000 < 1_010_000_000 < end
    assert "1.65x slower" in opened.one(".tl-said").text


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_theme_follows_the_system_and_the_button(chromium, busy_page, dark):
    page = Page(chromium, busy_page, dark=dark)
    page.js("try { localStorage.clear() } catch (e) { null }")
    ground = "return getComputedStyle(document.body).backgroundColor"
    shades = {False: "rgb(255, 255, 255)", True: "rgb(15, 19, 23)"}
    assert page.js(ground) == shades[dark]
    page.one("#theme").click()
    assert page.js(ground) == shades[not dark]
    page.one("#theme").click()
    assert page.js(ground) == shades[dark]
    page.js("try { localStorage.clear() } catch (e) { null }")
    assert page.console() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_has_contrast(chromium, recorded_page, dark):
    page = Page(chromium, recorded_page("int4_dequant"), dark=dark)
    for details in page.all("details"):
        page.js("arguments[0].open = true", details)
    page.until("return document.querySelectorAll('.grid').length > 3")
    assert page.js(CONTRAST) == []


def test_everything_that_acts_has_a_name_and_a_place_in_the_tab_order(opened):
    open_frame(opened)
    unnamed = opened.js(
        "return [...document.querySelectorAll('button, input, [role], summary, svg, a')]"
        ".filter((e) => e.getAttribute('aria-hidden') !== 'true'"
        " && e.getAttribute('role') !== 'status'"
        " && !(e.getAttribute('aria-label') || e.textContent.trim() || e.title))"
        ".map((e) => e.outerHTML.slice(0, 80))"
    )
    assert unnamed == []
    assert opened.one(".tl-scroll").get_attribute("tabindex") == "0"
    assert opened.js("return document.documentElement.lang") == "en"
    ids = opened.js("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))


def test_it_fits_a_phone(chromium, busy_page):
    page = Page(chromium, busy_page, screen=PHONE)
    for details in page.all("details"):
        page.js("arguments[0].open = true", details)
    page.until("return document.querySelectorAll('.grid').length > 1")
    assert page.js("return document.documentElement.scrollWidth") <= 360
    small = page.js(
        "return [...document.querySelectorAll('.tl-tools button, #theme')]"
        ".map((b) => b.getBoundingClientRect().height).filter((h) => h < 36)"
    )
    assert small == []
    assert page.js("return document.querySelector('.tl-body').getBoundingClientRect().width") > 300


@pytest.mark.parametrize(
    "name", ["int4_dequant", "kv_stride_l2", "graph_opaque", "hf_dynamic_cache", "nvtx_only_2022_4"]
)
def test_pages_of_recorded_traces_run_clean(chromium, recorded_page, name):
    path = recorded_page(name)
    page = Page(chromium, path)
    for details in page.all("details"):
        page.js("arguments[0].open = true", details)
    page.until("return document.readyState === 'complete'")
    assert page.console() == []
    assert page.requests() == [path.as_uri()]
    assert bool(page.all(".tl")) == (name != "nvtx_only_2022_4")
