"""A real Chromium without a window; what is on a page is named as users do: buttons by words, fields by labels."""
import contextlib
import csv
import json
import os
import pathlib
import re
import shutil
import tempfile
import time

from selenium import webdriver
from selenium.common.exceptions import (ElementClickInterceptedException, ElementNotInteractableException, NoSuchElementException,
                                        StaleElementReferenceException)
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from ports import free_port
from stack import PATIENCE_S, children, wait_until

# What happens in the page and should not: kept in the page, asked for after every test.
WATCH = """
window.seen = {violations: [], errors: [], alerts: []};
window.toasts = [];
new MutationObserver((changes) => changes.filter((c) => c.target.id === "toasts").forEach((c) =>
  c.addedNodes.forEach((note) => toasts.push(note.textContent)))).observe(document, {childList: true, subtree: true});
document.addEventListener("securitypolicyviolation",
  (e) => seen.violations.push(e.violatedDirective + " " + e.blockedURI + " " + e.sample));
addEventListener("error", (e) => seen.errors.push(String(e.message)));
addEventListener("unhandledrejection", (e) => seen.errors.push(String(e.reason)));
for (const name of ["alert", "confirm", "prompt"])
  window[name] = (text) => { seen.alerts.push(String(text)); };
"""
# What comes of pages that are drawn anew at any moment.
NOT_YET = (ElementClickInterceptedException, ElementNotInteractableException, NoSuchElementException, StaleElementReferenceException)
# The driver's own ways to read a page and to see what is shown cost fifty times as much.
SHOWN = """
const shown = (e) => e.checkVisibility({visibilityProperty: true, opacityProperty: true}) && e.getClientRects().length > 0;
const within = document.querySelector("dialog") ? ["//dialog", "dialog *"] : ["", "*"];
"""
FIND = SHOWN + """
const found = document.evaluate(within[0] + arguments[0], document, null, XPathResult.ORDERED_NODE_SNAPSHOT_TYPE);
return Array.from({length: found.snapshotLength}, (_, i) => found.snapshotItem(i)).find(shown) ?? null;
"""
FIELD = SHOWN + """
const [name] = arguments, all = (css) => [...document.querySelectorAll(css)];
const labels = all("label[for]").filter((l) => [name, `${name} *`].includes(l.textContent.replace(/\\s+/g, " ").trim()));
const ids = new Set(labels.map((l) => l.htmlFor));
return all(within[1]).find((e) => (ids.has(e.id) || e.getAttribute("aria-label") === name) && shown(e)) ?? null;
"""
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}


def literal(text):
    """A string of XPath."""
    return "concat(" + ", '\"', ".join(f'"{part}"' for part in text.split('"')) + ', "")'


