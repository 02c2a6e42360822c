"""Google's writer of appends with rows of either format, and what a client sees of an answer."""

import queue
import re

import pyarrow
from google.api_core import exceptions
from google.cloud.bigquery_storage_v1 import types
from google.cloud.bigquery_storage_v1.writer import AppendRowsStream
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_status import rpc_status

import world

# Longest wait for an answer, in seconds.
LIMIT = 60

# Node's client reads a StorageError here (write-api.md 3.1).
_TRAILER = "google.cloud.bigquery.storage.v1.storageerror-bin"

# What clients parse of a text (write-api.md 3.3), and the words by which a finalized stream is known.
_PARSED = re.compile(r"expected offset -?\d+, received -?\d+|Stream has been finalized")


class Arrow:
    """Rows as lists in the order of a pyarrow schema."""

    def __init__(self, schema):
        self.schema = schema

    def describe(self, request):
        """Puts the writer's schema into a request."""
        request.arrow_rows.writer_schema.serialized_schema = self.schema.serialize().to_pybytes()

    def fill(self, request, rows):
        """Puts rows into a request."""
        columns = zip(*rows) if rows else [[] for _ in self.schema]
        arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, self.schema)]
        batch = pyarrow.record_batch(arrays, schema=self.schema)
        request.arrow_rows.rows.serialized_record_batch = batch.serialize().to_pybytes()


class Protobuf:
    """Rows as lists in the order of a descriptor's fields, None for what is not set; bytes are taken as they are."""

    def __init__(self, descriptor):
        self.descriptor = descriptor
        self.message = message_class(descriptor)

    def describe(self, request):
        """Puts the writer's schema into a request."""
        target = request.proto_rows.writer_schema.proto_descriptor
        target.ParseFromString(self.descriptor.SerializeToString())

    def fill(self, request, rows):
        """Puts rows into a request."""
        request.proto_rows.rows.serialized_rows = [self._encode(row) for row in rows]

    def _encode(self, row):
        if isinstance(row, bytes):
            return row
        names = [field.name for field in self.descriptor.field]
        values = {name: value for name, value in zip(names, row) if value is not None}
        return self.message(**values).SerializePartialToString()


def message_class(descriptor):
    """A class for a self-contained descriptor, made at run time."""
    file = descriptor_pb2.FileDescriptorProto(name="row.proto", syntax="proto2", message_type=[descriptor])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(descriptor.name))


def column_name(name):
    """The options of a field whose column has a name that no field can have: extension 454943157 of FieldOptions, a string."""
    text = name.encode()
    return _varint(454943157 << 3 | 2) + _varint(len(text)) + text


def _varint(number):
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(made + bytes([number]))


def field(name, number, kind, label="OPTIONAL", **more):
    """A field of a descriptor; `kind` and `label` without their prefixes."""
    made = descriptor_pb2.FieldDescriptorProto(name=name, number=number, **more)
    made.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind}")
    made.label = descriptor_pb2.FieldDescriptorProto.Label.Value(f"LABEL_{label}")
    return made


def message(name, *fields, **more):
    """A descriptor."""
    return descriptor_pb2.DescriptorProto(name=name, field=fields, **more)


class Writer:
    """Appends to one stream. As Google's writer does, it opens a new connection when the last one has ended."""

    def __init__(self, stream, rows):
        self.stream = stream
        self.opened = 0
        self._rows = rows
        template = types.AppendRowsRequest(write_stream=stream)
        rows.describe(template)
        self._manager = AppendRowsStream(self, template)

    def append_rows(self, *arguments, **more):
        """Called by Google's writer for every connection, which is so counted."""
        self.opened += 1
        return world.write_client.append_rows(*arguments, **more)

    def send(self, rows, offset=None, **more):
        """Returns a future of the answer."""
        request = types.AppendRowsRequest(write_stream=self.stream, offset=offset, **more)
        self._rows.fill(request, rows)
        return self._manager.send(request)

    def append(self, rows, offset=None, **more):
        """Waits for the answer; a refusal is raised."""
        return self.send(rows, offset, **more).result(LIMIT)

    def close(self):
        """Ends the connection, if there is one."""
        if self._manager.is_active:
            self._manager.close()


class Call:
    """One AppendRows call as it is, without Google's writer, which may lose the reason why a call did not open or has ended."""

    def __init__(self, stream, first):
        """Opens it with a request."""
        self._requests = queue.SimpleQueue()
        self._requests.put(first)
        # Returns with the first answer.
        self._answers = _open(stream, iter(self._requests.get, None))

    def send(self, request):
        """One more request."""
        self._requests.put(request)

    def answer(self):
        """Waits for the next answer; what ends the call is raised."""
        return next(self._answers)

    def close(self):
        """No more requests; what ends the call is of no interest."""
        self._requests.put(None)
        self._answers.cancel()


def call(stream, *requests):
    """All answers of one call with these requests; a refusal that ends it is raised."""
    return list(_open(stream, iter(requests)))


def _open(stream, requests):
    header = ("x-goog-request-params", f"write_stream={stream}")
    return world.write_client.append_rows(requests, metadata=(header,), timeout=LIMIT)


def request(stream, rows, values, offset=None, **more):
    """A first request, complete with the schema of `rows`."""
    made = types.AppendRowsRequest(write_stream=stream, offset=offset, **more)
    rows.describe(made)
    rows.fill(made, values)
    return made


def refused(error):
    """What a client sees of a refusal: its code, the StorageError's, and the part of the text that clients parse."""
    if not isinstance(error, exceptions.GoogleAPICallError):
        raise error
    seen = {"code": error.grpc_status_code.name}
    code = storage_error(error)
    if code is not None:
        seen["storage_error"] = code
    parsed = _PARSED.search(error.message)
    if parsed:
        seen["text"] = parsed.group()
    return seen


def storage_error(error):
    """The code of the StorageError that came with a refusal, by name: in the answer if there is one, else in the details of the
    call's status, which must agree with the trailer of its own."""
    answer = getattr(error, "response", None)
    if isinstance(answer, types.AppendRowsResponse):
        return _in_details(answer.error)
    if not error.errors:
        return None
    ended = error.errors[0]
    status = rpc_status.from_call(ended)
    code = _in_details(status) if status else None
    trailers = [value for key, value in ended.trailing_metadata() or () if key == _TRAILER]
    assert [_name(types.StorageError.deserialize(value).code) for value in trailers] == ([code] if code else [])
    return code


def _in_details(status):
    for detail in status.details:
        found = types.StorageError.pb(types.StorageError())
        if detail.Unpack(found):
            return _name(found.code)
    return None


def _name(code):
    return types.StorageError.StorageErrorCode(code).name
