"""The page of `run --metrics`, as a browser shows it while a pipeline runs."""

import json
import re
import time
import unittest
import urllib.request

import browser
import world
from world import PROJECT

SQL = """
CREATE TABLE counted (counter BIGINT, subtask_index BIGINT) WITH (connector = 'impulse', type = 'source', event_rate = '400');
CREATE TABLE seen (counter BIGINT NOT NULL, subtask_index BIGINT NOT NULL)
WITH (connector = 'bigquery', type = 'sink', project = 'demo', dataset = 'watched', 'table' = 'seen',
      'table.create' = 'if_missing', endpoint = 'emulator');
INSERT INTO seen SELECT counter, subtask_index FROM counted;
"""


class Watch(unittest.TestCase):
    """An endless pipeline in two subtasks."""

    @classmethod
    def setUpClass(cls):
        world.make_dataset("watched")
        cls.pipeline = world.start_pipeline(
            "watched.sql", SQL, "--metrics", "127.0.0.1:0", "--parallelism", "2", "--checkpoint-interval", "300ms"
        )
        cls.addClassCleanup(cls.pipeline.kill)
        told = cls.pipeline.stderr.readline()
        cls.url = re.fullmatch(r"the run shows itself at (http://\S+/), its metrics at /metrics\n", told)[1]

    def status(self):
        with urllib.request.urlopen(f"{self.url}status.json", timeout=60) as answer:
            return json.load(answer)

    def confirmed(self, epoch):
        """What the run tells once that checkpoint is confirmed."""
        limit = time.monotonic() + world.RUN_LIMIT
        while (status := self.status())["epoch"] < epoch:
            self.assertLess(time.monotonic(), limit, f"no checkpoint {epoch}")
            time.sleep(0.05)
        return status

    def test_a_browser_shows_checkpoints_as_they_are_confirmed(self):
        before = self.confirmed(2)
        tables = browser.shown(f"{self.url}?refresh=0", world.work)
        self.assertEqual(tables["Checkpoints"][0], ["Epoch", "Began", "Prepared", "Durable", "Committed", "Rows", "State"])
        confirmed = [row for row in tables["Checkpoints"][1:] if row[4] != "–"]
        newest = int(confirmed[0][0])
        self.assertGreaterEqual(newest, before["epoch"])
        after = self.confirmed(newest + 1)
        told = {str(checkpoint["epoch"]): checkpoint for checkpoint in after["checkpoints"]}
        for epoch, began, *_, rows, state in confirmed:
            checkpoint = told[epoch]
            self.assertEqual(
                (began, rows, state),
                (checkpoint["began"], f"{checkpoint['rows']:,}", f"{checkpoint['state_bytes']:,} B"),
            )
        visible = world.client.get_table(f"{PROJECT}.watched.seen").num_rows
        self.assertGreaterEqual(visible, after["rows_visible"])
        again = browser.shown(f"{self.url}?refresh=0", world.work)
        self.assertGreater(int(again["Checkpoints"][1][0]), newest)

    def test_a_browser_shows_each_subtask_with_its_write_stream(self):
        self.confirmed(2)
        table = browser.shown(f"{self.url}?refresh=0", world.work)["Write streams"]
        self.assertEqual(table[0], ["Subtask", "Stream", "Acknowledged to", "Visible to", "State"])
        self.assertEqual([row[0] for row in table[1:]], ["0", "1"])
        parent = f"projects/{PROJECT}/datasets/watched/tables/seen/streams/"
        for _, stream, acknowledged, visible, state in table[1:]:
            self.assertTrue(stream.startswith(parent), stream)
            acknowledged, visible = (int(number.replace(",", "")) for number in (acknowledged, visible))
            self.assertTrue(0 < visible <= acknowledged, (visible, acknowledged))
            self.assertEqual(state, "open")

    def test_the_page_asks_for_itself_again_and_loads_nothing_else(self):
        with urllib.request.urlopen(self.url, timeout=60) as answer:
            page = answer.read().decode()
            policy = answer.headers["Content-Security-Policy"]
        self.assertIn('<meta http-equiv="refresh" content="2">', page)
        self.assertEqual(policy, "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
        self.assertNotRegex(page, r"<(script|link|img|iframe)|src=|url\(")
