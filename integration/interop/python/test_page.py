"""The emulator's page at `/`, as a browser shows it."""

import unittest

from google.api_core import exceptions
from google.cloud import bigquery
from google.cloud.bigquery_storage_v1 import types

import browser
import world
from world import PROJECT

TABLE = f"projects/{PROJECT}/datasets/looked_at/tables/t"


class Page(unittest.TestCase):
    def test_a_browser_shows_tables_streams_and_requests(self):
        world.make_dataset("looked_at")
        columns = [bigquery.SchemaField("n", "INTEGER"), bigquery.SchemaField("text", "STRING")]
        world.client.create_table(bigquery.Table(f"{PROJECT}.looked_at.t", columns))
        buffered = types.WriteStream(type_=types.WriteStream.Type.BUFFERED)
        stream = world.write_client.create_write_stream(parent=TABLE, write_stream=buffered).name
        with self.assertRaises(exceptions.OutOfRange):
            world.write_client.flush_rows(types.FlushRowsRequest(write_stream=stream, offset=3))
        tables = browser.shown(f"http://{world.http}/", world.work)
        table = next(row for row in tables["Tables"] if row[0] == f"{PROJECT}:looked_at.t")
        self.assertEqual(table[1:4], ["US", "n INT64, text STRING", "0"])
        self.assertEqual(
            tables["Write streams"][0], ["Stream", "Kind", "End", "Visible", "Age", "Last append", "State"]
        )
        row = next(row for row in tables["Write streams"] if row[0] == stream)
        self.assertEqual([row[1:4], row[6]], [["BUFFERED", "0", "0"], "idle"])
        requests = [row[1:] for row in tables["Recent requests"] if len(row) > 2 and row[2] in (stream, TABLE)]
        self.assertEqual(
            requests,
            [
                ["FlushRows", stream, "offset 3", f"OutOfRange: Offset 3 is beyond the end of the stream Entity: {stream}"],
                ["CreateWriteStream", TABLE, "Buffered", "OK"],
            ],
        )
