"""Rows of every column type: a JSON lines file, the pipeline that reads it, and the values Google's client must return."""

import datetime
import decimal
import json
import random

from google.cloud.bigquery import SchemaField

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
COUNT = 2500

_COLUMNS = """
    id BIGINT NOT NULL,
    flag BOOLEAN,
    small SMALLINT,
    whole BIGINT,
    ratio DOUBLE,
    name TEXT NOT NULL,
    raw {bytes},
    day DATE,
    clock TIME,
    moment TIMESTAMP(6),
    civil TIMESTAMP(6),
    price DECIMAL(38, 9),
    large DECIMAL(38, 20),
    document JSON,
    place STRUCT<city TEXT, height DOUBLE, inside STRUCT<n BIGINT, since DATE>, tags TEXT[]>,
    flags BOOLEAN[],
    numbers BIGINT[],
    ratios DOUBLE[],
    names TEXT[],
    days DATE[],
    moments TIMESTAMP(6)[],
    prices DECIMAL(38, 9)[],
    visits STRUCT<day DATE, guests BIGINT>[]"""


def _fields(civil):
    def repeated(name, kind, fields=()):
        return SchemaField(name, kind, mode="REPEATED", fields=fields)

    inside = [SchemaField("n", "INTEGER"), SchemaField("since", "DATE")]
    place = [
        SchemaField("city", "STRING"),
        SchemaField("height", "FLOAT"),
        SchemaField("inside", "RECORD", fields=inside),
        repeated("tags", "STRING"),
    ]
    return [
        SchemaField("id", "INTEGER", mode="REQUIRED"),
        SchemaField("flag", "BOOLEAN"),
        SchemaField("small", "INTEGER"),
        SchemaField("whole", "INTEGER"),
        SchemaField("ratio", "FLOAT"),
        SchemaField("name", "STRING", mode="REQUIRED"),
        SchemaField("raw", "BYTES"),
        SchemaField("day", "DATE"),
        SchemaField("clock", "TIME"),
        SchemaField("moment", "TIMESTAMP"),
        SchemaField("civil", civil),
        SchemaField("price", "NUMERIC"),
        SchemaField("large", "BIGNUMERIC"),
        SchemaField("document", "JSON"),
        SchemaField("place", "RECORD", fields=place),
        repeated("flags", "BOOLEAN"),
        repeated("numbers", "INTEGER"),
        repeated("ratios", "FLOAT"),
        repeated("names", "STRING"),
        repeated("days", "DATE"),
        repeated("moments", "TIMESTAMP"),
        repeated("prices", "NUMERIC"),
        repeated("visits", "RECORD", [SchemaField("day", "DATE"), SchemaField("guests", "INTEGER")]),
    ]


# The pipeline's TIMESTAMP goes into DATETIME too; of itself it asks for TIMESTAMP.
MADE_BEFORE = _fields(civil="DATETIME")
IF_MISSING = _fields(civil="TIMESTAMP")

# Values at the ends of each type, as JSON text.
_EDGES = {
    "flag": ["true", "false"],
    "small": ["-32768", "32767", "0"],
    "whole": ["-9223372036854775808", "9223372036854775807", "9007199254740993"],
    "ratio": ["1.7976931348623157e308", "-1.7976931348623157e308", "5e-324", "0.1", "-0.0", "1", "1e21"],
    "name": ['""', '"\\u0000"', '"quote \\" backslash \\\\ tab \\t line\\n"', '"東京 ñ 🌍"', '"NULL"'],
    "raw": ['""', '"\\u0000\\u0001"', '"ÿ東"', '"plain"'],
    "day": ['"0001-01-01"', '"9999-12-31"', '"1969-12-31"', '"2024-02-29"'],
    "clock": ['"00:00:00"', '"23:59:59.999999"', '"12:30:00.500"'],
    "moment": [
        '"0001-01-01T00:00:00"',
        '"9999-12-31T23:59:59.999999"',
        '"1969-12-31T23:59:59.999999"',
        '"2024-02-29T12:00:00.500"',
    ],
    "civil": ['"0001-01-01T00:00:00"', '"9999-12-31T23:59:59.999999"', '"2024-02-29T12:00:00"'],
    "price": ['"99999999999999999999999999999.999999999"', '"-0.000000001"', "12.5", "-7", "0"],
    "large": ['"999999999999999999.99999999999999999999"', '"0.00000000000000000001"', "-3"],
    "document": [
        "{}",
        "[]",
        '"text"',
        "0",
        "true",
        '{"a": [1, 2.5, null, {"b": "東"}], "c": null}',
        '{"nested": {"x": -1e3}}',
    ],
    "place": [
        '{"city": "Bergen", "height": 12, "inside": {"n": 1, "since": "1070-01-01"}, "tags": ["rain", ""]}',
        '{"city": null, "height": null, "inside": null, "tags": null}',
        '{"inside": {"n": null}, "tags": []}',
    ],
    "flags": ["[true, false]", "[]"],
    "numbers": ["[1, -9223372036854775808]", "[]", "[0]"],
    "ratios": ["[0.5, 1e-7, 3]", "[]"],
    "names": ['["", "b", "東"]', "[]"],
    "days": ['["2024-02-29", "0001-01-01"]', "[]"],
    "moments": ['["2024-02-29T12:00:00.000001"]', "[]"],
    "prices": ['["1.5", 2]', "[]"],
    "visits": ['[{"day": "2024-02-29", "guests": 3}, {"day": null, "guests": null}, {}]', "[]"],
}


