"""Rows that change by primary key, as Google's clients write them: protobuf with pseudo-columns (write-api.md 6)."""

import unittest

from google.api_core import exceptions
from google.cloud import bigquery
from google.cloud.bigquery import SchemaField
from google.cloud.bigquery.table import PrimaryKey, TableConstraints
from google.cloud.bigquery_storage_v1 import types

import appends
import world
from appends import field, message
from world import PROJECT

TABLE_ID = f"{PROJECT}.changes.t"
TABLE = f"projects/{PROJECT}/datasets/changes/tables/t"
DEFAULT = f"{TABLE}/streams/_default"

ROWS = appends.Protobuf(
    message(
        "Row",
        field("id", 1, "INT64"),
        field("name", 2, "STRING"),
        field("_CHANGE_TYPE", 3, "STRING"),
    )
)
ORDERED = appends.Protobuf(
    message(
        "Row",
        field("id", 1, "INT64"),
        field("name", 2, "STRING"),
        field("_CHANGE_TYPE", 3, "STRING"),
        field("_CHANGE_SEQUENCE_NUMBER", 4, "STRING"),
    )
)


class Changes(unittest.TestCase):
    def setUp(self):
        world.make_dataset("changes")

    def make_table(self, key=("id",)):
        table = bigquery.Table(
            TABLE_ID, schema=[SchemaField("id", "INTEGER", mode="REQUIRED"), SchemaField("name", "STRING")]
        )
        if key:
            table.table_constraints = TableConstraints(PrimaryKey(list(key)), [])
        world.client.create_table(table)

    def open(self, stream, rows):
        writer = appends.Writer(stream, rows)
        self.addCleanup(writer.close)
        return writer

    def committed(self):
        asked = types.WriteStream(type_=types.WriteStream.Type.COMMITTED)
        return world.write_client.create_write_stream(parent=TABLE, write_stream=asked).name

    def assert_rows(self, *rows):
        self.assertEqual(world.by_query(TABLE_ID), list(rows))
        self.assertEqual(world.by_list_rows(TABLE_ID), list(rows))

    def assert_refused(self, text, act, *arguments):
        """The text stands in the error or in that of a row."""
        with self.assertRaises(exceptions.InvalidArgument) as caught:
            act(*arguments)
        answer = getattr(caught.exception, "response", None)
        rows = answer.row_errors if isinstance(answer, types.AppendRowsResponse) else []
        self.assertIn(text, " ".join([caught.exception.message, *(row.message for row in rows)]))

    def test_rows_are_replaced_and_deleted_by_their_key(self):
        """[DOC]; a DELETE needs the key alone."""
        self.make_table()
        writer = self.open(DEFAULT, ROWS)
        writer.append([[1, "a", "UPSERT"], [2, "b", "UPSERT"], [3, "c", "UPSERT"]])
        self.assert_rows([1, "a"], [2, "b"], [3, "c"])
        writer.append([[1, "A", "UPSERT"], [2, None, "DELETE"], [4, None, "UPSERT"]])
        self.assert_rows([1, "A"], [3, "c"], [4, None])

    def test_the_sequence_number_decides_not_the_order_of_arrival(self):
        """[DOC]: the examples FFF/ABC over ABC, ABC over BA/FFFFFFFF; equal ones by arrival; a late upsert does not undo a delete."""
        self.make_table()
        writer = self.open(DEFAULT, ORDERED)
        writer.append([[1, "FFF/ABC", "UPSERT", "FFF/ABC"], [1, "ABC", "UPSERT", "ABC"]])
        writer.append([[2, "ABC", "UPSERT", "ABC"], [2, "BA/FFFFFFFF", "UPSERT", "BA/FFFFFFFF"]])
        writer.append([[3, "first", "UPSERT", "7/1"], [3, "second", "UPSERT", "7/1"]])
        writer.append([[4, "gone", "UPSERT", "1"], [4, None, "DELETE", "3"], [4, "late", "UPSERT", "2"]])
        self.assert_rows([1, "FFF/ABC"], [2, "ABC"], [3, "second"])

    def test_inserts_are_taken_by_other_streams(self):
        """[PROD GIT]."""
        self.make_table()
        writer = self.open(self.committed(), ROWS)
        self.assertEqual(writer.append([[1, "a", "INSERT"]], 0).append_result.offset, 0)
        self.assert_rows([1, "a"])

    def test_upserts_are_not_taken_by_other_streams(self):
        """[PROD dotnet #11527, nodejs #470]."""
        self.make_table()
        writer = self.open(self.committed(), ROWS)
        writer.append([[1, "a", "INSERT"]], 0)
        text = "is not a valid CHANGE_TYPE in insert mode: UPSERT"
        self.assert_refused(text, writer.append, [[2, "b", "UPSERT"]], 1)
        self.assert_rows([1, "a"])

    def test_one_connection_inserts_or_upserts(self):
        """[PROD dotnet #11527, nodejs #470]."""
        self.make_table()
        writer = self.open(DEFAULT, ROWS)
        writer.append([[1, "a", "UPSERT"]])
        self.assert_refused("The given value is not a valid CHANGE_TYPE", writer.append, [[2, "b", "INSERT"]])
        self.assert_rows([1, "a"])

    def test_changes_need_a_primary_key(self):
        """[DOC; go PR #7516 for the words]."""
        self.make_table(key=None)
        request = appends.request(DEFAULT, ROWS, [[1, "a", "UPSERT"]])

        def append():
            [answer] = appends.call(DEFAULT, request)
            raise exceptions.from_grpc_status(answer.error.code, answer.error.message, response=answer)

        self.assert_refused("primary key", append)
        self.assert_rows()
