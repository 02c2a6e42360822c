"""Real runs of the tool; every row that Google's client reads is compared with what plain Python makes of the input file."""

import datetime
import json
import unittest
from collections import Counter

from google.cloud import bigquery
from google.cloud.bigquery import SchemaField

import rows
import world
from world import EXAMPLES, PROJECT


class Earthquakes(unittest.TestCase):
    """The example, into a table that Google's client made."""

    table_id = f"{PROJECT}.geology.earthquakes"

    @classmethod
    def setUpClass(cls):
        world.make_dataset("geology")
        fields = [
            SchemaField("id", "STRING", mode="REQUIRED"),
            SchemaField("magnitude", "FLOAT64", mode="REQUIRED"),
            SchemaField("magnitude_type", "STRING"),
            SchemaField("place", "STRING"),
            SchemaField("happened_at", "TIMESTAMP"),
            SchemaField("felt", "INT64"),
            SchemaField("tsunami", "BOOL"),
            SchemaField("coordinates", "FLOAT64", mode="REPEATED"),
        ]
        world.client.create_table(bigquery.Table(cls.table_id, schema=fields))
        feed = EXAMPLES / "data" / "earthquakes.ndjson"
        cls.expected = [cls.row(json.loads(line)) for line in feed.read_text().splitlines()]
        cls.expected = sorted((row for row in cls.expected if row is not None), key=lambda row: row[0])
        sql = (EXAMPLES / "earthquakes.sql").read_text().replace("'data/", f"'{EXAMPLES}/data/")
        arguments = ("--parallelism", "3", "--checkpoint-interval", "200ms", "--source-rate", "2000")
        cls.summary = world.run_pipeline("earthquakes.sql", sql, *arguments)
        cls.again = world.run_pipeline("earthquakes.sql", sql, *arguments)

    @staticmethod
    def row(quake):
        """The example's query in Python; None where its filter drops the row."""
        properties = quake["properties"]
        if properties["mag"] is None or properties["mag"] < 1.0:
            return None
        happened = rows.EPOCH + datetime.timedelta(milliseconds=properties["time"])
        coordinates = [float(number) for number in quake["geometry"]["coordinates"]]
        return [
            quake["id"],
            float(properties["mag"]),
            properties["magType"],
            properties["place"],
            happened,
            properties["felt"],
            properties["tsunami"] == 1,
            coordinates,
        ]

    def test_the_summary_counts_what_was_read_and_written(self):
        self.assertEqual(
            (self.summary["rows_read"], self.summary["rows_committed"]), (1707, len(self.expected))
        )
        self.assertEqual(len(self.expected), 996)

    def test_a_second_run_on_the_same_state_writes_nothing(self):
        self.assertEqual((self.again["rows_read"], self.again["rows_committed"]), (0, 0))
        self.assertEqual(world.client.get_table(self.table_id).num_rows, len(self.expected))

    def test_query_reads_every_row(self):
        world.assert_rows(self, world.by_query(self.table_id), self.expected)

    def test_list_rows_reads_every_row_page_by_page(self):
        pages = world.client.list_rows(
            self.table_id, selected_fields=[SchemaField("id", "STRING")], page_size=100
        ).pages
        self.assertEqual([page.num_items for page in pages], [100] * 9 + [96])
        world.assert_rows(self, world.by_list_rows(self.table_id, page_size=100), self.expected)

    def test_aggregates_equal_those_of_the_file(self):
        sql = f"""
            SELECT magnitude_type, COUNT(*) AS quakes, SUM(felt) AS felt, MAX(happened_at) AS latest
            FROM `{self.table_id}` GROUP BY magnitude_type ORDER BY quakes DESC, magnitude_type"""
        found = [tuple(row) for row in world.client.query_and_wait(sql)]
        expected = []
        for kind, count in Counter(row[2] for row in self.expected).items():
            of_kind = [row for row in self.expected if row[2] == kind]
            felt = [row[5] for row in of_kind if row[5] is not None]
            expected.append((kind, count, sum(felt) if felt else None, max(row[4] for row in of_kind)))
        self.assertEqual(found, sorted(expected, key=lambda row: (-row[1], row[0])))

    def test_a_part_of_the_rows_and_columns_is_read(self):
        table = world.client.get_table(self.table_id)
        whole = [list(row.values()) for row in world.client.list_rows(table)]
        chosen = [table.schema[0], table.schema[7]]
        part = world.client.list_rows(
            table, selected_fields=chosen, start_index=990, max_results=4, page_size=3
        )
        self.assertEqual([list(row.values()) for row in part], [[row[0], row[7]] for row in whole[990:994]])
        sql = f"""
            SELECT place FROM `{self.table_id}`
            WHERE happened_at >= TIMESTAMP '2018-02-06 12:00:00+00' AND felt > 10"""
        noon = datetime.datetime(2018, 2, 6, 12, tzinfo=datetime.timezone.utc)
        expected = [row[3] for row in self.expected if row[4] >= noon and (row[5] or 0) > 10]
        self.assertGreater(len(expected), 0)
        self.assertEqual(sorted(row["place"] for row in world.client.query_and_wait(sql)), sorted(expected))


class EveryType(unittest.TestCase):
    """Generated rows of every type, into a table that Google's client made and into one that the sink made."""

    before, created = f"{PROJECT}.types.made_before", f"{PROJECT}.types.if_missing"

    @classmethod
    def setUpClass(cls):
        world.make_dataset("types")
        world.client.create_table(bigquery.Table(cls.before, schema=rows.MADE_BEFORE))
        cls.expected = rows.write(world.work / "rows.ndjson")
        cls.summaries = [
            world.run_pipeline("made_before.sql", rows.sql("made_before", create="never")),
            world.run_pipeline(
                "if_missing.sql", rows.sql("if_missing", create="if_missing"), "--parallelism", "2"
            ),
        ]

    def test_the_summaries_count_every_row(self):
        for summary in self.summaries:
            self.assertEqual((summary["rows_read"], summary["rows_committed"]), (rows.COUNT, rows.COUNT))

    def test_query_reads_every_value(self):
        pages = world.client.query(f"SELECT id FROM `{self.before}`").result(page_size=400).pages
        self.assertEqual([page.num_items for page in pages], [400] * 6 + [100])
        world.assert_rows(self, world.by_query(self.before, page_size=400), self.expected)

    def test_list_rows_reads_every_value_page_by_page(self):
        world.assert_rows(self, world.by_list_rows(self.before, page_size=400), self.expected)

    def test_the_table_made_before_keeps_its_schema(self):
        table = world.client.get_table(self.before)
        self.assertEqual(table.schema, rows.MADE_BEFORE)
        self.assertEqual(table.num_rows, rows.COUNT)

    def test_a_table_the_sink_made_has_the_schema_of_its_columns(self):
        table = world.client.get_table(self.created)
        self.assertEqual(table.schema, rows.IF_MISSING)
        self.assertEqual(table.num_rows, rows.COUNT)

    def test_a_table_the_sink_made_holds_every_value(self):
        # There the civil times are instants too, and all else is the same.
        civil = [field.name for field in rows.MADE_BEFORE].index("civil")
        expected = [list(row) for row in self.expected]
        for row in expected:
            if row[civil] is not None:
                row[civil] = row[civil].replace(tzinfo=datetime.timezone.utc)
        for found in (world.by_query(self.created), world.by_list_rows(self.created, page_size=1000)):
            world.assert_rows(self, found, expected)
