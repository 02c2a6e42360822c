-- One week of the world's earthquakes, from a file into an emulated BigQuery table. Nothing to set:
--
--     cargo run -- run examples/earthquakes.sql
--
-- The file runs on Arroyo too, with the path made absolute and without the option `endpoint`.

CREATE TABLE feed (
    id TEXT NOT NULL,
    properties STRUCT<
        mag DOUBLE,
        place TEXT,
        time BIGINT,        -- milliseconds since 1970
        felt BIGINT,        -- people who reported it; mostly null
        tsunami INT,
        magType TEXT
    >,
    geometry STRUCT<coordinates DOUBLE[]>   -- longitude, latitude, depth in km
) WITH (
    connector = 'single_file',
    type = 'source',
    path = 'data/earthquakes.ndjson',
    format = 'json',
    wait_for_control = 'false'              -- only Arroyo needs it: a file is else read a line per control message
);

CREATE TABLE earthquakes (
    id TEXT NOT NULL,
    magnitude DOUBLE NOT NULL,
    magnitude_type TEXT,
    place TEXT,
    happened_at TIMESTAMP(3),
    felt BIGINT,
    tsunami BOOLEAN,
    coordinates DOUBLE[]
) WITH (
    connector = 'bigquery',
    type = 'sink',
    endpoint = 'emulator',
    project = 'demo',
    dataset = 'geology',
    'table' = 'earthquakes',
    'table.create' = 'if_missing'
);

INSERT INTO earthquakes
SELECT
    id,
    properties.mag,
    properties['magType'],
    properties.place,
    CAST(properties.time AS TIMESTAMP(3)),
    properties.felt,
    properties.tsunami = 1,
    geometry.coordinates
FROM feed
WHERE properties.mag >= 1.0;
