"""What the tests share: Google's clients on the emulator, the tool as a process, and values compared with their types."""

import json
import pathlib
import subprocess
import urllib.request

import grpc
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery
from google.cloud.bigquery_storage_v1 import BigQueryWriteClient
from google.cloud.bigquery_storage_v1.services.big_query_write.transports import BigQueryWriteGrpcTransport

PROJECT = "demo"
EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"

# Longest run of a pipeline, in seconds.
RUN_LIMIT = 120

client = None
write_client = None
write = None
http = None
work = None
transcripts = None
_tool = None


def connect(grpc_address, rest, tool, folder):
    """Sets the module's variables, before the tests are loaded. `grpc_address` and `rest` are the addresses of the
    emulator's Storage Write and REST APIs."""
    global client, write_client, write, http, work, _tool
    write, http = grpc_address, rest
    client = bigquery.Client(
        project=PROJECT,
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": f"http://{http}"},
    )
    write_client = BigQueryWriteClient(
        transport=BigQueryWriteGrpcTransport(channel=grpc.insecure_channel(write))
    )
    work = folder
    _tool = tool


def advance(seconds):
    """Puts the emulator's clock forward."""
    order = json.dumps({"advance_ms": seconds * 1000}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{http}/emulator/clock", order, headers, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


def write_pipeline(name, sql, grpc_address=None):
    """Writes the SQL to a file, `endpoint = 'emulator'` replaced by this emulator's addresses (rows may go to another)."""
    in_process = "endpoint = 'emulator'"
    if in_process not in sql:
        raise ValueError(f"{name} does not hold {in_process}")
    file = work / name
    endpoints = f"'endpoint.grpc' = 'http://{grpc_address or write}', 'endpoint.http' = 'http://{http}'"
    file.write_text(sql.replace(in_process, endpoints))
    return file


def start_pipeline(name, sql, *arguments):
    """Starts a run of the SQL; its stderr can be read."""
    file = write_pipeline(name, sql)
    return subprocess.Popen(
        [_tool, "run", file, "--json", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_pipeline(name, sql, *arguments, grpc_address=None):
    """Runs the SQL to its end and returns the summary it ends with."""
    file = write_pipeline(name, sql, grpc_address)
    done = subprocess.run(
        [_tool, "run", file, "--json", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=RUN_LIMIT,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise AssertionError(f"{name} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def make_dataset(name):
    """A dataset without tables."""
    client.delete_dataset(f"{PROJECT}.{name}", delete_contents=True, not_found_ok=True)
    return client.create_dataset(f"{PROJECT}.{name}")


def by_query(table_id, page_size=None):
    """Every row of a table as query() reads it, a list of values each, in the order of the first column."""
    sql = f"SELECT * FROM `{table_id}`"
    return _sorted(client.query(sql).result(page_size=page_size))


def by_list_rows(table_id, page_size=None):
    """Every row of a table as list_rows() reads it, a list of values each, in the order of the first column."""
    return _sorted(client.list_rows(client.get_table(table_id), page_size=page_size))


def _sorted(rows):
    return sorted((list(row.values()) for row in rows), key=lambda row: row[0])


def typed(value):
    """A value with the name of its type, all the way down: 1, 1.0, True and Decimal(1) are equal in Python, and so are
    0.0 and -0.0."""
    if isinstance(value, dict):
        return {name: typed(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [typed(inner) for inner in value]
    if isinstance(value, float):
        return ("float", repr(value))
    if getattr(value, "tzinfo", None) is not None:
        return ("instant", value.utcoffset(), value)
    return (type(value).__name__, value)


def assert_rows(test, found, expected):
    """Equal rows in equal order; a difference is shown as the first row that differs."""
    for row, (one, other) in enumerate(zip(found, expected)):
        test.assertEqual(typed(one), typed(other), f"row {row}")
    test.assertEqual(len(found), len(expected))
