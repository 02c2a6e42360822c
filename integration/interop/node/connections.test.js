// What Node's writer does when the server ends its call, and when a table changes (write-api.md 3.6, 7.3).
'use strict';

const assert = require('node:assert');
const {once} = require('node:events');
const {test} = require('node:test');

const {Writer, refused} = require('./appends');
const world = require('./world');

const TABLE = 'node_connections';
const FIELDS = [{name: 'id', type: 'INTEGER'}];

test('a call without traffic is closed after ten minutes, and the next append opens another', {timeout: world.LIMIT}, async () => {
  const table = await world.makeTable(TABLE, FIELDS);
  const stream = await world.writer().createWriteStreamFullResponse({streamType: 'COMMITTED', destinationTable: table});
  const writer = await Writer.open(stream.name, stream.tableSchema);
  try {
    await writer.append([{id: 0}], 0);
    const closed = new Promise(resolve => writer.connection.onConnectionError(resolve));
    await world.advance(600);
    const error = await closed;
    assert.strictEqual(error.code, 10);
    assert.match(error.message, /Closing the stream because it has been inactive for 600 seconds\. Entity: /);
    await writer.append([{id: 1}], 1);
    assert.strictEqual(writer.opened, 2);
  } finally {
    writer.close();
  }
  assert.deepStrictEqual((await world.rows(TABLE))[0], [[0], [1]]);
});

test('the first row alone is flushed, though not by the connection itself', {timeout: world.LIMIT}, async () => {
  const table = await world.makeTable(TABLE, FIELDS);
  const stream = await world.writer().createWriteStreamFullResponse({streamType: 'BUFFERED', destinationTable: table});
  const writer = await Writer.open(stream.name, stream.tableSchema);
  try {
    await writer.append([{id: 0}, {id: 1}], 0);
    // It takes 0 for no offset and sends none (write-api.md 2.2), which this emulator refuses by default.
    const error = await writer.connection.flushRows({offset: 0}).catch(error => error);
    assert.deepStrictEqual(refused(error), {code: 'INVALID_ARGUMENT'});
    assert.deepStrictEqual((await world.rows(TABLE))[0], []);
    const answer = await world.writer().flushRows({writeStream: stream.name, offset: {value: 0}});
    assert.strictEqual(Number(answer.offset), 0);
  } finally {
    writer.close();
  }
  assert.deepStrictEqual((await world.rows(TABLE))[0], [[0]]);
});

test('a new column is told, and Node writes it by itself', {timeout: world.LIMIT}, async () => {
  const table = await world.makeTable(TABLE, FIELDS);
  const stream = await world.writer().createWriteStreamFullResponse({streamType: 'COMMITTED', destinationTable: table});
  const writer = await Writer.open(stream.name, stream.tableSchema);
  try {
    await writer.append([{id: 0}], 0);
    await world.addColumns(TABLE, [{name: 'note', type: 'STRING'}]);
    await world.advance(100);
    const told = once(writer.connection, 'schemaUpdated');
    const answer = await writer.append([{id: 1, note: 'not known yet'}], 1);
    const names = schema => schema.fields.map(field => field.name);
    assert.deepStrictEqual(names(answer.updatedSchema), ['id', 'note']);
    assert.deepStrictEqual(names((await told)[0]), ['id', 'note']);
    await writer.append([{id: 2, note: 'noted'}], 2);
    assert.strictEqual(writer.opened, 2);
  } finally {
    writer.close();
  }
  assert.deepStrictEqual((await world.rows(TABLE))[0], [[0, null], [1, null], [2, 'noted']]);
});
