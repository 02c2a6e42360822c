"""What the tool sends with write.format = 'proto', read by Google's protobuf runtime on its way to the emulator."""

import datetime
import decimal
import json
import unittest
from concurrent import futures

import grpc
from google.cloud import bigquery
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
