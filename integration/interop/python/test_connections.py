"""How the server ends connections, in the words that Google's clients report (write-api.md 2.6, 3.6)."""

import unittest

import pyarrow
from google.api_core import exceptions
from google.cloud import bigquery
from google.cloud.bigquery import SchemaField
from google.cloud.bigquery_storage_v1 import types

import appends
import world
from world import PROJECT

TABLE_ID = f"{PROJECT}.connections.t"
TABLE = f"projects/{PROJECT}/datasets/connections/tables/t"
ROWS = appends.Arrow(pyarrow.schema([("n", pyarrow.int64())]))


class Connections(unittest.TestCase):
    def setUp(self):
        world.make_dataset("connections")
        world.client.create_table(bigquery.Table(TABLE_ID, schema=[SchemaField("n", "INTEGER")]))
        asked = types.WriteStream(type_=types.WriteStream.Type.COMMITTED)
        self.stream = world.write_client.create_write_stream(parent=TABLE, write_stream=asked).name

    def open(self, n):
        """A call that has appended row `n` at offset `n`."""
        call = appends.Call(self.stream, appends.request(self.stream, ROWS, [[n]], n))
        self.addCleanup(call.close)
        self.assertEqual(call.answer().append_result.offset, n)
        return call

    def test_a_call_without_traffic_is_closed_after_ten_minutes(self):
        """[PROD python #593, nodejs #427]"""
        call = self.open(0)
        world.advance(599)
        call.send(appends.request(self.stream, ROWS, [[1]], 1))
        self.assertEqual(call.answer().append_result.offset, 1)
        world.advance(600)
        with self.assertRaises(exceptions.Aborted) as caught:
            call.answer()
        text = f"Closing the stream because it has been inactive for 600 seconds. Entity: {self.stream}"
        self.assertEqual(caught.exception.message, text)
        self.open(2)
        self.assertEqual(world.by_query(TABLE_ID), [[0], [1], [2]])

    def test_a_newer_call_on_a_stream_ends_the_older(self):
        """[java PR #2214]: the rows of either are there, since offsets decide."""
        older = self.open(0)
        self.open(1)
        self.assertRaises(exceptions.FailedPrecondition, older.answer)
        self.assertEqual(world.by_query(TABLE_ID), [[0], [1]])

    def test_a_call_that_is_half_closed_is_answered_to_its_end(self):
        """3.6 [CLIENT]"""
        requests = [appends.request(self.stream, ROWS, [[n]], n) for n in range(5)]
        answers = appends.call(self.stream, *requests)
        self.assertEqual([answer.append_result.offset for answer in answers], [0, 1, 2, 3, 4])
