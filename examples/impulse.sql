-- Rows without end into an emulated BigQuery table, to watch checkpoints go by. Stop it with Ctrl-C:
--
--     cargo run -- run examples/impulse.sql --parallelism 2

CREATE TABLE impulse WITH (
    connector = 'impulse',
    event_rate = '1000'         -- rows a second, over all subtasks
);

CREATE TABLE numbers (
    subtask BIGINT NOT NULL,
    counter BIGINT NOT NULL,
    is_even BOOLEAN NOT NULL,
    label TEXT
) WITH (
    connector = 'bigquery',
    type = 'sink',
    endpoint = 'emulator',
    project = 'demo',
    dataset = 'examples',
    'table' = 'numbers',
    'table.create' = 'if_missing',
    'write.append.linger' = interval '100 milliseconds'
);

INSERT INTO numbers
SELECT subtask_index, counter, counter % 2 = 0, concat('row ', CAST(counter AS TEXT))
FROM impulse;
