"""Protobuf rows as Google's integration tests and samples send them (write-api.md 5.1 to 5.4), in messages made at run time."""

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
from appends import field, message
from world import PROJECT

TABLE_ID = f"{PROJECT}.protobuf.t"
TABLE = f"projects/{PROJECT}/datasets/protobuf/tables/t"
DEFAULT = f"{TABLE}/streams/_default"

UTC = datetime.timezone.utc
DAY = datetime.date(2016, 12, 3)
MOMENT = datetime.datetime(2016, 12, 3, 14, 11, 27, 123456)
CLOCK = datetime.time(12, 34, 56, 789000)
MICROS = 1_480_774_287_123_456

# A column for each type of BigQuery and each type of protobuf that it takes (5.1): BigQuery's type, protobuf's, what is sent, and
# what is read. Packed civil time (5.2) and scaled bytes (5.3) are the vectors of those sections.
CASES = [
    ("BOOLEAN", "BOOL", True, True),
    ("BOOLEAN", "INT32", 1, True),
    ("BOOLEAN", "INT64", 0, False),
    ("BOOLEAN", "UINT32", 1, True),
    ("BOOLEAN", "UINT64", 1, True),
    ("INTEGER", "INT32", -(2**31), -(2**31)),
    ("INTEGER", "INT64", -(2**63), -(2**63)),
    ("INTEGER", "UINT32", 2**32 - 1, 2**32 - 1),
    ("INTEGER", "SINT32", -7, -7),
    ("INTEGER", "SINT64", -(2**63), -(2**63)),
    ("INTEGER", "FIXED32", 2**32 - 1, 2**32 - 1),
    ("INTEGER", "SFIXED32", -7, -7),
    ("INTEGER", "SFIXED64", 2**63 - 1, 2**63 - 1),
    ("FLOAT", "DOUBLE", 0.1, 0.1),
    ("FLOAT", "FLOAT", 0.5, 0.5),
    ("FLOAT", "DOUBLE", float("inf"), float("inf")),
    ("FLOAT", "DOUBLE", float("-inf"), float("-inf")),
    ("STRING", "STRING", "東京", "東京"),
    ("BYTES", "BYTES", b"\0\xff", b"\0\xff"),
    ("BYTES", "STRING", "東", "東".encode()),
    ("DATE", "INT32", -719162, datetime.date(1, 1, 1)),
    ("DATE", "INT64", 2932896, datetime.date(9999, 12, 31)),
    ("DATE", "STRING", "2016-12-03", DAY),
    ("TIME", "INT64", 53880818184, CLOCK),
    ("TIME", "STRING", "12:34:56.789", CLOCK),
    ("DATETIME", "INT64", 141916638033338944, MOMENT),
    ("DATETIME", "STRING", "2016-12-03T14:11:27.123456", MOMENT),
    ("TIMESTAMP", "INT64", MICROS, MOMENT.replace(tzinfo=UTC)),
    ("TIMESTAMP", "INT32", 1, datetime.datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
    ("TIMESTAMP", "UINT32", 1, datetime.datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
    ("TIMESTAMP", "STRING", "2016-12-03T14:11:27.123456Z", MOMENT.replace(tzinfo=UTC)),
    ("NUMERIC", "BYTES", bytes.fromhex("002f6859"), decimal.Decimal("1.5")),
    ("NUMERIC", "BYTES", bytes.fromhex("003665c4"), decimal.Decimal(-1)),
    ("NUMERIC", "STRING", "-0.000000001", decimal.Decimal("-0.000000001")),
    ("NUMERIC", "INT32", -3, decimal.Decimal(-3)),
    ("NUMERIC", "INT64", 3, decimal.Decimal(3)),
    ("NUMERIC", "UINT32", 3, decimal.Decimal(3)),
    ("NUMERIC", "UINT64", 2**64 - 1, decimal.Decimal(2**64 - 1)),
    ("NUMERIC", "DOUBLE", 0.25, decimal.Decimal("0.25")),
    ("NUMERIC", "FLOAT", 0.5, decimal.Decimal("0.5")),
    ("BIGNUMERIC", "BYTES", bytes.fromhex("0000000040228a097ac4865aa84c3b4b"), decimal.Decimal(1)),
    ("BIGNUMERIC", "STRING", "1e-38", decimal.Decimal("1e-38")),
    ("BIGNUMERIC", "INT64", -3, decimal.Decimal(-3)),
    ("JSON", "STRING", '{"a": [1, null]}', {"a": [1, None]}),
    ("GEOGRAPHY", "STRING", "POINT(1 2)", "POINT(1 2)"),
]


class Protobuf(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        world.make_dataset("protobuf")

    def make_table(self, *fields):
        world.client.create_table(bigquery.Table(TABLE_ID, schema=fields))

    def append(self, descriptor, *rows, **more):
        """Appends to the default stream on a connection of its own, and returns the answer."""
        request = appends.request(DEFAULT, appends.Protobuf(descriptor), rows, **more)
        [answer] = appends.call(DEFAULT, request)
        if answer.error.code:
            raise exceptions.from_grpc_status(answer.error.code, answer.error.message, response=answer)
        return answer

    def assert_rows(self, *rows):
        world.assert_rows(self, world.by_query(TABLE_ID), list(rows))
        world.assert_rows(self, world.by_list_rows(TABLE_ID), list(rows))

    # Types.

    def test_every_type_that_a_column_takes(self):
        """write-api.md 5.1 [DOC; PROD GIT for the fixed and zigzag integers and infinity], 5.2, 5.3."""
        names = [f"c{number}" for number in range(len(CASES))]
        self.make_table(*(SchemaField(name, case[0]) for name, case in zip(names, CASES)))
        row = message("Row", *(field(name, number + 1, case[1]) for number, (name, case) in enumerate(zip(names, CASES))))
        self.append(row, [case[2] for case in CASES])
        for found in (world.by_query(TABLE_ID), world.by_list_rows(TABLE_ID)):
            [read] = found
            for case, value in zip(CASES, read):
                self.assertEqual(world.typed(value), world.typed(case[3]), case)

    def test_an_enum_is_its_number(self):
        """write-api.md 5.1 [DOC]."""
        self.make_table(SchemaField("n", "INTEGER"))
        row = message("Row", field("n", 1, "ENUM", type_name="Row.Kind"))
        kind = row.enum_type.add(name="Kind")
        kind.value.add(name="NONE", number=0)
        kind.value.add(name="MANY", number=7)
        self.append(row, [7])
        self.assert_rows([7])

    def test_repeated_numbers_are_read_packed_and_unpacked(self):
        """write-api.md 5.1 [PROD GIT]: whatever the descriptor says of them."""
        self.make_table(SchemaField("n", "INTEGER"), SchemaField("many", "INTEGER", mode="REPEATED"))
        for n, described in enumerate((None, True, False)):
            many = field("many", 2, "INT64", "REPEATED")
            if described is not None:
                many.options.packed = described
            row = message("Row", field("n", 1, "INT64"), many)
            # Field 1 is 2n or 2n + 1; field 2 is 5, 6: packed, then one by one.
            packed = bytes([0x08, 2 * n, 0x12, 2, 5, 6])
            single = bytes([0x08, 2 * n + 1, 0x10, 5, 0x10, 6])
            self.append(row, packed, single)
        self.assert_rows(*([n, [5, 6]] for n in range(6)))

    def test_structs_and_lists_of_structs(self):
        """write-api.md 5.1 [DOC]; no list and an empty list are the same."""
        inner = [SchemaField("city", "STRING"), SchemaField("heights", "FLOAT", mode="REPEATED")]
        self.make_table(
            SchemaField("n", "INTEGER"),
            SchemaField("place", "RECORD", fields=inner),
            SchemaField("places", "RECORD", mode="REPEATED", fields=inner),
        )
        place = message("Place", field("city", 1, "STRING"), field("heights", 2, "DOUBLE", "REPEATED"))
        row = message(
            "Row",
            field("n", 1, "INT64"),
            field("place", 2, "MESSAGE", type_name="Place"),
            field("places", 3, "MESSAGE", "REPEATED", type_name="Place"),
            nested_type=[place],
        )
        bergen = {"city": "Bergen", "heights": [12.0, 643.5]}
        self.append(row, [0, bergen, [bergen, {}]], [1, {}, []], [2, None, None])
        nowhere = {"city": None, "heights": []}
        self.assert_rows([0, bergen, [bergen, nowhere]], [1, nowhere, []], [2, None, []])

    def test_picoseconds_as_text_and_as_a_message(self):
        """write-api.md 5.1 [PROD JIT]."""
        precise = SchemaField("at", "TIMESTAMP", timestamp_precision=TimestampPrecision.PICOSECOND)
        self.make_table(SchemaField("n", "INTEGER"), precise)
        text = message("Row", field("n", 1, "INT64"), field("at", 2, "STRING"))
        self.append(text, [0, "2016-12-03T14:11:27.123456789012Z"])
        at = message("At", field("seconds", 1, "INT64"), field("picoseconds", 2, "INT64"))
        parts = message(
            "Row", field("n", 1, "INT64"), field("at", 2, "MESSAGE", type_name="At"), nested_type=[at]
        )
        self.append(parts, [1, {"seconds": 1_480_774_287, "picoseconds": 123_456_789_012}])
        table = world.client.get_table(TABLE_ID)
        rows = world.client.list_rows(table, timestamp_precision=TimestampPrecision.PICOSECOND)
        found = sorted(list(row.values()) for row in rows)
        self.assertEqual(found, [[n, "2016-12-03T14:11:27.123456789012Z"] for n in (0, 1)])

    def test_a_timestamp_out_of_range_is_a_bad_row(self):
        """write-api.md 3.5 [PROD JIT]."""
        self.make_table(SchemaField("at", "TIMESTAMP"))
        row = message("Row", field("at", 1, "INT64"))
        with self.assertRaises(exceptions.InvalidArgument) as caught:
            self.append(row, [MICROS], [2**63 - 1], [MICROS], [-(2**63)])
        self.assertEqual([bad.index for bad in caught.exception.response.row_errors], [1, 3])
        self.assert_rows()

    # Descriptors.

    def test_fields_are_matched_by_name_in_any_case(self):
        """write-api.md 5.1 [DOC, CLIENT]: the numbers are free."""
        self.make_table(SchemaField("Number", "INTEGER"), SchemaField("name", "STRING"))
        self.append(message("Row", field("NAME", 17, "STRING"), field("number", 400, "INT64")), ["x", 3])
        self.assert_rows([3, "x"])

    def test_a_field_that_the_table_lacks_ends_the_call(self):
        """write-api.md 7.2 [PROD beam #27892], 3.1, 3.2 [PROD JIT]."""
        self.make_table(SchemaField("n", "INTEGER"))
        row = message("Row", field("n", 1, "INT64"), field("more", 2, "STRING"))
        with self.assertRaises(exceptions.InvalidArgument) as caught:
            self.append(row, [1, "x"])
        self.assertEqual(appends.storage_error(caught.exception), "SCHEMA_MISMATCH_EXTRA_FIELDS")
        text = "Input schema has more fields than BigQuery schema, extra fields: 'more' Entity: "
        self.assertEqual(caught.exception.message[: len(text)], text)

    def test_numbers_that_are_not_in_the_descriptor_are_passed_over(self):
        """write-api.md 7.2 [PROD nodejs #470]."""
        self.make_table(SchemaField("n", "INTEGER"))
        # Field 1 is 3; field 9 is a text that nobody asked for.
        self.append(message("Row", field("n", 1, "INT64")), b"\x08\x03\x4a\x02hi")
        self.assert_rows([3])

    def test_defaults_of_the_descriptor_fill_in(self):
        """write-api.md 5.4 [PROD GIT]: an absent field with a proto2 default has it, without one it is NULL."""
        self.make_table(
            SchemaField("n", "INTEGER"),
            SchemaField("name", "STRING"),
            SchemaField("flag", "BOOLEAN"),
            SchemaField("plain", "INTEGER"),
        )
        row = message(
            "Row",
            field("n", 1, "INT64", default_value="11"),
            field("name", 2, "STRING", default_value="unnamed"),
            field("flag", 3, "BOOL", default_value="true"),
            field("plain", 4, "INT64"),
        )
        self.append(row, [None, None, None, None], [12, "", False, 0])
        self.assert_rows([11, "unnamed", True, None], [12, "", False, 0])

    def test_marks_of_proto3_are_refused(self):
        """write-api.md 5.4 [PROD python #726, #818]: Google's writer takes them off, so they are sent without it."""
        self.make_table(SchemaField("n", "INTEGER"))
        marked = message("Row", field("n", 1, "INT64", proto3_optional=True, oneof_index=0))
        marked.oneof_decl.add(name="_n")
        plain = appends.Protobuf(message("Row", field("n", 1, "INT64")))
        request = appends.request(DEFAULT, plain, [[1]])
        request.proto_rows.writer_schema.proto_descriptor.ParseFromString(marked.SerializeToString())
        self.assertRaises(exceptions.InvalidArgument, appends.call, DEFAULT, request)
        writer = appends.Writer(DEFAULT, plain)
        self.addCleanup(writer.close)
        writer.append([[2]])
        self.assert_rows([2])

    def test_a_column_whose_name_no_field_can_have(self):
        """write-api.md 1.2 [DOC]: the annotation wins over the field's name."""
        self.make_table(SchemaField("größe in m", "FLOAT"))
        size = field("col_size", 1, "DOUBLE")
        size.options.ParseFromString(appends.column_name("größe in m"))
        self.append(message("Row", size), [1.5])
        self.assert_rows([1.5])

    def test_the_format_does_not_change_within_a_connection(self):
        """write-api.md 1.2 [DOC P]."""
        self.make_table(SchemaField("n", "INTEGER"))
        rows = appends.Protobuf(message("Row", field("n", 1, "INT64")))
        first = appends.request(DEFAULT, rows, [[1]])
        second = appends.request(DEFAULT, appends.Arrow(pyarrow.schema([("n", pyarrow.int64())])), [[2]])
        self.assertRaises(exceptions.InvalidArgument, appends.call, DEFAULT, first, second)
        self.assert_rows([1])

    def test_the_default_stream_takes_a_new_schema_within_a_connection(self):
        """write-api.md 7.3 [DOC]; on other streams a later schema is not read (1.2 [DOC P])."""
        self.make_table(SchemaField("n", "INTEGER"), SchemaField("name", "STRING"))
        narrow = appends.Protobuf(message("Row", field("n", 1, "INT64")))
        wide = appends.Protobuf(message("Row", field("name", 1, "STRING"), field("n", 2, "INT64")))
        requests = [appends.request(DEFAULT, narrow, [[1]]), appends.request(DEFAULT, wide, [["two", 2]])]
        answers = appends.call(DEFAULT, *requests)
        self.assertEqual([answer.error.code for answer in answers], [0, 0])
        self.assert_rows([1, None], [2, "two"])

    # Missing values.

    def test_a_missing_required_value_is_a_bad_row(self):
        """write-api.md 5.4, 7.1 [DOC]."""
        self.make_table(SchemaField("n", "INTEGER", mode="REQUIRED"), SchemaField("name", "STRING"))
        row = message("Row", field("n", 1, "INT64"), field("name", 2, "STRING"))
        with self.assertRaises(exceptions.InvalidArgument) as caught:
            self.append(row, [0, "a"], [None, "b"])
        self.assertEqual([bad.index for bad in caught.exception.response.row_errors], [1])
        self.assert_rows()

    def test_default_values_of_columns(self):
        """write-api.md 7.1 [PROD JIT, DOC]: for a column that the writer does not have, and where it is asked for."""
        self.make_table(
            SchemaField("n", "INTEGER"),
            SchemaField("name", "STRING", default_value_expression="'unnamed'"),
            SchemaField("count", "INTEGER", default_value_expression="42"),
        )
        stream = world.write_client.create_write_stream(
            parent=TABLE, write_stream=types.WriteStream(type_=types.WriteStream.Type.COMMITTED)
        ).name
        kinds = types.AppendRowsRequest.MissingValueInterpretation
        null, default = kinds.NULL_VALUE, kinds.DEFAULT_VALUE
        rows = appends.Protobuf(message("Row", field("n", 1, "INT64"), field("name", 2, "STRING")))
        writer = appends.Writer(stream, rows)
        self.addCleanup(writer.close)
        # The writer lacks `count`, so it is always its default. `name` is NULL unless asked for: of one request by its name, of
        # this and those that follow by the other setting, which the name overrides.
        writer.append([[0, None], [1, "one"]], 0)
        writer.append([[2, None]], 2, missing_value_interpretations={"name": default})
        writer.append([[3, None]], 3)
        writer.append([[4, None]], 4, default_missing_value_interpretation=default)
        writer.append([[5, None]], 5)
        writer.append([[6, None]], 6, missing_value_interpretations={"name": null})
        writer.append([[7, None]], 7)
        names = [None, "one", "unnamed", None, "unnamed", "unnamed", None, "unnamed"]
        self.assert_rows(*([n, name, 42] for n, name in enumerate(names)))

    def test_a_missing_value_must_be_interpreted_somehow(self):
        """write-api.md 1.2 [DOC P]: an entry without an interpretation is rejected."""
        self.make_table(SchemaField("n", "INTEGER"))
        row = message("Row", field("n", 1, "INT64"))
        with self.assertRaises(exceptions.InvalidArgument):
            self.append(row, [1], missing_value_interpretations={"n": 0})
        self.assert_rows()
