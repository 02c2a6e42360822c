"""Queries as jobs: parameters, dry runs, paging, lists, as Google's client asks for them."""

import datetime
import decimal
import unittest

from google.api_core import exceptions
from google.cloud import bigquery
from google.cloud.bigquery import ArrayQueryParameter, ScalarQueryParameter, StructQueryParameter

import world
from world import PROJECT

UTC = datetime.timezone.utc
VALUES = [
    ("BOOL", True),
    ("INT64", -(2**63)),
    ("FLOAT64", 1.5),
    ("STRING", "it's ? and @x\n東"),
    ("BYTES", b"\x00\xff"),
    ("NUMERIC", decimal.Decimal("-12.000000001")),
    ("BIGNUMERIC", decimal.Decimal("0.00000000000000000001")),
    ("DATE", datetime.date(2024, 2, 29)),
    ("TIME", datetime.time(1, 2, 3, 4)),
    ("DATETIME", datetime.datetime(2024, 2, 29, 1, 2, 3, 4)),
    ("TIMESTAMP", datetime.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)),
]


class Queries(unittest.TestCase):
    def setUp(self):
        self.client = world.client

    def rows(self, sql, *parameters):
        config = bigquery.QueryJobConfig(query_parameters=parameters)
        by_job = [list(row.values()) for row in self.client.query(sql, job_config=config).result()]
        at_once = [list(row.values()) for row in self.client.query_and_wait(sql, job_config=config)]
        self.assertEqual(at_once, by_job)
        return by_job

    def test_parameters_of_every_type_come_back_as_they_went(self):
        for kind, value in VALUES:
            with self.subTest(kind):
                for name, sql in ((None, "SELECT ? AS x"), ("x", "SELECT @x AS x")):
                    (found,) = self.rows(sql, ScalarQueryParameter(name, kind, value))
                    self.assertEqual(world.typed(found[0]), world.typed(value))
                    (found,) = self.rows(sql, ScalarQueryParameter(name, kind, None))
                    self.assertIsNone(found[0])
                (found,) = self.rows("SELECT @x AS x", ArrayQueryParameter("x", kind, [value, value]))
                self.assertEqual(world.typed(found[0]), world.typed([value, value]))
                (found,) = self.rows("SELECT @x AS x", ArrayQueryParameter("x", kind, []))
                self.assertEqual(found[0], [])

    def test_a_struct_can_be_a_parameter(self):
        inner = StructQueryParameter("inner", ScalarQueryParameter("day", "DATE", datetime.date(2024, 2, 29)))
        outer = StructQueryParameter(
            "x",
            ScalarQueryParameter("n", "INT64", 7),
            ArrayQueryParameter("names", "STRING", ["a", "b"]),
            inner,
        )
        (found,) = self.rows("SELECT @x AS x, @x.n + 1 AS more", outer)
        want = {"n": 7, "names": ["a", "b"], "inner": {"day": datetime.date(2024, 2, 29)}}
        self.assertEqual(found, [want, 8])

    def test_parameters_choose_rows(self):
        numbers = "(SELECT x FROM UNNEST([1, 2, 3, 4, 5]) AS x)"
        named = self.rows(
            f"SELECT x FROM {numbers} WHERE x IN UNNEST(@chosen) OR x > @least ORDER BY x LIMIT @most",
            ArrayQueryParameter("chosen", "INT64", [1, 2]),
            ScalarQueryParameter("least", "INT64", 3),
            ScalarQueryParameter("most", "INT64", 3),
        )
        self.assertEqual(named, [[1], [2], [4]])
        positional = self.rows(
            f"SELECT x, ? AS t FROM {numbers} WHERE x BETWEEN ? AND ? ORDER BY x",
            ScalarQueryParameter(None, "STRING", "t"),
            ScalarQueryParameter(None, "INT64", 2),
            ScalarQueryParameter(None, "INT64", 3),
        )
        self.assertEqual(positional, [[2, "t"], [3, "t"]])

    def test_a_dry_run_tells_the_columns_and_changes_nothing(self):
        config = bigquery.QueryJobConfig(dry_run=True)
        job = self.client.query("SELECT 1 AS a, 'x' AS b", job_config=config)
        self.assertEqual((job.state, job.total_bytes_processed), ("DONE", 0))
        self.assertEqual([(field.name, field.field_type) for field in job.schema], [("a", "INTEGER"), ("b", "STRING")])
        world.make_dataset("queries")
        self.client.query(f"CREATE TABLE `{PROJECT}.queries.t` (a INT64)", job_config=config)
        self.assertEqual(list(self.client.list_tables("queries")), [])
        with self.assertRaises(exceptions.BadRequest):
            self.client.query("SELECT nothing", job_config=config)

    def test_results_come_in_pages(self):
        sql = "SELECT x FROM UNNEST(GENERATE_ARRAY(1, 2500)) AS x ORDER BY x"
        pages = list(self.client.query(sql).result(page_size=1000).pages)
        self.assertEqual([page.num_items for page in pages], [1000, 1000, 500])
        rows = self.client.query_and_wait(sql, page_size=999)
        self.assertEqual([row["x"] for row in rows], list(range(1, 2501)))

    def test_jobs_are_listed_found_cancelled_and_deleted(self):
        config = bigquery.QueryJobConfig(labels={"test": "queries"})
        job = self.client.query("SELECT 1", job_config=config, job_id_prefix="listed-")
        job.result()
        newest = next(iter(self.client.list_jobs(max_results=1)))
        self.assertEqual((newest.job_id, newest.labels), (job.job_id, {"test": "queries"}))
        self.assertNotIn(job.job_id, [other.job_id for other in self.client.list_jobs(state_filter="running")])
        self.assertTrue(self.client.get_job(job.job_id).cancel())
        self.client.delete_job_metadata(job.job_id)
        self.assertRaises(exceptions.NotFound, self.client.get_job, job.job_id)

    def test_legacy_sql_is_refused(self):
        config = bigquery.QueryJobConfig(use_legacy_sql=True)
        with self.assertRaisesRegex(exceptions.GoogleAPICallError, "GoogleSQL only"):
            self.client.query("SELECT 1", job_config=config, job_retry=None)
