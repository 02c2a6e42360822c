"""Datasets, tables, schemas and refusals, as Google's client sees them."""

import functools
import unittest

from google.api_core import exceptions
from google.cloud import bigquery
from google.cloud.bigquery import SchemaField

import world
from world import PROJECT

SCALARS = [
    "BOOLEAN",
    "INTEGER",
    "FLOAT",
    "NUMERIC",
    "BIGNUMERIC",
    "STRING",
    "BYTES",
    "DATE",
    "TIME",
    "DATETIME",
    "TIMESTAMP",
    "JSON",
    "GEOGRAPHY",
]


def every_type():
    """Each scalar type in each mode, and structs in each mode."""
    fields = [
        SchemaField(f"{kind}_{mode}".lower(), kind, mode=mode)
        for kind in SCALARS
        for mode in ("NULLABLE", "REQUIRED", "REPEATED")
    ]
    inner = (
        SchemaField("x", "INTEGER", mode="REQUIRED"),
        SchemaField("list", "STRING", mode="REPEATED"),
        SchemaField("deeper", "RECORD", fields=[SchemaField("y", "DATE", description="innermost")]),
    )
    for mode in ("NULLABLE", "REQUIRED", "REPEATED"):
        fields.append(SchemaField(f"struct_{mode}".lower(), "RECORD", mode=mode, fields=inner))
    return fields + [
        SchemaField("money", "NUMERIC", precision=10, scale=2),
        SchemaField("large", "BIGNUMERIC", precision=50, scale=20),
        SchemaField("code", "STRING", max_length=3, description="three letters"),
        SchemaField("key", "BYTES", mode="REQUIRED", max_length=16),
        SchemaField("counted", "INTEGER", default_value_expression="7"),
    ]


