"""The conversation of `scenario/golden.json`, held by Google's Python client with Arrow and with protobuf rows."""

import json
import pathlib
import unittest

import pyarrow
from google.api_core import exceptions
from google.cloud import bigquery
from google.cloud.bigquery import SchemaField
from google.cloud.bigquery_storage_v1 import types

import appends
import world
from world import PROJECT

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "scenario" / "golden.json").read_text())

ARROW = appends.Arrow(pyarrow.schema([("id", pyarrow.int64()), ("name", pyarrow.string())]))
PROTOBUF = appends.Protobuf(
    appends.message("Row", appends.field("id", 1, "INT64"), appends.field("name", 2, "STRING"))
)


class Scenario(unittest.TestCase):
    def setUp(self):
        world.client.create_dataset(f"{PROJECT}.interop", exists_ok=True)

    def test_python_with_arrow_sees_the_golden_transcript(self):
        self.hold("python-arrow", ARROW)

    def test_python_with_protobuf_sees_the_golden_transcript(self):
        self.hold("python-protobuf", PROTOBUF)

    def hold(self, client, rows):
        not_seen = [rule["field"] for rule in GOLDEN["not_seen"] if rule["client"] == client]
        conversation = Conversation(client.replace("-", "_"), rows)
        self.addCleanup(conversation.close)
        transcript = []
        try:
            for number, step in enumerate(GOLDEN["steps"]):
                expected = {name: value for name, value in step["see"].items() if name not in not_seen}
                seen = conversation.take(step["do"])
                transcript.append({"do": step["do"], "see": seen})
                self.assertEqual(seen, expected, f"step {number}, {step['do']} ({step['fact']})")
        finally:
            (world.transcripts / f"{client}.json").write_text(json.dumps(transcript, indent=1) + "\n")


class Conversation:
    """Carries out steps, and says what there was to see."""

    def __init__(self, table, rows):
        self.table_id = f"{PROJECT}.interop.{table}"
        self.table = f"projects/{PROJECT}/datasets/interop/tables/{table}"
        self.rows = rows
        self.stream = None
        self.writer = None
        fields = [SchemaField(column["name"], column["type"], mode=column["mode"]) for column in GOLDEN["table"]]
        world.client.create_table(bigquery.Table(self.table_id, schema=fields))

    def take(self, step):
        try:
            if "create" in step:
                return self.create(step["create"])
            if "attach" in step:
                return self.attach()
            if "flush" in step:
                return self.flush(step["flush"])
            if "finalize" in step:
                return self.finalize()
        except exceptions.GoogleAPICallError as error:
            return appends.refused(error)
        if "append" in step:
            seen = self.append(step["append"], step["offset"])
            if step.get("cut") == "line":
                del seen["code"]
            return seen
        assert step == {"read": "rows"}, step
        return self.read()

    def create(self, kind):
        asked = types.WriteStream(type_=types.WriteStream.Type[kind])
        self.stream = world.write_client.create_write_stream(parent=self.table, write_stream=asked).name
        self.writer = appends.Writer(self.stream, self.rows)
        return {"code": "OK"}

    def attach(self):
        return {"code": "OK", "type": world.write_client.get_write_stream(name=self.stream).type_.name}

    def append(self, rows, offset):
        try:
            answer = self.writer.append(rows, offset)
            seen = {"code": "OK", "offset": answer.append_result.offset}
        except exceptions.GoogleAPICallError as error:
            seen = appends.refused(error)
        return seen | {"connection": self.writer.opened}

    def flush(self, offset):
        request = types.FlushRowsRequest(write_stream=self.stream, offset=offset)
        return {"code": "OK", "offset": world.write_client.flush_rows(request).offset}

    def finalize(self):
        return {"code": "OK", "row_count": world.write_client.finalize_write_stream(name=self.stream).row_count}

    def read(self):
        queried, listed = world.by_query(self.table_id), world.by_list_rows(self.table_id)
        assert queried == listed, (queried, listed)
        return {"rows": queried}

    def close(self):
        if self.writer:
            self.writer.close()
