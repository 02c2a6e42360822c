"""A column added while rows stream in: what Google's own tests wait for, with rows of either format (write-api.md 7.3)."""

import unittest

import pyarrow
from google.api_core import exceptions
from google.cloud import bigquery
from google.cloud.bigquery import SchemaField
from google.cloud.bigquery_storage_v1 import types

import appends
import world
from appends import field, message
from world import PROJECT

# Seconds after which those who append know of the column: so long Google's tests wait at most.
LIMIT = 100

NAMES = ["id", "name", "note"]
FIELDS = [SchemaField("id", "INTEGER", mode="REQUIRED"), SchemaField("name", "STRING")]
NOTE = SchemaField("note", "STRING")

ARROW = [("id", pyarrow.int64()), ("name", pyarrow.string()), ("note", pyarrow.string())]
PROTOBUF = [field("id", 1, "INT64"), field("name", 2, "STRING"), field("note", 3, "STRING")]


class Evolution(unittest.TestCase):
    def test_a_column_is_added_while_rows_stream_in(self):
        """Both formats at once, since both wait for the same."""
        world.make_dataset("evolution")
        tables = [
            Table("arrow", *(appends.Arrow(pyarrow.schema(ARROW[:count])) for count in (2, 3))),
            Table("protobuf", *(appends.Protobuf(message("Row", *PROTOBUF[:count])) for count in (2, 3))),
        ]
        for table in tables:
            self.addCleanup(table.close)
        for act in (self.add_column, self.write_too_early, self.be_told, self.write_the_column):
            for table in tables:
                with self.subTest(table.name):
                    act(table)
            if act == self.write_too_early:
                world.advance(LIMIT)

    def add_column(self, table):
        """Old connections go on, and the view knows first [PROD GIT]."""
        self.assertEqual(table.first.append([[0, "a"]], 0).append_result.offset, 0)
        self.assertEqual(table.second.append([[100, "b"]], 0).append_result.offset, 0)
        changed = world.client.get_table(table.id)
        changed.schema = FIELDS + [NOTE]
        world.client.update_table(changed, ["schema"])
        self.assertEqual(table.first.append([[1, "a"]], 1).append_result.offset, 1)
        request = types.GetWriteStreamRequest(name=table.first.stream, view=types.WriteStreamView.FULL)
        found = world.write_client.get_write_stream(request).table_schema.fields
        self.assertEqual([column.name for column in found], NAMES)

    def write_too_early(self, table):
        """Those who append do not know the column yet [PROD supabase/etl, snowplow #366]."""
        with self.assertRaises(exceptions.InvalidArgument) as caught:
            table.write_wide(table.create(), 0, [[200, "c", "early"]])
        self.assertEqual(appends.storage_error(caught.exception), "SCHEMA_MISMATCH_EXTRA_FIELDS")

    def be_told(self, table):
        """A success brings the new schema [PROD JIT, GIT], a duplicate does not [PROD GIT]."""
        answer = table.append_again(table.first, [[2, "a"]], 2)
        self.assertEqual([column.name for column in answer.updated_schema.fields], NAMES)
        with self.assertRaises(exceptions.AlreadyExists) as caught:
            table.append_again(table.second, [[100, "b"]], 0)
        self.assertFalse("updated_schema" in caught.exception.response)
        self.assertTrue("updated_schema" in table.append_again(table.second, [[101, "b"]], 1))

    def write_the_column(self, table):
        """A new connection on the same stream writes it, and the offsets go on [PROD GIT, JIT]."""
        [answer] = table.write_wide(table.first.stream, 3, [[3, "a", "noted"]])
        self.assertEqual((answer.error.code, answer.append_result.offset), (0, 3))
        expected = [[0, "a", None], [1, "a", None], [2, "a", None], [3, "a", "noted"]]
        self.assertEqual(world.by_query(table.id), expected + [[100, "b", None], [101, "b", None]])


class Table:
    """A table with two COMMITTED streams, each with a connection that knows two columns."""

    def __init__(self, name, narrow, wide):
        self.name = name
        self.id = f"{PROJECT}.evolution.{name}"
        self._wide = wide
        world.client.create_table(bigquery.Table(self.id, schema=FIELDS))
        self.first, self.second = (appends.Writer(self.create(), narrow) for _ in range(2))

    def create(self):
        """A stream."""
        path = f"projects/{PROJECT}/datasets/evolution/tables/{self.name}"
        asked = types.WriteStream(type_=types.WriteStream.Type.COMMITTED)
        return world.write_client.create_write_stream(parent=path, write_stream=asked).name

    def append_again(self, writer, rows, offset):
        """Goes on with a connection that is open; an answer on a new one would prove nothing."""
        opened = writer.opened
        try:
            return writer.append(rows, offset)
        finally:
            assert writer.opened == opened, f"{writer.stream} was connected to anew"

    def write_wide(self, stream, offset, rows):
        """Writes the new column, on a connection of its own."""
        return appends.call(stream, appends.request(stream, self._wide, rows, offset))

    def close(self):
        self.first.close()
        self.second.close()
