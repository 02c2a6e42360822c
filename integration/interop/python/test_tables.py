"""Changes of tables and datasets, and statements that define them, as Google's client makes and sees them."""

import datetime
import unittest

from google.api_core import exceptions
from google.cloud import bigquery
from google.cloud.bigquery import SchemaField

import world
from world import PROJECT

TABLE_ID = f"{PROJECT}.tables.t"


class Tables(unittest.TestCase):
    def setUp(self):
        self.client = world.client
        self.dataset = world.make_dataset("tables")

    def create(self, *fields):
        return self.client.create_table(bigquery.Table(TABLE_ID, schema=list(fields)))

    def execute(self, sql):
        """Runs a statement to its end and returns its job."""
        config = bigquery.QueryJobConfig(default_dataset=f"{PROJECT}.tables")
        job = self.client.query(sql, job_config=config)
        job.result()
        return job

    def rows(self, sql):
        config = bigquery.QueryJobConfig(default_dataset=f"{PROJECT}.tables")
        return [list(row.values()) for row in self.client.query(sql, job_config=config).result()]

    def test_columns_are_added_and_relaxed_and_rows_have_null_in_them(self):
        table = self.create(SchemaField("id", "INTEGER", mode="REQUIRED"))
        self.execute("INSERT INTO t (id) VALUES (1), (2)")
        table = self.client.get_table(table)
        inner = [SchemaField("x", "STRING"), SchemaField("y", "DATE", mode="REPEATED")]
        table.schema = [
            SchemaField("id", "INTEGER", description="no longer required"),
            SchemaField("s", "RECORD", fields=inner),
            SchemaField("list", "NUMERIC", mode="REPEATED"),
        ]
        changed = self.client.update_table(table, ["schema"])
        self.assertEqual(changed.schema, table.schema)
        self.assertEqual(self.client.get_table(table).schema, table.schema)
        self.assertEqual(world.by_list_rows(TABLE_ID), [[1, None, []], [2, None, []]])
        self.assertEqual(world.by_query(TABLE_ID), [[1, None, []], [2, None, []]])

    def test_a_schema_that_does_not_fit_raises_bad_request(self):
        self.create(SchemaField("a", "STRING"), SchemaField("b", "INTEGER"))
        for fields, reason in {
            (SchemaField("a", "STRING"),): "Field b is missing in new schema",
            (
                SchemaField("a", "INTEGER"),
                SchemaField("b", "INTEGER"),
            ): "Field a has changed type from STRING to INTEGER",
            (
                SchemaField("a", "STRING", mode="REQUIRED"),
                SchemaField("b", "INTEGER"),
            ): "Field a has changed mode from NULLABLE to REQUIRED",
            (
                SchemaField("a", "STRING"),
                SchemaField("b", "INTEGER"),
                SchemaField("c", "INTEGER", mode="REQUIRED"),
            ): "Cannot add required fields to an existing schema. (field: c)",
        }.items():
            with self.subTest(reason):
                table = bigquery.Table(TABLE_ID, schema=list(fields))
                with self.assertRaises(exceptions.BadRequest) as caught:
                    self.client.update_table(table, ["schema"])
                text = f"Provided Schema does not match Table {PROJECT}:tables.t. {reason}"
                self.assertIn(text, caught.exception.message)

    def test_a_table_changed_by_another_raises_precondition_failed(self):
        mine = self.create(SchemaField("a", "STRING"))
        theirs = self.client.get_table(TABLE_ID)
        theirs.description = "theirs"
        self.client.update_table(theirs, ["description"])
        mine.description = "mine"
        with self.assertRaises(exceptions.PreconditionFailed) as caught:
            self.client.update_table(mine, ["description"])
        self.assertEqual(caught.exception.errors[0]["reason"], "conditionNotMet")
        again = self.client.get_table(TABLE_ID)
        self.assertEqual(again.description, "theirs")
        again.description = "mine"
        self.assertEqual(self.client.update_table(again, ["description"]).description, "mine")
        dataset = self.client.get_dataset("tables")
        dataset.description = "changed"
        self.client.update_dataset(dataset, ["description"])
        with self.assertRaises(exceptions.PreconditionFailed):
            self.client.update_dataset(dataset, ["description"])

    def test_labels_are_set_and_taken_away(self):
        table = self.create(SchemaField("a", "STRING"))
        table.labels = {"a": "b", "c": "d"}
        table = self.client.update_table(table, ["labels"])
        table.labels = {"a": None, "e": ""}
        self.assertEqual(self.client.update_table(table, ["labels"]).labels, {"c": "d", "e": ""})
        self.dataset.labels = {"team": "a"}
        self.dataset.default_table_expiration_ms = 3_600_000
        dataset = self.client.update_dataset(self.dataset, ["labels", "default_table_expiration_ms"])
        self.assertEqual((dataset.labels, dataset.default_table_expiration_ms), ({"team": "a"}, 3_600_000))
        later = self.client.create_table(
            bigquery.Table(f"{PROJECT}.tables.later", [SchemaField("a", "STRING")])
        )
        self.assertEqual(later.expires - later.created, datetime.timedelta(hours=1))

    def test_a_table_says_how_it_is_laid_out(self):
        table = bigquery.Table(TABLE_ID, [SchemaField("id", "STRING"), SchemaField("at", "TIMESTAMP")])
        table.time_partitioning = bigquery.TimePartitioning(type_="HOUR", field="at", expiration_ms=86_400_000)
        table.clustering_fields = ["id"]
        table.require_partition_filter = True
        key = bigquery.table.PrimaryKey(columns=["id"])
        table.table_constraints = bigquery.table.TableConstraints(primary_key=key, foreign_keys=None)
        table.max_staleness = "0-0 0 0:15:0"
        self.client.create_table(table)
        found = self.client.get_table(TABLE_ID)
        self.assertEqual(
            (
                found.time_partitioning.type_,
                found.time_partitioning.field,
                found.time_partitioning.expiration_ms,
                found.clustering_fields,
                found.require_partition_filter,
                found.table_constraints.primary_key.columns,
                found.max_staleness,
            ),
            ("HOUR", "at", 86_400_000, ["id"], True, ["id"], "0-0 0 0:15:0"),
        )
        ranged = bigquery.Table(f"{PROJECT}.tables.ranged", [SchemaField("n", "INTEGER")])
        ranged.range_partitioning = bigquery.RangePartitioning(
            field="n", range_=bigquery.PartitionRange(start=0, end=100, interval=10)
        )
        found = self.client.create_table(ranged).range_partitioning.range_
        self.assertEqual((found.start, found.end, found.interval), (0, 100, 10))

    def test_statements_define_tables(self):
        job = self.execute(
            """CREATE TABLE t (
                id INT64 NOT NULL, name STRING(10) DEFAULT 'none' OPTIONS(description='a name'),
                tags ARRAY<STRUCT<key STRING, value NUMERIC(5, 2)>>, day DATE,
                PRIMARY KEY (id) NOT ENFORCED
            ) PARTITION BY day CLUSTER BY id OPTIONS(labels=[('a', 'b')], max_staleness=INTERVAL 15 MINUTE)"""
        )
        self.assertEqual((job.statement_type, job.ddl_operation_performed), ("CREATE_TABLE", "CREATE"))
        self.assertEqual(job.ddl_target_table.table_id, "t")
        table = self.client.get_table(TABLE_ID)
        tag = [SchemaField("key", "STRING"), SchemaField("value", "NUMERIC", precision=5, scale=2)]
        want = [
            SchemaField("id", "INTEGER", mode="REQUIRED"),
            SchemaField(
                "name", "STRING", max_length=10, default_value_expression="'none'", description="a name"
            ),
            SchemaField("tags", "RECORD", mode="REPEATED", fields=tag),
            SchemaField("day", "DATE"),
        ]
        self.assertEqual(table.schema, want)
        self.assertEqual(
            (table.labels, table.max_staleness, table.time_partitioning.field, table.clustering_fields),
            ({"a": "b"}, "0-0 0 0:15:0", "day", ["id"]),
        )
        job = self.execute("INSERT INTO t (id, day) VALUES (1, '2024-02-29'), (2, NULL)")
        self.assertEqual(
            (job.statement_type, job.num_dml_affected_rows, job.dml_stats.inserted_row_count),
            ("INSERT", 2, 2),
        )
        self.execute("ALTER TABLE t ADD COLUMN more FLOAT64, ALTER COLUMN id DROP NOT NULL")
        want = [[1, "none", [], datetime.date(2024, 2, 29), None], [2, "none", [], None, None]]
        self.assertEqual(self.rows("SELECT * FROM t ORDER BY id"), want)
        self.assertEqual(self.execute("DROP TABLE t").ddl_operation_performed, "DROP")
        self.assertRaises(exceptions.NotFound, self.client.get_table, TABLE_ID)
        rows = self.client.query_and_wait(f"CREATE TABLE `{TABLE_ID}` AS SELECT 1 AS a")
        self.assertEqual((list(rows), self.rows("SELECT * FROM t")), ([], [[1]]))

    def test_statements_that_fail_raise_what_their_reason_says(self):
        self.create(SchemaField("a", "STRING"))
        for sql, error, message in (
            ("CREATE TABLE t (a INT64)", exceptions.Conflict, f"Already Exists: Table {PROJECT}:tables.t"),
            ("DROP TABLE nothing", exceptions.NotFound, f"Not found: Table {PROJECT}:tables.nothing"),
            ("CREATE TABLE u (a MONEY)", exceptions.BadRequest, "Type not found: MONEY"),
            ("DELETE FROM t WHERE TRUE", exceptions.BadRequest, "not supported by this emulator: DELETE"),
        ):
            with self.subTest(sql), self.assertRaisesRegex(error, message):
                self.execute(sql)

    def test_a_view_is_read_as_its_query(self):
        self.create(SchemaField("id", "INTEGER"), SchemaField("name", "STRING"))
        self.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        view = bigquery.Table(f"{PROJECT}.tables.v")
        view.view_query = f"SELECT id * 10 AS tens, name FROM `{TABLE_ID}` WHERE id > 1"
        made = self.client.create_table(view)
        self.assertEqual(
            (made.table_type, [(field.name, field.field_type) for field in made.schema]),
            ("VIEW", [("tens", "INTEGER"), ("name", "STRING")]),
        )
        self.assertEqual(self.rows("SELECT * FROM v"), [[20, "b"]])
        self.execute("CREATE OR REPLACE VIEW v AS SELECT SUM(id) AS total FROM tables.t")
        self.execute("CREATE VIEW w AS SELECT total + 1 AS more FROM tables.v")
        self.assertEqual(self.rows("SELECT more FROM w"), [[4]])
        listed = {item.table_id: item.table_type for item in self.client.list_tables("tables")}
        self.assertEqual(listed, {"t": "TABLE", "v": "VIEW", "w": "VIEW"})

    def test_information_schema_is_read(self):
        self.execute("CREATE TABLE t (id INT64 NOT NULL, list ARRAY<STRING>) OPTIONS(description='text')")
        columns = "SELECT column_name, data_type, is_nullable FROM tables.INFORMATION_SCHEMA.COLUMNS ORDER BY ordinal_position"
        self.assertEqual(self.rows(columns), [["id", "INT64", "NO"], ["list", "ARRAY<STRING>", "YES"]])
        options = "SELECT option_name, option_value FROM tables.INFORMATION_SCHEMA.TABLE_OPTIONS"
        self.assertEqual(self.rows(options), [["description", '"text"']])
        tables = "SELECT table_name, creation_time FROM tables.INFORMATION_SCHEMA.TABLES"
        self.assertEqual(self.rows(tables), [["t", self.client.get_table(TABLE_ID).created]])

    def test_rows_are_inserted_as_json(self):
        self.create(SchemaField("id", "INTEGER", mode="REQUIRED"), SchemaField("raw", "BYTES"))
        rows = [{"id": 1, "raw": b"\x00\xff"}, {"id": 2}]
        self.assertEqual(self.client.insert_rows(self.client.get_table(TABLE_ID), rows), [])
        again = {"id": 3}
        for _ in range(2):
            self.assertEqual(self.client.insert_rows_json(TABLE_ID, [again], row_ids=["three"]), [])
        self.assertEqual(world.by_list_rows(TABLE_ID), [[1, b"\x00\xff"], [2, None], [3, None]])
        errors = self.client.insert_rows_json(TABLE_ID, [{"id": 4}, {"raw": "AA=="}])
        found = [(error["index"], error["errors"][0]["reason"]) for error in errors]
        self.assertEqual(found, [(0, "stopped"), (1, "invalid")])
        self.client.insert_rows_json(TABLE_ID, [{"id": 4}, {"raw": "AA=="}], skip_invalid_rows=True)
        self.assertEqual([row[0] for row in world.by_query(TABLE_ID)], [1, 2, 3, 4])

    def test_projects_are_listed(self):
        self.assertIn(PROJECT, [project.project_id for project in self.client.list_projects()])
        self.assertIn(PROJECT, self.client.get_service_account_email())