class Browser:
    def __init__(self, url):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for argument in ("--headless=new", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1280,900",
                         "--hide-scrollbars", "--lang=en", *(["--no-sandbox"] if os.geteuid() == 0 else [])):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        # its profile and sockets: it leaves some behind when it is closed
        self.own = tempfile.TemporaryDirectory(prefix="coupons-browser-", ignore_cleanup_errors=True)
        service = webdriver.ChromeService(shutil.which("chromedriver"), port=free_port(), env={**os.environ, "TMPDIR": self.own.name})
        self.driver = webdriver.Chrome(options=options, service=service)
        assert self.driver.capabilities["chrome"]["userDataDir"].startswith(self.own.name)
        self.url, self.shots = url, os.environ.get("COUPONS_TEST_SHOTS")
        self.cdp("Page.addScriptToEvaluateOnNewDocument", source=WATCH)

    def quit(self):
        self.driver.quit()
        wait_until("the browser's files to be gone", lambda: self.own.cleanup() or not os.path.exists(self.own.name))

    def all_pids(self):
        """The driver's and the browser's."""
        found = [self.driver.service.process.pid]
        for pid in found:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += children(pid)
        return found

    def cdp(self, name, **parameters):
        return self.driver.execute_cdp_cmd(name, parameters)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    # ---- where one is ----

    def fresh(self):
        """As a new tab on a large light screen."""
        self.cdp("Emulation.clearDeviceMetricsOverride")
        self.cdp("Network.setBlockedURLs", urls=[])
        self.cdp("Emulation.setTimezoneOverride", timezoneId="")
        self.dark(False)
        self.online(True)
        self.driver.get(self.url + "/coupons/-/health")
        self.run("sessionStorage.clear()")
        self.driver.get_log("browser")

    def open(self, page="#/", key=None):
        """Show a page; with a key: signed in with it."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/coupons/-/dashboard/{page}")
        if key:
            self.type("API key", key + Keys.ENTER)
            self.button("Forget the key")
            self.until("the page to be read", lambda: not self.all('main > .loading, main [aria-busy="true"]'))

    def go(self, page):
        self.run("location.hash = arguments[0]", page)

    def phone(self):
        self.cdp("Emulation.setDeviceMetricsOverride", **PHONE)

    def dark(self, on):
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}])

    def online(self, on):
        self.cdp("Network.enable")
        self.cdp("Network.emulateNetworkConditions", offline=not on, latency=0, downloadThroughput=-1, uploadThroughput=-1)

    def shot(self, name):
        """A picture of the page, where somebody keeps them."""
        if self.shots:
            pathlib.Path(self.shots).mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(f"{self.shots}/{name}.png")

    # ---- what one sees and does ----

    def until(self, what, condition, seconds=PATIENCE_S):
        """Poll until the condition holds, and return what it gave; as wait_until, the less often the longer it takes: each look costs the
        browser as much as drawing the page."""
        began = time.monotonic()
        while True:
            try:
                seen = condition()
            except NOT_YET:
                seen = None
            if seen:
                return seen
            waited = time.monotonic() - began
            if waited > seconds:
                self.shot("failed")
                raise AssertionError(f"waited {seconds} s for {what}; the page says:\n{self.text()[:3000]}")
            time.sleep(min(max(0.03, waited / 20), 0.2))

    def text(self, css="body"):
        """A line for each row and paragraph."""
        text = self.run("const e = document.querySelector(arguments[0]); return e && (e.checkVisibility() ? e.innerText : '')", css)
        if text is None:
            raise NoSuchElementException(css)
        return re.sub(r"\s*\n\s*", "\n", re.sub("[\t\xa0]", " ", text)).strip()

    def sees(self, *texts, css="body", seconds=PATIENCE_S):
        """Wait until all of these stand there."""
        for text in texts:
            self.until(f"{text!r} in {css}", lambda t=text: t in self.text(css), seconds)

    def told(self, text):
        """Wait until this page has said so at the edge of the screen, where it stands for some seconds."""
        self.until(f"{text!r} to be told", lambda: any(text in note for note in self.run("return window.toasts")))

    def lacks(self, text, css="body"):
        shown = self.until(css, lambda: [self.text(css)])[0]
        assert text not in shown, f"{text!r} stands there:\n{shown[:2000]}"

    def gone(self, css):
        self.until(f"{css} to go", lambda: not self.all(css))

    def all(self, css):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css):
        return self.until(css, lambda: next((e for e in self.all(css) if e.is_displayed()), None))

    def find(self, xpath):
        """The first shown one; in the dialog, where there is one."""
        return self.run(FIND, xpath)

    def button(self, words):
        return self.until(f"the button {words!r}", lambda: self.find(f"//button[normalize-space()={literal(words)}]"))

    def has_button(self, words):
        return self.find(f"//button[normalize-space()={literal(words)}]") is not None

    def click(self, words):
        """A button, which may be drawn anew at any moment."""
        def pressed():
            self.button(words).click()
            return True
        self.until(f"{words!r} to be pressed", pressed)

    def click_at(self, css):
        """What is shown there, which may be drawn anew likewise."""
        self.until(f"{css} to be pressed", lambda: (one := next((e for e in self.all(css) if e.is_displayed()), None)) and (one.click() or True))

    def follow(self, words):
        """A link."""
        def pressed():
            link = self.find(f"//a[normalize-space()={literal(words)}]")
            return link and (link.click() or True)
        self.until(f"the link {words!r}", pressed)

    def field(self, label):
        """The control of a label, which may end in an asterisk."""
        return self.until(f"the field {label!r}", lambda: self.find_field(label))

    def find_field(self, label):
        return self.run(FIELD, label)

    def has_field(self, label):
        return self.find_field(label) is not None

    def chosen(self, label):
        """The words of a select's option."""
        return self.run("return arguments[0].selectedOptions[0].textContent", self.field(label))

    def type(self, label, text):
        """In place of what stands there."""
        field = self.field(label)
        field.clear()
        field.send_keys(text)

    def fill(self, words, texts, then="Save"):
        """Press a button, type these texts into the fields of these labels, and press the next button."""
        self.click(words)
        for label, text in texts.items():
            self.type(label, text)
        self.click(then)

    def confirm(self, words, *texts):
        """Press a button, read these texts in the dialog that asks, and press the button of the same words there."""
        self.click(words)
        self.sees(*texts, css="dialog")
        self.button(words).click()
        self.gone("dialog")

    def put(self, label, text):
        """At once, as a picker of dates or the clipboard does."""
        self.run("""const [field, text] = arguments; field.value = text;
            for (const name of ["input", "change"]) field.dispatchEvent(new Event(name, {bubbles: true}))""", self.field(label), text)

    def saved(self, folder, press):
        """The file that press() has the browser save in the folder, and its rows."""
        self.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        press()
        # The browser reserves the name with an empty file before it writes.
        [path] = self.until("the file", lambda: [file for file in folder.glob("*.csv") if file.stat().st_size])
        with path.open(encoding="utf-8", newline="") as file:
            return path, list(csv.DictReader(file, strict=True))

    def tick(self, label, on=True):
        box = self.field(label)
        if box.is_selected() != on:
            box.click()

    def choose(self, label, words):
        self.field(label).find_element(By.XPATH, f"./option[normalize-space()={literal(words)}]").click()

    def error_at(self, label):
        """What is said to be wrong with a field."""
        return self.field(label).find_element(By.XPATH, "./ancestor::div[@class='field']/p[@class='error']").text

    def focused(self):
        return self.driver.switch_to.active_element

    def press(self, *keys):
        for key in keys:
            self.until("the focus", lambda k=key: self.focused().send_keys(k) or True)

    def panel(self, name):
        """The CSS of the section with this heading."""
        return f'section[aria-label="{name}"]'

    # ---- what must never be seen ----

    def check(self):
        """Nothing of the page was refused by the policy, went wrong, or ran that should not."""
        seen = self.run("return window.seen") or {}
        log = [m["message"] for m in self.driver.get_log("browser") if "Failed to load resource" not in m["message"]]
        assert not any(seen.values()) and not log, f"in the page: {json.dumps(seen)}\nin its console: {log}"
