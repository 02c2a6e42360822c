"""What the tool sends with write.format = 'proto', read by Google's protobuf runtime on its way to the emulator."""

import datetime
import decimal
import json
import unittest
from concurrent import futures

import grpc
from google.cloud import bigquery
from google.cloud.bigquery import SchemaField
from google.cloud.bigquery_storage_v1 import types

import appends
import rows
import world
from world import PROJECT

SERVICE = "google.cloud.bigquery.storage.v1.BigQueryWrite"
EPOCH = datetime.datetime(1970, 1, 1)
WIDE = decimal.Context(prec=80)


class Wiretap(grpc.GenericRpcHandler):
    """Stands before a Storage Write API, passes all bytes on, and keeps the requests of append calls."""

    def __init__(self, address):
        self._channel = grpc.insecure_channel(address)
        self.calls = []

    def service(self, details):
        """Every method is passed on by its name."""
        if details.method != f"/{SERVICE}/AppendRows":
            forward = self._channel.unary_unary(details.method)
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: forward(request, metadata=self._headers(context))
            )
        forward_all = self._channel.stream_stream(details.method)

        def append(requests, context):
            call = []
            self.calls.append(call)

            def kept():
                for request in requests:
                    call.append(types.AppendRowsRequest.deserialize(request))
                    yield request

            yield from forward_all(kept(), metadata=self._headers(context))

        return grpc.stream_stream_rpc_method_handler(append)

    @staticmethod
    def _headers(context):
        return [pair for pair in context.invocation_metadata() if pair[0] == "x-goog-request-params"]

    def serve(self):
        """Starts; returns the server and its address."""
        server = grpc.server(futures.ThreadPoolExecutor(16), handlers=[self])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        return server, f"127.0.0.1:{port}"


class ProtobufRows(unittest.TestCase):
    """Generated rows of every type."""

    maxDiff = None
    table_id = f"{PROJECT}.format.rows"

    @classmethod
    def setUpClass(cls):
        world.make_dataset("format")
        world.client.create_table(bigquery.Table(cls.table_id, schema=rows.MADE_BEFORE))
        cls.expected = rows.write(world.work / "rows.ndjson")
        wiretap = Wiretap(world.write)
        server, address = wiretap.serve()
        sql = rows.sql("rows", create="never").replace("dataset = 'types'", "dataset = 'format'")
        sql = sql.replace("endpoint = 'emulator'", "endpoint = 'emulator', 'write.format' = 'proto'")
        try:
            cls.summary = world.run_pipeline("format.sql", sql, grpc_address=address)
        finally:
            server.stop(grace=None).wait()
        cls.calls = wiretap.calls

    def test_every_row_arrives(self):
        self.assertEqual(self.summary["rows_committed"], rows.COUNT)
        world.assert_rows(self, world.by_query(self.table_id), self.expected)
        world.assert_rows(self, world.by_list_rows(self.table_id), self.expected)

    def test_the_first_request_of_a_call_describes_the_rows_and_no_other_does(self):
        self.assertGreater(len(self.calls), 0)
        for call in self.calls:
            described = [request.proto_rows.writer_schema.proto_descriptor.name for request in call]
            self.assertEqual(described, ["Row"] + [""] * (len(call) - 1))

    def test_googles_runtime_reads_what_went_in(self):
        found = []
        for call in self.calls:
            row = appends.message_class(call[0].proto_rows.writer_schema.proto_descriptor)
            for request in call:
                for serialized in request.proto_rows.rows.serialized_rows:
                    message = row.FromString(serialized)
                    self.assertEqual(message.SerializeToString(), serialized, "fields in order, nothing unknown")
                    found.append([_value(field, message) for field in rows.MADE_BEFORE])
        world.assert_rows(self, sorted(found, key=lambda row: row[0]), self.expected)

    def test_fields_are_those_of_the_columns(self):
        descriptor = self.calls[0][0].proto_rows.writer_schema.proto_descriptor
        self.assertEqual([field.name for field in descriptor.field], [field.name for field in rows.MADE_BEFORE])
        modes = {"NULLABLE": 1, "REQUIRED": 2, "REPEATED": 3}
        self.assertEqual(
            [field.label for field in descriptor.field], [modes[field.mode] for field in rows.MADE_BEFORE]
        )