def sql(table, create):
    """The pipeline from `rows.ndjson` beside it to a table of dataset `types`."""
    # JSON has no bytes: they come as text, and are its UTF-8.
    source, sink = (_COLUMNS.format(bytes=kind) for kind in ("TEXT", "BYTEA"))
    names = [field.name for field in MADE_BEFORE]
    chosen = ", ".join("CAST(raw AS BYTEA)" if name == "raw" else name for name in names)
    return f"""
        CREATE TABLE source ({source})
        WITH (connector = 'single_file', type = 'source', path = 'rows.ndjson', format = 'json');

        CREATE TABLE sink ({sink})
        WITH (connector = 'bigquery', type = 'sink', endpoint = 'emulator', project = 'demo', dataset = 'types',
              'table' = '{table}', 'table.create' = '{create}');

        INSERT INTO sink SELECT {chosen} FROM source;"""


def write(path):
    """Writes the rows and returns, in the order of `id`, what a reader of MADE_BEFORE must find."""
    drawn = random.Random(2)
    lines = []
    for number in range(COUNT):
        cells = [f'"id": {number}']
        for column, edges in _EDGES.items():
            # Each edge once, then NULL as null, NULL as nothing, and values drawn.
            if number < len(edges):
                value = edges[number]
            elif column == "name":
                value = json.dumps(f"row {number} " + "x" * drawn.randrange(40))
            elif number % 7 == 0:
                value = "null"
            elif number % 7 == 1:
                continue
            else:
                value = _draw(drawn, column) or drawn.choice(edges)
            cells.append(f'"{column}": {value}')
        lines.append("{" + ", ".join(cells) + "}\n")
    path.write_text("".join(lines))
    return [_expected(line) for line in path.read_text().splitlines()]


def _draw(drawn, column):
    moment = datetime.datetime(1, 1, 1) + datetime.timedelta(
        days=drawn.randrange(3_650_000),
        seconds=drawn.randrange(86_400),
        microseconds=drawn.randrange(1_000_000),
    )
    makers = {
        "small": lambda: str(drawn.randrange(-(2**15), 2**15)),
        "whole": lambda: str(drawn.randrange(-(2**63), 2**63)),
        "ratio": lambda: repr(drawn.uniform(-1, 1) * 10 ** drawn.randrange(-300, 300)),
        "raw": lambda: json.dumps("".join(chr(drawn.randrange(0x800)) for _ in range(drawn.randrange(20)))),
        "day": lambda: json.dumps(moment.date().isoformat()),
        "clock": lambda: json.dumps(moment.time().isoformat()),
        "moment": lambda: json.dumps(moment.isoformat()),
        "civil": lambda: json.dumps(moment.isoformat()),
        "price": lambda: json.dumps(
            str(decimal.Decimal(drawn.randrange(-(10**38) + 1, 10**38)).scaleb(-9, _WIDE))
        ),
        "large": lambda: json.dumps(format(decimal.Decimal(drawn.randrange(10**38)).scaleb(-20, _WIDE), "f")),
        "numbers": lambda: json.dumps([drawn.randrange(-(2**63), 2**63) for _ in range(drawn.randrange(5))]),
    }
    return makers[column]() if column in makers else None


_WIDE = decimal.Context(prec=80)


def _expected(line):
    """One line of the file as BigQuery's values."""
    row = json.loads(line)
    exact = json.loads(line, parse_float=decimal.Decimal)

    def day(text):
        return None if text is None else datetime.date.fromisoformat(text)

    def moment(text):
        return None if text is None else datetime.datetime.fromisoformat(text)

    def instant(text):
        return None if text is None else moment(text).replace(tzinfo=datetime.timezone.utc)

    def number(value):
        return None if value is None else decimal.Decimal(value)

    def ratio(value):
        return None if value is None else float(value)

    def each(make, values):
        return [make(value) for value in values or []]

    def place(value):
        if value is None:
            return None
        inside = value.get("inside")
        return {
            "city": value.get("city"),
            "height": ratio(value.get("height")),
            "inside": None if inside is None else {"n": inside.get("n"), "since": day(inside.get("since"))},
            "tags": value.get("tags") or [],
        }

    return [
        row["id"],
        row.get("flag"),
        row.get("small"),
        row.get("whole"),
        ratio(row.get("ratio")),
        row["name"],
        None if row.get("raw") is None else row["raw"].encode(),
        day(row.get("day")),
        None if row.get("clock") is None else datetime.time.fromisoformat(row["clock"]),
        instant(row.get("moment")),
        moment(row.get("civil")),
        number(exact.get("price")),
        number(exact.get("large")),
        row.get("document"),
        place(row.get("place")),
        row.get("flags") or [],
        row.get("numbers") or [],
        each(ratio, row.get("ratios")),
        row.get("names") or [],
        each(day, row.get("days")),
        each(instant, row.get("moments")),
        each(number, exact.get("prices")),
        each(lambda visit: {"day": day(visit.get("day")), "guests": visit.get("guests")}, row.get("visits")),
    ]
