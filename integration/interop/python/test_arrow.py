"""Arrow rows as Google's integration tests and samples send them (write-api.md 5.5); test_write has the common types."""

import datetime
import decimal
import unittest

import pyarrow
from google.api_core import exceptions
from google.cloud import bigquery
from google.cloud.bigquery import SchemaField
from google.cloud.bigquery.enums import TimestampPrecision
from google.cloud.bigquery_storage_v1 import types

import appends
import world
from world import PROJECT

TABLE_ID = f"{PROJECT}.arrow.t"
TABLE = f"projects/{PROJECT}/datasets/arrow/tables/t"
DEFAULT = f"{TABLE}/streams/_default"

UTC = datetime.timezone.utc
DAY = datetime.date(2016, 12, 3)
MOMENT = datetime.datetime(2016, 12, 3, 14, 11, 27, 123456)
CLOCK = datetime.time(12, 34, 56, 789000)
MICROS = 1_480_774_287_123_456

RANGE = pyarrow.struct([("start", pyarrow.date32()), ("end", pyarrow.date32())])

# A column for each type of BigQuery and each type of Arrow that it takes: BigQuery's type, Arrow's, what is sent, and what is read.
CASES = [
    ("BOOLEAN", pyarrow.bool_(), True, True),
    ("INTEGER", pyarrow.int8(), -128, -128),
    ("INTEGER", pyarrow.int16(), -(2**15), -(2**15)),
    ("INTEGER", pyarrow.int32(), -(2**31), -(2**31)),
    ("INTEGER", pyarrow.int64(), -(2**63), -(2**63)),
    ("FLOAT", pyarrow.float32(), 0.5, 0.5),
    ("FLOAT", pyarrow.float64(), 0.1, 0.1),
    ("NUMERIC", pyarrow.decimal128(38, 9), decimal.Decimal("-0.000000001"), decimal.Decimal("-0.000000001")),
    ("BIGNUMERIC", pyarrow.decimal256(76, 38), decimal.Decimal("1e-38"), decimal.Decimal("1e-38")),
    ("STRING", pyarrow.string(), "東京", "東京"),
    ("JSON", pyarrow.string(), '{"a": [1, null]}', {"a": [1, None]}),
    ("GEOGRAPHY", pyarrow.string(), "POINT(1 2)", "POINT(1 2)"),
    ("BYTES", pyarrow.binary(), b"\0\xff", b"\0\xff"),
    ("DATE", pyarrow.date32(), DAY, DAY),
    ("DATE", pyarrow.string(), "2016-12-03", DAY),
    ("DATE", pyarrow.int32(), -719162, datetime.date(1, 1, 1)),
    ("TIME", pyarrow.time64("us"), CLOCK, CLOCK),
    ("DATETIME", pyarrow.timestamp("us"), MOMENT, MOMENT),
    ("TIMESTAMP", pyarrow.timestamp("us", tz="UTC"), MOMENT.replace(tzinfo=UTC), MOMENT.replace(tzinfo=UTC)),
    ("TIMESTAMP", pyarrow.timestamp("us"), MOMENT, MOMENT.replace(tzinfo=UTC)),
    (("RANGE", "DATE"), RANGE, {"start": DAY, "end": None}, {"start": DAY, "end": None}),
]