class RarerRows(unittest.TestCase):
    """What no column of a JSON file declares: types that a query makes, numbers that are none, names that no field can have."""

    maxDiff = None
    table_id = f"{PROJECT}.format.rarer"

    @classmethod
    def setUpClass(cls):
        world.make_dataset("format")
        inside = [SchemaField("größe", "INTEGER"), SchemaField("n", "INTEGER", mode="REPEATED")]
        schema = [
            SchemaField("id", "INTEGER", mode="REQUIRED"),
            SchemaField("took", "INTERVAL"),
            SchemaField("geo", "GEOGRAPHY"),
            SchemaField("days", "RANGE", range_element_type="DATE"),
            SchemaField("moments", "RANGE", range_element_type="TIMESTAMP"),
            SchemaField.from_api_repr({"name": "exact", "type": "TIMESTAMP", "timestampPrecision": "12"}),
            SchemaField("ratio", "FLOAT"),
            SchemaField("naïve-col", "INTEGER"),
            SchemaField("with space", "STRING"),
            SchemaField("Ding-1", "RECORD", fields=inside),
            SchemaField("1st", "INTEGER", mode="REPEATED"),
        ]
        world.client.create_table(bigquery.Table(cls.table_id, schema=schema))
        lines = [
            {
                "id": 1,
                "took": "14 months -3 days 1 hour 2 minutes 3.5 seconds",
                "geo": "POINT(1 2)",
                "day": "2024-02-29",
                "at": "2024-02-29T23:59:59.123456789Z",
                "ratio": "NaN",
                "large": 9_223_372_036_854_775_807,
            },
            {"id": 2, "took": "0 days", "at": "1969-12-31T23:59:59.999999999Z", "ratio": "-inf", "large": 0},
            {"id": 3, "ratio": "inf"},
        ]
        (world.work / "rarer.ndjson").write_text("\n".join(json.dumps(line) for line in lines))
        sql = f"""
            CREATE TABLE source (id BIGINT NOT NULL, took TEXT, geo TEXT, day DATE, at TIMESTAMP(9), ratio TEXT, large BIGINT)
            WITH (connector = 'single_file', type = 'source', path = 'rarer.ndjson', format = 'json');

            CREATE TABLE sink
            WITH (connector = 'bigquery', type = 'sink', endpoint = 'emulator', 'write.format' = 'proto', project = '{PROJECT}',
                  dataset = 'format', 'table' = 'rarer');

            INSERT INTO sink
            SELECT id, CAST(took AS INTERVAL) AS took, geo,
                CASE WHEN day IS NULL THEN NULL ELSE named_struct('start', day, 'end', CAST(NULL AS DATE)) END AS days,
                CASE WHEN at IS NULL THEN NULL ELSE named_struct('start', CAST(NULL AS TIMESTAMP), 'end', at) END AS moments,
                at AS exact, CAST(ratio AS DOUBLE) AS ratio, large AS "naïve-col", geo AS "with space",
                CASE WHEN geo IS NULL THEN NULL ELSE named_struct('größe', large, 'n', make_array(id, large)) END AS "Ding-1",
                make_array(id) AS "1st"
            FROM source;"""
        wiretap = Wiretap(world.write)
        server, address = wiretap.serve()
        try:
            world.run_pipeline("rarer.sql", sql, grpc_address=address)
        finally:
            server.stop(grace=None).wait()
        cls.calls = wiretap.calls

    def test_googles_runtime_reads_what_went_in(self):
        found = {}
        for call in self.calls:
            row = appends.message_class(call[0].proto_rows.writer_schema.proto_descriptor)
            for request in call:
                for serialized in request.proto_rows.rows.serialized_rows:
                    message = row.FromString(serialized)
                    self.assertEqual(message.SerializeToString(), serialized, "fields in order, nothing unknown")
                    cells = _by_column(message)
                    # Not equal to itself.
                    cells["ratio"] = repr(cells["ratio"])
                    found[cells["id"]] = cells
        leap_day, second = 19_782, 1_000_000
        nothing = {"took": None, "geo": None, "days": None, "moments": None, "exact": None, "with space": None}
        nothing |= {"naïve-col": None, "Ding-1": None}
        large = 2**63 - 1
        expected = [
            {
                "id": 1,
                "took": "1-2 -3 1:2:3.500000",
                "geo": "POINT(1 2)",
                "days": {"start": leap_day, "end": None},
                "moments": {"start": None, "end": (leap_day + 1) * 86_400 * second - second + 123_456},
                "exact": "2024-02-29T23:59:59.123456789000Z",
                "ratio": "nan",
                "naïve-col": large,
                "with space": "POINT(1 2)",
                "Ding-1": {"größe": large, "n": [1, large]},
                "1st": [1],
            },
            {
                **nothing,
                "id": 2,
                "took": "0-0 0 0:0:0",
                "moments": {"start": None, "end": -1},
                "exact": "1969-12-31T23:59:59.999999999000Z",
                "ratio": "-inf",
                "naïve-col": 0,
                "1st": [2],
            },
            {**nothing, "id": 3, "ratio": "inf", "1st": [3]},
        ]
        self.assertEqual([found[number] for number in sorted(found)], expected)

    def test_a_name_that_no_field_can_have_is_an_annotation(self):
        descriptor = self.calls[0][0].proto_rows.writer_schema.proto_descriptor
        plain, annotated = descriptor.field[:7], descriptor.field[7:]
        names = ["id", "took", "geo", "days", "moments", "exact", "ratio"]
        self.assertEqual([field.name for field in plain], names)
        self.assertEqual([field.options.SerializeToString() for field in plain], [b""] * 7)
        packed = b"\x10\x01"
        self.assertEqual(
            [field.options.SerializeToString() for field in annotated],
            [
                appends.column_name("naïve-col"),
                appends.column_name("with space"),
                appends.column_name("Ding-1"),
                packed + appends.column_name("1st"),
            ],
        )
        for field in annotated:
            self.assertRegex(field.name, r"^[A-Za-z_][A-Za-z0-9_]*$")


