-- All flights from New York's airports in January 2013, from a folder of Parquet files into an emulated BigQuery table:
--
--     cargo run -- run examples/parquet.sql
--
-- The file runs on Arroyo too, with the path made absolute and without the option `endpoint`, if the table declares all columns of the files in
-- their order and types: Arroyo takes them by place, this command by name.

CREATE TABLE january (
    carrier TEXT NOT NULL,
    flight BIGINT NOT NULL,         -- INT in the files
    tailnum TEXT,
    origin TEXT NOT NULL,
    dest TEXT NOT NULL,
    time_hour TIMESTAMP(6) NOT NULL,
    sched_dep_time INT NOT NULL,
    dep_time INT,
    dep_delay INT,
    distance INT NOT NULL
) WITH (
    connector = 'filesystem',
    type = 'source',
    path = 'data/flights',
    format = 'parquet',
    'source.regex_pattern' = '\.parquet$'
);

CREATE TABLE flights (
    carrier TEXT NOT NULL,
    flight BIGINT NOT NULL,
    tailnum TEXT,
    origin TEXT NOT NULL,
    dest TEXT NOT NULL,
    scheduled_hour TIMESTAMP(6) NOT NULL,
    sched_dep_time BIGINT NOT NULL,
    dep_time BIGINT,
    dep_delay BIGINT,
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
    distance, dep_time IS NULL
FROM january;
