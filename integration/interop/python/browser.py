"""Pages as a browser shows them."""

import html.parser
import shutil
import subprocess

BROWSERS = ["chromium", "chromium-browser", "google-chrome"]
# Seconds for one page.
LIMIT = 60


class Tables(html.parser.HTMLParser):
    """The texts of a page's table cells, a list of rows for each heading."""

    def __init__(self):
        super().__init__()
        self.tables = {}
        self._heading = None
        self._inside = None

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.tables.setdefault(self._heading, []).append([])
        if tag in ("h2", "td", "th"):
            self._inside = tag
            if tag == "h2":
                self._heading = ""
            else:
                self.tables[self._heading][-1].append("")

    def handle_endtag(self, tag):
        if tag == self._inside:
            self._inside = None

    def handle_data(self, data):
        if self._inside == "h2":
            self._heading += data
        elif self._inside:
            self.tables[self._heading][-1][-1] += data


def shown(url, work):
    """The page's tables after a browser has laid it out."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise AssertionError(f"none of {', '.join(BROWSERS)} is there; install one (Debian: apt-get install chromium)")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={work / 'browser'}", "--dump-dom"]
    done = subprocess.run(
        [*command, url], check=True, capture_output=True, text=True, timeout=LIMIT
    )
    page = Tables()
    page.feed(done.stdout)
    return page.tables
