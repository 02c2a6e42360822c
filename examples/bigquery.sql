-- The earthquakes of earthquakes.sql into real BigQuery. Set three names below (project, dataset, table), then:
--
--     gcloud auth application-default login
--     cargo run -- check examples/bigquery.sql --connect
--     cargo run -- run examples/bigquery.sql
--
-- The dataset must exist. The account needs bigquery.tables.get and bigquery.tables.updateData on the table, and
-- bigquery.tables.create on the dataset for 'table.create' = 'if_missing'; the role BigQuery Data Editor has all three.

CREATE TABLE feed (
    id TEXT NOT NULL,
    properties STRUCT<mag DOUBLE, place TEXT, time BIGINT, felt BIGINT, tsunami INT, magType TEXT>,
    geometry STRUCT<coordinates DOUBLE[]>
) WITH (
    connector = 'single_file',
    type = 'source',
    path = 'data/earthquakes.ndjson',
    format = 'json',
    wait_for_control = 'false'
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
    project = 'my-project',             -- set this: the project the table is in
    dataset = 'my_dataset',             -- set this: an existing dataset
    'table' = 'earthquakes',            -- set this, or leave it
    'table.create' = 'if_missing'
    -- A service account's key instead of the account gcloud logged in:
    --   , credentials = '/path/to/key.json'
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
