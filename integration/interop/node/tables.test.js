// Google's Node client for tables and queries: changes, rows as JSON, statements, parameters, views, jobs.
'use strict';

const assert = require('node:assert');
const {test} = require('node:test');

const world = require('./world');

const TABLE = 'node_tables';
const FIELDS = [
  {name: 'id', type: 'INTEGER', mode: 'REQUIRED'},
  {name: 'name', type: 'STRING'},
];

async function refused(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error('was not refused');
}

test('Node changes a table and reads it back', {timeout: world.LIMIT}, async () => {
  await world.makeTable(TABLE, FIELDS);
  const table = world.tables().dataset('interop').table(TABLE);
  await world.addColumns(TABLE, [{name: 'tags', type: 'STRING', mode: 'REPEATED'}]);
  await table.setMetadata({description: 'text', labels: {a: 'b'}});
  const [metadata] = await table.getMetadata();
  assert.deepStrictEqual(
    metadata.schema.fields.map(field => [field.name, field.type, field.mode]),
    [['id', 'INTEGER', 'REQUIRED'], ['name', 'STRING', 'NULLABLE'], ['tags', 'STRING', 'REPEATED']]
  );
  assert.deepStrictEqual([metadata.description, metadata.labels], ['text', {a: 'b'}]);
  const error = await refused(table.setMetadata({schema: {fields: FIELDS.slice(1)}}));
  assert.strictEqual(error.code, 400);
  assert.match(error.message, /Provided Schema does not match Table demo:interop\.node_tables\. Field id is missing in new schema/);
});

test('Node inserts rows as JSON', {timeout: world.LIMIT}, async () => {
  await world.makeTable(TABLE, FIELDS);
  const table = world.tables().dataset('interop').table(TABLE);
  await table.insert([{id: 1, name: 'a'}, {id: 2}]);
  const [queried, listed] = await world.rows(TABLE);
  assert.deepStrictEqual(queried, [[1, 'a'], [2, null]]);
  assert.deepStrictEqual(listed, queried);
  const error = await refused(table.insert([{id: 3}, {name: 'no id'}]));
  assert.strictEqual(error.name, 'PartialFailureError');
  assert.deepStrictEqual(error.errors.map(one => one.errors[0].reason), ['stopped', 'invalid']);
  const skipped = await refused(table.insert([{id: 3}, {name: 'no id'}], {skipInvalidRows: true, partialRetries: 0}));
  assert.deepStrictEqual(skipped.errors.map(one => one.errors[0].reason), ['invalid']);
  assert.deepStrictEqual((await world.rows(TABLE))[0], [[1, 'a'], [2, null], [3, null]]);
});

test('Node runs statements and queries with parameters', {timeout: world.LIMIT}, async () => {
  await world.makeTable(TABLE, FIELDS);
  const client = world.tables();
  const defaultDataset = {datasetId: 'interop'};
  const [job] = await client.createQueryJob({query: `INSERT INTO ${TABLE} VALUES (1, 'a'), (2, 'b')`, defaultDataset});
  await job.getQueryResults();
  const [done] = await job.getMetadata();
  assert.deepStrictEqual(
    [done.statistics.query.statementType, done.statistics.query.numDmlAffectedRows],
    ['INSERT', '2']
  );
  const [named] = await client.query({
    query: `SELECT name, @when AS day FROM ${TABLE} WHERE id IN UNNEST(@ids) AND name = @name`,
    params: {ids: [1, 2], name: 'b', when: client.date('2024-02-29')},
    defaultDataset,
  });
  assert.deepStrictEqual(named.map(row => [row.name, row.day.value]), [['b', '2024-02-29']]);
  const [positional] = await client.query({query: 'SELECT ? + 1 AS n, ? AS s', params: [41, {x: 'y'}]});
  assert.deepStrictEqual(JSON.parse(JSON.stringify(positional)), [{n: 42, s: {x: 'y'}}]);
  await client.query({query: `CREATE OR REPLACE VIEW v AS SELECT id * 10 AS tens FROM interop.${TABLE}`, defaultDataset});
  const [tens] = await client.query('SELECT tens FROM interop.v ORDER BY tens');
  assert.deepStrictEqual(tens, [{tens: 10}, {tens: 20}]);
  await client.query({query: 'DROP VIEW v', defaultDataset});
  const error = await refused(client.query('SELECT * FROM interop.v'));
  assert.strictEqual(error.code, 404);
});

test('Node asks for dry runs and lists jobs', {timeout: world.LIMIT}, async () => {
  const client = world.tables();
  const [dry] = await client.createQueryJob({query: 'SELECT 1 AS a', dryRun: true});
  assert.deepStrictEqual(dry.metadata.statistics.query.schema.fields, [{name: 'a', type: 'INTEGER', mode: 'NULLABLE'}]);
  const [job] = await client.createQueryJob({query: 'SELECT 1 AS a', jobId: `node_${process.pid}`});
  const [rows] = await job.getQueryResults();
  assert.deepStrictEqual(rows, [{a: 1}]);
  const [jobs] = await client.getJobs({maxResults: 1});
  assert.strictEqual(jobs[0].id, job.id);
});
