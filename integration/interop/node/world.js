// What the tests share: Google's clients on the emulator.
'use strict';

// Both clients look for Google's metadata server before they see that they need no credentials.
process.env.METADATA_SERVER_DETECTION = 'none';

const {BigQuery} = require('@google-cloud/bigquery');
const {managedwriter} = require('@google-cloud/bigquery-storage');
const {grpc, PassThroughClient} = clientParts();

const PROJECT = 'demo';
const DATASET = 'interop';

// Longest test, in milliseconds.
const LIMIT = 60000;

let connected;

/** Makes the clients; `write` and `http` are the addresses of the emulator's Storage Write and REST APIs, `transcripts` is a folder. */
function connect(write, http, transcripts) {
  const [apiEndpoint, port] = write.split(':');
  connected = {
    http,
    transcripts,
    tables: new BigQuery({
      projectId: PROJECT,
      apiEndpoint: `http://${http}`,
      authClient: new PassThroughClient(),
    }),
    writer: new managedwriter.WriterClient({
      projectId: PROJECT,
      apiEndpoint,
      port: Number(port),
      sslCreds: grpc.credentials.createInsecure(),
    }),
  };
}

/** Ends the connections, so that the process can end. */
async function close() {
  connected.writer.close();
  await connected.writer.getClient().close();
}

/** A table without rows; a dataset around it, if there is none. */
async function makeTable(name, fields) {
  const dataset = connected.tables.dataset(DATASET);
  if (!(await dataset.exists())[0]) {
    await dataset.create();
  }
  await dataset.table(name).delete({ignoreNotFound: true});
  await dataset.createTable(name, {schema: {fields}});
  return `projects/${PROJECT}/datasets/${DATASET}/tables/${name}`;
}

/** Every row of a table as a query and as a listing return it, in the order of the first column. */
async function rows(name) {
  const [queried] = await connected.tables.query(`SELECT * FROM \`${PROJECT}.${DATASET}.${name}\``);
  const [listed] = await connected.tables.dataset(DATASET).table(name).getRows();
  return [queried, listed].map(found => found.map(row => Object.values(row)).sort((one, other) => one[0] - other[0]));
}

/** Puts the emulator's clock forward. */
async function advance(seconds) {
  const answer = await fetch(`http://${connected.http}/emulator/clock`, {
    method: 'POST',
    headers: {'content-type': 'application/json'},
    body: JSON.stringify({advance_ms: seconds * 1000}),
  });
  if (!answer.ok) {
    throw new Error(await answer.text());
  }
}

/** Adds columns to a table. */
async function addColumns(name, fields) {
  const table = connected.tables.dataset(DATASET).table(name);
  const [metadata] = await table.getMetadata();
  await table.setMetadata({schema: {fields: [...metadata.schema.fields, ...fields]}});
}

// The parts of the clients' own dependencies that make a client for plaintext without credentials.
function clientParts() {
  const at = {paths: [require.resolve('@google-cloud/bigquery-storage')]};
  const {grpc} = require(require.resolve('google-gax', at));
  const {PassThroughClient} = require(require.resolve('google-auth-library', {paths: [require.resolve('@google-cloud/bigquery')]}));
  return {grpc, PassThroughClient};
}

module.exports = {
  LIMIT,
  addColumns,
  advance,
  close,
  connect,
  makeTable,
  rows,
  tables: () => connected.tables,
  transcripts: () => connected.transcripts,
  writer: () => connected.writer,
};