def _by_column(message):
    """The values of a message by the names of their columns, as they are on the wire."""
    return {_column(field): _cell(field, message) for field in message.DESCRIPTOR.fields}


def _column(field):
    # Behind what else the options say (a repeated field is packed), the annotation's tag and a length of one byte.
    tag = appends.column_name("")[:-1]
    annotation = field.GetOptions().SerializeToString().partition(tag)[2]
    return annotation[1:].decode() or field.name


def _cell(field, message):
    value = getattr(message, field.name)
    if field.is_repeated:
        return list(value)
    if not message.HasField(field.name):
        return None
    return _by_column(value) if field.message_type else value


def _value(field, message):
    """A column's value as Google's BigQuery client has it."""
    if field.mode == "REPEATED":
        return [_single(field, value) for value in getattr(message, field.name)]
    return _single(field, getattr(message, field.name)) if message.HasField(field.name) else None


def _single(field, value):
    if field.field_type == "RECORD":
        return {inner.name: _value(inner, value) for inner in field.fields}
    return _READERS.get(field.field_type, lambda value: value)(value)


def _decimal(scale):
    return lambda value: decimal.Decimal(int.from_bytes(value, "little", signed=True)).scaleb(-scale, WIDE)


def _time(packed):
    seconds, micros = packed >> 20, packed & 0xFFFFF
    return datetime.time(seconds >> 12, seconds >> 6 & 63, seconds & 63, micros)


def _datetime(packed):
    date = packed >> 37
    day = datetime.date(date >> 9, date >> 5 & 15, date & 31)
    return datetime.datetime.combine(day, _time(packed & (1 << 37) - 1))


# BigQuery's encodings in protobuf (write-api.md 5.1 to 5.3), by the names of types that the client uses.
_READERS = {
    "DATE": lambda days: datetime.date(1970, 1, 1) + datetime.timedelta(days=days),
    "TIME": _time,
    "DATETIME": _datetime,
    "TIMESTAMP": lambda micros: (EPOCH + datetime.timedelta(microseconds=micros)).replace(tzinfo=datetime.timezone.utc),
    "NUMERIC": _decimal(9),
    "BIGNUMERIC": _decimal(38),
    "JSON": json.loads,
}