class Administration(unittest.TestCase):
    def setUp(self):
        self.client = world.client
        self.dataset = world.make_dataset("administration")
        self.table_id = f"{PROJECT}.administration.t"

    def table(self, *fields):
        return bigquery.Table(self.table_id, schema=list(fields) or [SchemaField("id", "INT64")])

    def test_a_dataset_is_made_found_listed_and_deleted(self):
        dataset = bigquery.Dataset(f"{PROJECT}.scratch")
        dataset.location, dataset.labels, dataset.description = "EU", {"a": "b"}, "for a test"
        self.client.create_dataset(dataset)
        found = self.client.get_dataset("scratch")
        self.assertEqual(
            (found.full_dataset_id, found.location, found.labels, found.description),
            (f"{PROJECT}:scratch", "EU", {"a": "b"}, "for a test"),
        )
        listed = [item.dataset_id for item in self.client.list_datasets()]
        self.assertLessEqual({"administration", "geology", "scratch"}, set(listed))
        self.assertEqual(self.client.create_dataset("scratch", exists_ok=True).etag, found.etag)
        self.client.delete_dataset("scratch")
        self.assertNotIn("scratch", [item.dataset_id for item in self.client.list_datasets()])

    def test_a_table_of_every_type_and_mode_reads_its_schema_back(self):
        fields = every_type()
        table = self.table(*fields)
        table.description, table.labels = "every type", {"made": "here"}
        made = self.client.create_table(table)
        for found in (made, self.client.get_table(self.table_id)):
            self.assertEqual(found.schema, fields)
            self.assertEqual(
                (found.description, found.labels, found.num_rows, found.table_type, found.location),
                ("every type", {"made": "here"}, 0, "TABLE", "US"),
            )
        listed = [(item.table_id, item.table_type) for item in self.client.list_tables("administration")]
        self.assertEqual(listed, [("t", "TABLE")])

    def test_both_spellings_of_a_type_are_one_type(self):
        standard = [("b", "BOOL"), ("i", "INT64"), ("f", "FLOAT64"), ("s", "STRUCT")]
        legacy = [("b", "BOOLEAN"), ("i", "INTEGER"), ("f", "FLOAT"), ("s", "RECORD")]
        inner = [SchemaField("x", "INT64")]
        fields = [SchemaField(name, kind, fields=inner if name == "s" else ()) for name, kind in standard]
        self.client.create_table(self.table(*fields))
        found = self.client.get_table(self.table_id).schema
        self.assertEqual([(field.name, field.field_type) for field in found], legacy)
        self.assertEqual(found[3].fields[0].field_type, "INTEGER")

    def test_an_empty_table_reads_as_no_rows(self):
        self.client.create_table(self.table())
        self.assertEqual(list(self.client.list_rows(self.table_id)), [])
        rows = self.client.query_and_wait(f"SELECT * FROM `{self.table_id}`")
        self.assertEqual(
            (rows.total_rows, list(rows), [field.name for field in rows.schema]), (0, [], ["id"])
        )
        (count,) = self.client.query_and_wait(f"SELECT COUNT(*) AS n FROM `{self.table_id}`")
        self.assertEqual(dict(count), {"n": 0})

    def test_a_query_job_is_found_again_with_its_result(self):
        job = self.client.query("SELECT 1 AS a UNION ALL SELECT 2 ORDER BY a", job_id_prefix="interop-")
        self.assertEqual([row["a"] for row in job.result()], [1, 2])
        again = self.client.get_job(job.job_id)
        self.assertEqual((again.state, again.job_type, again.errors), ("DONE", "query", None))
        self.assertEqual([row["a"] for row in again.result()], [1, 2])

    def test_what_is_missing_raises_not_found(self):
        missing = f"{PROJECT}.administration.missing"
        calls = {
            "Not found: Dataset demo:nowhere": lambda: self.client.get_dataset("nowhere"),
            "Not found: Table demo:administration.missing": lambda: self.client.get_table(missing),
        }
        for message, call in calls.items():
            self.assert_refused(exceptions.NotFound, 404, "notFound", message, call)
        nowhere = bigquery.Table(f"{PROJECT}.nowhere.t", schema=[SchemaField("id", "INT64")])
        for call in (
            lambda: self.client.create_table(nowhere),
            lambda: list(self.client.list_tables("nowhere")),
            lambda: self.client.delete_dataset("nowhere"),
            lambda: self.client.delete_table(missing),
            lambda: list(self.client.list_rows(missing, selected_fields=[SchemaField("id", "INT64")])),
            lambda: self.client.query(f"SELECT * FROM `{missing}`").result(),
            lambda: self.client.query_and_wait(f"SELECT * FROM `{missing}`"),
            lambda: self.client.get_job("nothing"),
        ):
            self.assert_refused(exceptions.NotFound, 404, "notFound", "Not found: ", call)
        self.client.delete_table(missing, not_found_ok=True)
        self.client.delete_dataset("nowhere", not_found_ok=True)

    def test_what_exists_raises_conflict(self):
        self.client.create_table(self.table())

        def run_once():
            return self.client.query("SELECT 1", job_id="once", job_retry=None)

        run_once().result()
        calls = {
            "Already Exists: Dataset demo:administration": lambda: self.client.create_dataset(
                "administration"
            ),
            "Already Exists: Table demo:administration.t": lambda: self.client.create_table(self.table()),
            "Already Exists: Job demo:US.once": run_once,
        }
        for message, call in calls.items():
            self.assert_refused(exceptions.Conflict, 409, "duplicate", message, call)
        self.assertEqual(self.client.create_table(self.table(), exists_ok=True).table_id, "t")

    def test_a_wrong_query_raises_bad_request(self):
        self.client.create_table(self.table())
        default = bigquery.QueryJobConfig(default_dataset=f"{PROJECT}.administration")
        for sql in (
            "SELEKT 1",
            "SELECT nothing FROM t",
            "SELECT no_such_function(id) FROM t",
            "SELECT id FROM t WHERE",
        ):
            for call in (
                lambda: self.client.query(sql, job_config=default).result(),
                lambda: self.client.query_and_wait(sql, job_config=default),
            ):
                with self.subTest(sql):
                    self.assert_refused(exceptions.BadRequest, 400, "invalidQuery", "", call)

    def test_a_wrong_schema_raises_bad_request(self):
        wrong = {
            "twice": [SchemaField("a", "INT64"), SchemaField("A", "STRING")],
            "reserved prefix": [SchemaField("_TABLE_SUFFIX", "INT64")],
            "no such type": [SchemaField("a", "NUMBER")],
            "struct without fields": [SchemaField("a", "RECORD")],
            "too many digits": [SchemaField("a", "NUMERIC", precision=40, scale=2)],
        }
        for name, fields in wrong.items():
            with self.subTest(name):
                table = self.table(*fields)
                call = functools.partial(self.client.create_table, table)
                self.assert_refused(exceptions.BadRequest, 400, "invalid", "", call)
        self.assertEqual(list(self.client.list_tables("administration")), [])

    def test_a_dataset_with_tables_is_deleted_only_with_its_contents(self):
        self.client.create_table(self.table())
        call = functools.partial(self.client.delete_dataset, "administration")
        message = "Dataset demo:administration is still in use"
        self.assert_refused(exceptions.BadRequest, 400, "resourceInUse", message, call)
        self.client.delete_dataset("administration", delete_contents=True)
        self.assert_refused(
            exceptions.NotFound, 404, "notFound", "", lambda: self.client.get_table(self.table_id)
        )

    def assert_refused(self, error, code, reason, message, call):
        with self.assertRaises(error) as caught:
            call()
        self.assertIs(type(caught.exception), error)
        self.assertEqual((caught.exception.code, caught.exception.errors[0]["reason"]), (code, reason))
        self.assertIn(message, caught.exception.message)
