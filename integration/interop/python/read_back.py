"""Google's BigQuery client against the emulator's REST API.

Makes and unmakes a dataset and a table of every type, then reads one table back by query() and by list_rows(),
and prints it as JSON: {"schema": [...], "query": [[...]], "list_rows": [[...]]}, values as Python has them.

    read_back.py --http 127.0.0.1:9050 --table project.dataset.table [--page-size N]
"""

import argparse
import base64
import datetime
import decimal
import json
import sys

from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

SCALARS = [
    "BOOL",
    "INT64",
    "FLOAT64",
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", required=True, help="host:port of the emulator's REST API")
    parser.add_argument("--table", required=True, help="project.dataset.table to read")
    parser.add_argument("--page-size", type=int, help="rows per page, to exercise paging")
    arguments = parser.parse_args()
    project = arguments.table.split(".")[0]
    client = bigquery.Client(
        project=project,
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": f"http://{arguments.http}"},
    )
    exercise(client, project)
    json.dump(read(client, arguments.table, arguments.page_size), sys.stdout)
    print()


def read(client, table_id, page_size):
    table = client.get_table(table_id)
    queried = client.query(f"SELECT * FROM `{table_id}`").result(page_size=page_size)
    listed = client.list_rows(table, page_size=page_size)
    return {
        "schema": [field.to_api_repr() for field in table.schema],
        "num_rows": table.num_rows,
        "query_schema": [field.to_api_repr() for field in queried.schema],
        "query": [[plain(value) for value in row.values()] for row in queried],
        "list_rows": [[plain(value) for value in row.values()] for row in listed],
    }


def plain(value):
    """A value as JSON; what JSON lacks becomes {type: text}."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, decimal.Decimal):
        return {"decimal": format(value, "f")}
    if isinstance(value, (datetime.date, datetime.time)):
        return {type(value).__name__: value.isoformat()}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"float": str(value)}
    return value


def exercise(client, project):
    """Everything but reading: each step fails loudly."""
    dataset_id = f"{project}.read_back_scratch"
    client.delete_dataset(dataset_id, delete_contents=True, not_found_ok=True)
    client.create_dataset(dataset_id)
    client.create_dataset(dataset_id, exists_ok=True)
    refused(exceptions.Conflict, client.create_dataset, dataset_id)
    check(client.get_dataset(dataset_id).location, "US")
    check("read_back_scratch" in [item.dataset_id for item in client.list_datasets()], True)

    fields = [
        bigquery.SchemaField(f"{kind.lower()}_{mode.lower()}", kind, mode=mode)
        for kind in SCALARS
        for mode in ("NULLABLE", "REQUIRED", "REPEATED")
    ]
    inner = [bigquery.SchemaField("x", "INTEGER"), bigquery.SchemaField("list", "STRING", mode="REPEATED")]
    fields.append(bigquery.SchemaField("struct", "RECORD", fields=inner, description="nested"))
    fields.append(bigquery.SchemaField("structs", "RECORD", mode="REPEATED", fields=inner))
    fields.append(bigquery.SchemaField("money", "NUMERIC", precision=10, scale=2))
    fields.append(bigquery.SchemaField("code", "STRING", max_length=3))
    table_id = f"{dataset_id}.all_types"
    table = bigquery.Table(table_id, schema=fields)
    table.description = "every type"
    table.labels = {"made": "here"}
    client.create_table(table)
    refused(exceptions.Conflict, client.create_table, table)
    found = client.get_table(table_id)
    check([field.name for field in found.schema], [field.name for field in fields])
    check([field.mode for field in found.schema], [field.mode for field in fields])
    check(found.schema[-4], fields[-4])
    check((found.schema[-2].precision, found.schema[-2].scale, found.schema[-1].max_length), (10, 2, 3))
    check((found.description, found.labels, found.num_rows), ("every type", {"made": "here"}, 0))
    check([item.table_id for item in client.list_tables(dataset_id)], ["all_types"])
    check(list(client.list_rows(table_id)), [])

    default = bigquery.QueryJobConfig(default_dataset=dataset_id)
    check([tuple(row) for row in client.query("SELECT COUNT(*) FROM all_types", job_config=default)], [(0,)])
    check([row["a"] for row in client.query_and_wait("SELECT 1 AS a UNION ALL SELECT 2 ORDER BY a")], [1, 2])
    refused(exceptions.BadRequest, client.query("SELECT nothing FROM all_types", job_config=default).result)
    refused(exceptions.NotFound, client.query(f"SELECT * FROM `{dataset_id}.missing`").result)
    refused(exceptions.BadRequest, client.query_and_wait, "SELEKT 1")

    refused(exceptions.BadRequest, client.delete_dataset, dataset_id)
    client.delete_table(table_id)
    refused(exceptions.NotFound, client.delete_table, table_id)
    client.delete_table(table_id, not_found_ok=True)
    refused(exceptions.NotFound, client.get_table, table_id)
    client.delete_dataset(dataset_id)
    refused(exceptions.NotFound, client.get_dataset, dataset_id)


def check(found, expected):
    if found != expected:
        raise SystemExit(f"expected {expected!r}, found {found!r}")


def refused(error, call, *arguments):
    try:
        call(*arguments)
    except error:
        return
    raise SystemExit(f"{call.__name__}{arguments!r} was not refused with {error.__name__}")


if __name__ == "__main__":
    main()
