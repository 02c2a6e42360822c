-- All flights from New York's airports in January 2013, from CSV into an emulated BigQuery table:
--
--     cargo run -- run examples/flights.sql
--
-- The whole year, in a file of the same form: add --data FILE.

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
    'csv.null' = 'NA'           -- beside empty fields
);

CREATE TABLE flights (
    carrier TEXT NOT NULL,
    flight BIGINT NOT NULL,
    tailnum TEXT,
    origin TEXT NOT NULL,
    dest TEXT NOT NULL,
    scheduled_hour TIMESTAMP NOT NULL,
    sched_dep_time BIGINT NOT NULL,
    dep_time BIGINT,
    dep_delay BIGINT,
    sched_arr_time BIGINT NOT NULL,
    arr_time BIGINT,
    arr_delay BIGINT,
    air_time BIGINT,
    distance DOUBLE NOT NULL,
    cancelled BOOLEAN NOT NULL
) WITH (
    connector = 'bigquery',
    type = 'sink',
    endpoint = 'emulator',
    project = 'demo',
    dataset = 'aviation',
    'table' = 'flights',
    'table.create' = 'if_missing'
);

INSERT INTO flights
SELECT
    carrier, flight, tailnum, origin, dest, time_hour,
    sched_dep_time, dep_time, dep_delay,
    sched_arr_time, arr_time, arr_delay,
    air_time, distance, dep_time IS NULL
FROM january;