class Arrow(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        world.make_dataset("arrow")

    def make_table(self, *fields):
        world.client.create_table(bigquery.Table(TABLE_ID, schema=fields))

    def test_every_type_that_a_column_takes(self):
        """write-api.md 5.5 [DOC, PY]."""
        names = [f"c{number}" for number in range(len(CASES))]

        def column(name, kind):
            if isinstance(kind, str):
                return SchemaField(name, kind)
            return SchemaField(name, kind[0], range_element_type=kind[1])

        self.make_table(*(column(name, case[0]) for name, case in zip(names, CASES)))
        rows = appends.Arrow(pyarrow.schema([(name, case[1]) for name, case in zip(names, CASES)]))
        [answer] = appends.call(DEFAULT, appends.request(DEFAULT, rows, [[case[2] for case in CASES]]))
        self.assertEqual((answer.error.code, list(answer.row_errors)), (0, []))
        for found in (world.by_query(TABLE_ID), world.by_list_rows(TABLE_ID)):
            [read] = found
            for case, value in zip(CASES, read):
                self.assertEqual(world.typed(value), world.typed(case[3]), case)

    def test_nanoseconds_into_a_precise_timestamp(self):
        """write-api.md 5.5 [PROD JIT]."""
        self.make_table(SchemaField("at", "TIMESTAMP", timestamp_precision=TimestampPrecision.PICOSECOND))
        rows = appends.Arrow(pyarrow.schema([("at", pyarrow.timestamp("ns", tz="UTC"))]))
        [answer] = appends.call(DEFAULT, appends.request(DEFAULT, rows, [[MICROS * 1000 + 789]]))
        self.assertEqual((answer.error.code, list(answer.row_errors)), (0, []))
        table = world.client.get_table(TABLE_ID)
        [row] = world.client.list_rows(table, timestamp_precision=TimestampPrecision.PICOSECOND)
        self.assertEqual(row.at, "2016-12-03T14:11:27.123456789000Z")

    def test_a_column_may_be_stricter_than_the_tables(self):
        """write-api.md 5.5 [PROD RIT]: a field of Arrow that is never NULL goes into a NULLABLE column."""
        self.make_table(SchemaField("n", "INTEGER"))
        rows = appends.Arrow(pyarrow.schema([pyarrow.field("n", pyarrow.int64(), nullable=False)]))
        appends.call(DEFAULT, appends.request(DEFAULT, rows, [[7]]))
        self.assertEqual(world.by_query(TABLE_ID), [[7]])

    def test_a_whole_ipc_stream_is_no_record_batch(self):
        """write-api.md 5.5 [PROD arrow-go #425]."""
        self.make_table(SchemaField("n", "INTEGER"))
        schema = pyarrow.schema([("n", pyarrow.int64())])
        batch = pyarrow.record_batch([pyarrow.array([7])], schema=schema)
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, schema) as stream:
            stream.write_batch(batch)
        request = types.AppendRowsRequest(write_stream=DEFAULT)
        request.arrow_rows.writer_schema.serialized_schema = schema.serialize().to_pybytes()
        request.arrow_rows.rows.serialized_record_batch = sink.getvalue().to_pybytes()
        self.assertRaises(exceptions.InvalidArgument, appends.call, DEFAULT, request)
        self.assertEqual(world.by_query(TABLE_ID), [])

    def test_a_field_that_the_table_lacks_ends_the_call(self):
        """write-api.md 3.1, 3.2, 7.2 [PROD JIT]."""
        self.make_table(SchemaField("n", "INTEGER"))
        rows = appends.Arrow(pyarrow.schema([("n", pyarrow.int64()), ("more", pyarrow.string())]))
        with self.assertRaises(exceptions.InvalidArgument) as caught:
            appends.call(DEFAULT, appends.request(DEFAULT, rows, [[7, "x"]]))
        self.assertEqual(appends.storage_error(caught.exception), "SCHEMA_MISMATCH_EXTRA_FIELDS")
        self.assertEqual(world.by_query(TABLE_ID), [])

    def test_columns_that_the_writer_lacks_are_null_or_their_defaults(self):
        """write-api.md 7.1 [DOC]."""
        self.make_table(
            SchemaField("n", "INTEGER"),
            SchemaField("name", "STRING"),
            SchemaField("count", "INTEGER", default_value_expression="42"),
        )
        rows = appends.Arrow(pyarrow.schema([("n", pyarrow.int64())]))
        appends.call(DEFAULT, appends.request(DEFAULT, rows, [[7]]))
        self.assertEqual(world.by_query(TABLE_ID), [[7, None, 42]])
