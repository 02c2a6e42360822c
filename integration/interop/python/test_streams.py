"""What Google's own integration tests assert about streams, asked in our words and with rows of either format: write-api.md marks
it [PROD]. Facts that depend on the format stand in test_arrow and test_protobuf."""

import unittest

import pyarrow
from google.api_core import exceptions
from google.cloud import bigquery
from google.cloud.bigquery import SchemaField
from google.cloud.bigquery_storage_v1 import types

import appends
import world
from world import PROJECT

TABLE_ID = f"{PROJECT}.streams.t"
TABLE = f"projects/{PROJECT}/datasets/streams/tables/t"
DEFAULT = f"{TABLE}/streams/_default"
FIELDS = [SchemaField("id", "INTEGER", mode="REQUIRED"), SchemaField("name", "STRING", max_length=10), SchemaField("raw", "BYTES")]

ARROW = appends.Arrow(
    pyarrow.schema([("id", pyarrow.int64()), ("name", pyarrow.string()), ("raw", pyarrow.binary())])
)
PROTOBUF = appends.Protobuf(
    appends.message(
        "Row",
        appends.field("id", 1, "INT64"),
        appends.field("name", 2, "STRING"),
        appends.field("raw", 3, "BYTES"),
    )
)

COMMITTED = types.WriteStream.Type.COMMITTED
BUFFERED = types.WriteStream.Type.BUFFERED
PENDING = types.WriteStream.Type.PENDING


def row(id):
    return [id, f"row {id}", None]


def rows(*ids):
    return [row(id) for id in ids]


