-- Rows that do not fit go to a table of their own. BigQuery's arrays hold no NULL; the delays of a flight that was cancelled or
-- diverted are NULL, so 606 of January's 27,004 flights become dead letters:
--
--     cargo run -- run examples/dead_letters.sql
--
-- On Arroyo, and with real BigQuery, the file needs what flights.sql and bigquery.sql say.

CREATE TABLE january (
    year INT NOT NULL,
    month INT NOT NULL,
    day INT NOT NULL,
    dep_time INT,
    sched_dep_time INT NOT NULL,
    dep_delay INT,
    arr_time INT,
    sched_arr_time INT NOT NULL,
    arr_delay INT,
    carrier TEXT NOT NULL,
    flight INT NOT NULL,
    tailnum TEXT,
    origin TEXT NOT NULL,
    dest TEXT NOT NULL,
    air_time INT,
    distance INT NOT NULL,
    time_hour TIMESTAMP NOT NULL
) WITH (
    connector = 'single_file',
    type = 'source',
    path = 'data/flights-january.csv',
    format = 'csv',
    'csv.null' = 'NA'
);

CREATE TABLE delays (
    carrier TEXT NOT NULL,
    flight BIGINT NOT NULL,
    time_hour TIMESTAMP NOT NULL,
    delays BIGINT[]                         -- minutes at departure and at arrival
) WITH (
    connector = 'bigquery',
    type = 'sink',
    endpoint = 'emulator',
    project = 'demo',
    dataset = 'aviation',
    'table' = 'delays',
    'table.create' = 'if_missing',          -- both tables
    row_errors = 'dead_letter',
    'dead_letter.table' = 'delays_refused'
);

INSERT INTO delays
SELECT carrier, flight, time_hour, make_array(dep_delay, arr_delay)
FROM january;
