"""Google's Storage Write client, with pyarrow's own Arrow, against the emulator; Google's BigQuery client reads the result."""

import datetime
import decimal
import unittest

import pyarrow
from google.api_core import exceptions
from google.cloud import bigquery
from google.cloud.bigquery import SchemaField
from google.cloud.bigquery_storage_v1 import types
from google.cloud.bigquery_storage_v1.writer import AppendRowsStream

import world
from world import PROJECT

TABLE_ID = f"{PROJECT}.write.t"
TABLE = f"projects/{PROJECT}/datasets/write/tables/t"

FIELDS = [
    SchemaField("id", "INTEGER", mode="REQUIRED"),
    SchemaField("flag", "BOOLEAN"),
    SchemaField("ratio", "FLOAT"),
    SchemaField("name", "STRING"),
    SchemaField("raw", "BYTES"),
    SchemaField("day", "DATE"),
    SchemaField("civil", "DATETIME"),
    SchemaField("moment", "TIMESTAMP"),
    SchemaField("price", "NUMERIC"),
    SchemaField("place", "RECORD", fields=[SchemaField("city", "STRING"), SchemaField("height", "INTEGER")]),
    SchemaField("numbers", "INTEGER", mode="REPEATED"),
]

SCHEMA = pyarrow.schema(
    [
        ("id", pyarrow.int64()),
        ("flag", pyarrow.bool_()),
        ("ratio", pyarrow.float64()),
        ("name", pyarrow.string()),
        ("raw", pyarrow.binary()),
        ("day", pyarrow.date32()),
        ("civil", pyarrow.timestamp("us")),
        ("moment", pyarrow.timestamp("us", tz="UTC")),
        ("price", pyarrow.decimal128(38, 9)),
        ("place", pyarrow.struct([("city", pyarrow.string()), ("height", pyarrow.int64())])),
        ("numbers", pyarrow.list_(pyarrow.int64())),
    ]
)


def row(id):
    """Every fourth row is NULL but for its id."""
    if id % 4 == 3:
        return [id] + [None] * 9 + [[]]
    civil = datetime.datetime(2024, 2, 29, 12, 30, 0, 500) + datetime.timedelta(days=id)
    return [
        id,
        id % 2 == 0,
        id / 4,
        f"row {id} 東",
        bytes([id % 256, 0, 255]),
        civil.date(),
        civil,
        civil.replace(tzinfo=datetime.timezone.utc),
        decimal.Decimal(id) / 8 - 1,
        {"city": None if id % 2 else "Bergen", "height": id},
        list(range(id % 3)),
    ]


class Writer:
    """Appends to one stream."""

    def __init__(self, stream):
        self.stream = stream
        template = types.AppendRowsRequest(write_stream=stream)
        template.arrow_rows.writer_schema.serialized_schema = SCHEMA.serialize().to_pybytes()
        self.connection = AppendRowsStream(world.write_client, template)

    def append(self, offset, rows):
        """Returns what the server will answer."""
        columns = [pyarrow.array(column, kind.type) for column, kind in zip(zip(*rows), SCHEMA)]
        batch = pyarrow.record_batch(columns, schema=SCHEMA)
        request = types.AppendRowsRequest(write_stream=self.stream, offset=offset)
        request.arrow_rows.rows.serialized_record_batch = batch.serialize().to_pybytes()
        return self.connection.send(request)