class Streams:
    """The tests; a class below for each format."""

    format = None

    def setUp(self):
        world.make_dataset("streams")
        world.client.create_table(bigquery.Table(TABLE_ID, schema=FIELDS))

    def create(self, kind):
        return world.write_client.create_write_stream(parent=TABLE, write_stream=types.WriteStream(type_=kind)).name

    def open(self, stream, rows=None):
        writer = appends.Writer(stream, rows or self.format)
        self.addCleanup(writer.close)
        return writer

    def flush(self, stream, offset):
        return world.write_client.flush_rows(types.FlushRowsRequest(write_stream=stream, offset=offset)).offset

    def commit(self, *streams):
        request = types.BatchCommitWriteStreamsRequest(parent=TABLE, write_streams=streams)
        return world.write_client.batch_commit_write_streams(request)

    def assert_visible(self, *ids):
        self.assertEqual(world.by_query(TABLE_ID), rows(*ids))
        self.assertEqual(world.by_list_rows(TABLE_ID), rows(*ids))

    def assert_refused(self, code, storage_error, act, *arguments):
        """Returns the refusal."""
        with self.assertRaises(exceptions.GoogleAPICallError) as caught:
            act(*arguments)
        found = caught.exception.grpc_status_code.name, appends.storage_error(caught.exception)
        self.assertEqual(found, (code, storage_error), caught.exception.message)
        return caught.exception

    # Offsets.

    def test_the_texts_of_offset_errors(self):
        """write-api.md 3.3 [PROD JIT]: word for word what Google's Java client takes apart."""
        stream = self.create(COMMITTED)
        writer = self.open(stream)
        error = self.assert_refused("OUT_OF_RANGE", "OFFSET_OUT_OF_RANGE", writer.append, rows(10), 10)
        text = "The offset is beyond stream, expected offset 0, received 10"
        self.assertEqual(error.message, f"{text} Entity: {stream}")
        writer.append(rows(0), 0)
        error = self.assert_refused("ALREADY_EXISTS", "OFFSET_ALREADY_EXISTS", writer.append, rows(0), 0)
        self.assertEqual(error.message, "The offset is within stream, expected offset 1, received 0")
        self.assertEqual(writer.opened, 1)

    def test_after_a_refused_offset_an_append_without_one_goes_to_the_end(self):
        """write-api.md 2.1 [PROD JIT]."""
        writer = self.open(self.create(COMMITTED))
        self.assertEqual(writer.append(rows(0)).append_result.offset, 0)
        self.assert_refused("OUT_OF_RANGE", "OFFSET_OUT_OF_RANGE", writer.append, rows(1), 100)
        self.assertEqual(writer.append(rows(1)).append_result.offset, 1)
        self.assertEqual(writer.opened, 1)
        self.assert_visible(0, 1)

    def test_appends_without_offsets_answer_the_offset_of_their_first_row(self):
        """write-api.md 1.2 [PROD JIT]: after one row and two rows the third append is at 3."""
        writer = self.open(self.create(BUFFERED))
        answers = [writer.send(rows(*ids)) for ids in ([0], [1, 2], [3, 4, 5])]
        self.assertEqual([answer.result(appends.LIMIT).append_result.offset for answer in answers], [0, 1, 3])

    def test_another_writer_goes_on_with_a_stream(self):
        """write-api.md 2.7 [PROD JIT]."""
        stream = self.create(COMMITTED)
        first = self.open(stream)
        first.append(rows(0), 0)
        first.close()
        self.assertEqual(self.open(stream).append(rows(1, 2), 1).append_result.offset, 1)
        self.assert_visible(0, 1, 2)

    # The default stream.

    def test_the_default_stream_answers_no_offset_under_either_name(self):
        """write-api.md 1.2, 1.3 [PROD JIT, PY]."""
        for id, stream in enumerate((DEFAULT, f"{TABLE}/_default")):
            answer = self.open(stream).append(rows(id))
            self.assertTrue("append_result" in answer)
            self.assertFalse("offset" in answer.append_result)
        self.assert_visible(0, 1)

    def test_the_default_stream_refuses_what_it_does_not_have(self):
        """write-api.md 1.2, 2, 2.3 [DOC]: offsets, flushes and an end."""
        writer = self.open(DEFAULT)
        writer.append(rows(0))
        with self.assertRaises(exceptions.InvalidArgument):
            writer.append(rows(1), 1)
        self.assertRaises(exceptions.InvalidArgument, self.flush, DEFAULT, 0)
        self.assertRaises(
            exceptions.InvalidArgument, lambda: world.write_client.finalize_write_stream(name=DEFAULT)
        )
        self.assert_visible(0)

    # Views.

    def test_what_views_of_a_stream_show(self):
        """write-api.md 1.2 [PROD GIT]: the schema in the full view alone, the location in both; no times of the default stream, and
        no time of commit before the commit."""
        full, basic = types.WriteStreamView.FULL, types.WriteStreamView.BASIC

        def shown(name, view):
            found = world.write_client.get_write_stream(types.GetWriteStreamRequest(name=name, view=view))
            names = [field.name for field in found.table_schema.fields]
            return found.type_, found.location, names, "create_time" in found, "commit_time" in found

        names = [field.name for field in FIELDS]
        self.assertEqual(shown(DEFAULT, basic), (COMMITTED, "US", [], False, False))
        self.assertEqual(shown(DEFAULT, full), (COMMITTED, "US", names, False, False))
        pending = self.create(PENDING)
        self.assertEqual(shown(pending, basic), (PENDING, "US", [], True, False))
        self.assertEqual(shown(pending, full), (PENDING, "US", names, True, False))
        self.assertEqual(shown(pending, types.WriteStreamView.WRITE_STREAM_VIEW_UNSPECIFIED), shown(pending, basic))
        world.write_client.finalize_write_stream(name=pending)
        self.commit(pending)
        self.assertEqual(shown(pending, basic), (PENDING, "US", [], True, True))

    # Flushes, finalizing, commits.

    def test_a_flush_beyond_the_end_shows_nothing(self):
        """write-api.md 2.2 [PROD beam #30177]."""
        stream = self.create(BUFFERED)
        self.open(stream).append(rows(0, 1), 0)
        with self.assertRaises(exceptions.OutOfRange) as caught:
            self.flush(stream, 2)
        self.assertEqual(caught.exception.message, f"Offset 2 is beyond the end of the stream Entity: {stream}")
        self.assert_visible()

    def test_the_tail_of_a_finalized_stream_is_never_shown(self):
        """write-api.md 2.2 [PROD flink #235], 2.3 [CLIENT BEAM-F]."""
        stream = self.create(BUFFERED)
        self.open(stream).append(rows(0, 1, 2), 0)
        self.assertEqual(self.flush(stream, 0), 0)
        world.write_client.finalize_write_stream(name=stream)
        for offset in (2, 1, 0):
            with self.assertRaisesRegex(exceptions.InvalidArgument, "Stream has been finalized and cannot be appended"):
                self.flush(stream, offset)
        self.assert_visible(0)

    def test_finalizing_counts_rows_and_commits_nothing(self):
        """write-api.md 2.3 [PROD JIT, GIT], 2.4 [DOC]."""
        stream = self.create(PENDING)
        writer = self.open(stream)
        writer.append(rows(0, 1), 0)
        writer.append(rows(2), 2)
        self.assertEqual(world.write_client.finalize_write_stream(name=stream).row_count, 3)
        self.assert_visible()
        self.assert_refused("INVALID_ARGUMENT", "STREAM_FINALIZED", writer.append, rows(3), 3)
        committed = self.commit(stream)
        self.assertTrue("commit_time" in committed)
        self.assertEqual(list(committed.stream_errors), [])
        self.assert_visible(0, 1, 2)

    def test_a_commit_is_of_all_streams_or_none(self):
        """write-api.md 2.4 [DOC P]: an OK answer without a time, which names the streams that kept it from happening."""
        codes = types.StorageError.StorageErrorCode
        good, open_, other = self.create(PENDING), self.create(PENDING), self.create(COMMITTED)
        for id, stream in enumerate((good, open_)):
            self.open(stream).append(rows(id), 0)
        for stream in (good, other):
            world.write_client.finalize_write_stream(name=stream)

        def errors(*streams):
            answer = self.commit(*streams)
            self.assertEqual("commit_time" in answer, not answer.stream_errors)
            return [(error.code, error.entity) for error in answer.stream_errors]

        self.assertEqual(errors(good, open_), [(codes.INVALID_STREAM_STATE, open_)])
        self.assertEqual(errors(good, other), [(codes.INVALID_STREAM_TYPE, other)])
        self.assertEqual(errors(good, f"{TABLE}/streams/none"), [(codes.STREAM_NOT_FOUND, f"{TABLE}/streams/none")])
        self.assert_visible()
        world.write_client.finalize_write_stream(name=open_)
        self.assertEqual(errors(good, open_), [])
        self.assert_visible(0, 1)
        again = [(codes.STREAM_ALREADY_COMMITTED, good), (codes.STREAM_ALREADY_COMMITTED, open_)]
        self.assertEqual(errors(good, open_), again)
        self.assert_visible(0, 1)

    def test_the_text_of_a_commit_of_another_type(self):
        """write-api.md 2.4 [PROD nodejs #413]."""
        stream = self.create(COMMITTED)
        world.write_client.finalize_write_stream(name=stream)
        [error] = self.commit(stream).stream_errors
        self.assertIn("Stream must be created in pending mode, actual: WRITE_OPTIMIZED", error.error_message)

    # Requests.

    def test_a_call_without_a_request_is_refused(self):
        """write-api.md 2.1 [PROD nodejs #348]."""
        with self.assertRaisesRegex(exceptions.InvalidArgument, "^400 Cannot route on empty project id ''$"):
            appends.call(DEFAULT)

    def test_a_row_of_fifteen_mebibytes(self):
        """write-api.md 4 [PROD JIT]."""
        large = bytes(15 << 20)
        self.open(DEFAULT).append([[0, "large", large]])
        [found] = world.client.query(f"SELECT raw FROM `{TABLE_ID}`").result()
        self.assertEqual(found.raw, large)

    def test_a_request_that_is_too_large_ends_the_call(self):
        """write-api.md 3.1 [PROD GIT], 4 [PROD JIT]: the next append opens another."""
        writer = self.open(DEFAULT)
        writer.append(rows(0))
        text = r"^400 AppendRows request too large: \d+ limit 20971520$"
        with self.assertRaisesRegex(exceptions.InvalidArgument, text):
            writer.append([[1, "large", bytes(20 << 20)]])
        writer.append(rows(2))
        self.assertEqual(writer.opened, 2)
        self.assert_visible(0, 2)

    def test_forty_thousand_rows_in_a_request(self):
        """write-api.md 4 [PROD JIT]."""
        count = 40_000
        writer = self.open(self.create(COMMITTED))
        self.assertEqual(writer.append(rows(*range(count)), 0).append_result.offset, 0)
        self.assertEqual(writer.append(rows(count), count).append_result.offset, count)
        self.assertEqual(world.by_query(TABLE_ID), rows(*range(count + 1)))

    # Rows.

    def test_a_bad_row_refuses_its_request_and_is_named(self):
        """write-api.md 3.5 [PROD JIT]: nothing is taken in, the offset stays, the connection carries on."""
        writer = self.open(self.create(COMMITTED))
        batch = [row(0), [1, "twelve chars", None], row(2), [3, "thirteen char", None]]
        error = self.assert_refused("INVALID_ARGUMENT", None, writer.append, batch, 0)
        self.assertRegex(error.message, r"^Errors found while processing rows\..*row_errors.*")
        fields_error = types.RowError.RowErrorCode.FIELDS_ERROR
        text = "Field name: STRING(10) has maximum length 10 but got a value with length {} on field name."
        found = [(bad.index, bad.code, bad.message) for bad in error.response.row_errors]
        self.assertEqual(found, [(1, fields_error, text.format(12)), (3, fields_error, text.format(13))])
        self.assertEqual(writer.append([batch[0], batch[2]], 0).append_result.offset, 0)
        self.assertEqual(writer.opened, 1)
        self.assert_visible(0, 2)


class ArrowStreams(Streams, unittest.TestCase):
    format = ARROW


class ProtobufStreams(Streams, unittest.TestCase):
    format = PROTOBUF