class StorageWrite(unittest.TestCase):
    def setUp(self):
        world.make_dataset("write")
        world.client.create_table(bigquery.Table(TABLE_ID, schema=FIELDS))
        self.client = world.write_client

    def create(self, kind):
        return self.client.create_write_stream(parent=TABLE, write_stream=types.WriteStream(type_=kind)).name

    def open(self, stream):
        writer = Writer(stream)
        self.addCleanup(writer.connection.close)
        return writer

    def assert_visible(self, ids):
        world.assert_rows(self, world.by_list_rows(TABLE_ID), [row(id) for id in ids])
        world.assert_rows(self, world.by_query(TABLE_ID), [row(id) for id in ids])

    def flush(self, stream, offset):
        return self.client.flush_rows(types.FlushRowsRequest(write_stream=stream, offset=offset)).offset

    def test_buffered_rows_become_visible_up_to_the_flushed_offset_and_once(self):
        stream = self.create(types.WriteStream.Type.BUFFERED)
        writer = self.open(stream)
        answers = [
            writer.append(from_id, [row(id) for id in range(from_id, from_id + 10)])
            for from_id in (0, 10, 20)
        ]
        self.assertEqual([answer.result(30).append_result.offset for answer in answers], [0, 10, 20])
        self.assert_visible([])
        for offset, visible in ((4, 5), (4, 5), (24, 25), (9, 25)):
            self.assertEqual(self.flush(stream, offset), offset)
            self.assert_visible(range(visible))
        with self.assertRaises(exceptions.OutOfRange):
            self.flush(stream, 30)
        self.assert_visible(range(25))

    def test_a_wrong_offset_is_refused_and_the_connection_carries_on(self):
        stream = self.create(types.WriteStream.Type.COMMITTED)
        writer = self.open(stream)
        writer.append(0, [row(0), row(1)]).result(30)
        with self.assertRaisesRegex(exceptions.AlreadyExists, "expected offset 2, received 0"):
            writer.append(0, [row(0), row(1)]).result(30)
        with self.assertRaisesRegex(exceptions.OutOfRange, "expected offset 2, received 5"):
            writer.append(5, [row(5)]).result(30)
        self.assertEqual(writer.append(2, [row(2)]).result(30).append_result.offset, 2)
        self.assert_visible(range(3))

    def test_a_row_that_does_not_fit_refuses_the_whole_request(self):
        writer = self.open(self.create(types.WriteStream.Type.COMMITTED))
        bad = [None] + row(1)[1:]
        with self.assertRaises(exceptions.InvalidArgument) as caught:
            writer.append(0, [row(0), bad, row(2)]).result(30)
        self.assertEqual([error.index for error in caught.exception.response.row_errors], [1])
        self.assertEqual(writer.append(0, [row(0)]).result(30).append_result.offset, 0)
        self.assert_visible([0])

    def test_the_default_stream_shows_rows_at_once(self):
        writer = self.open(f"{TABLE}/streams/_default")
        for ids in (range(3), range(3, 5)):
            writer.append(None, [row(id) for id in ids]).result(30)
        self.assert_visible(range(5))

    def test_a_finalized_stream_takes_no_rows(self):
        stream = self.create(types.WriteStream.Type.COMMITTED)
        writer = self.open(stream)
        writer.append(0, [row(0), row(1)]).result(30)
        self.assertEqual(self.client.finalize_write_stream(name=stream).row_count, 2)
        with self.assertRaisesRegex(exceptions.InvalidArgument, "finalized"):
            writer.append(2, [row(2)]).result(30)
        self.assert_visible(range(2))

    def test_a_stream_tells_the_schema_of_its_table(self):
        request = types.GetWriteStreamRequest(
            name=f"{TABLE}/streams/_default", view=types.WriteStreamView.FULL
        )
        found = self.client.get_write_stream(request).table_schema.fields
        self.assertEqual([field.name for field in found], [field.name for field in FIELDS])
        kinds = types.TableFieldSchema.Type
        self.assertEqual((found[0].type_, found[0].mode), (kinds.INT64, types.TableFieldSchema.Mode.REQUIRED))
        self.assertEqual([field.type_ for field in found[9].fields], [kinds.STRING, kinds.INT64])

    def test_what_is_missing_raises_not_found(self):
        for call in (
            lambda: self.client.create_write_stream(
                parent=f"{TABLE}_missing",
                write_stream=types.WriteStream(type_=types.WriteStream.Type.BUFFERED),
            ),
            lambda: self.client.get_write_stream(name=f"{TABLE}/streams/missing"),
            lambda: self.flush(f"{TABLE}/streams/missing", 0),
        ):
            self.assertRaises(exceptions.NotFound, call)
