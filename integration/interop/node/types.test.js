// What Node's writer makes of JSON: Google's own encoding of every type that it has (write-api.md 5.1).
'use strict';

const assert = require('node:assert');
const {test} = require('node:test');

const {Writer, refused} = require('./appends');
const world = require('./world');

const TABLE = 'node_types';

const FIELDS = [
  {name: 'id', type: 'INTEGER', mode: 'REQUIRED'},
  {name: 'flag', type: 'BOOLEAN'},
  {name: 'ratio', type: 'FLOAT'},
  {name: 'name', type: 'STRING'},
  {name: 'raw', type: 'BYTES'},
  {name: 'day', type: 'DATE'},
  {name: 'clock', type: 'TIME'},
  {name: 'civil', type: 'DATETIME'},
  {name: 'moment', type: 'TIMESTAMP'},
  {name: 'price', type: 'NUMERIC'},
  {name: 'large', type: 'BIGNUMERIC'},
  {name: 'document', type: 'JSON'},
  {name: 'place', type: 'GEOGRAPHY'},
  {name: 'period', type: 'RANGE', rangeElementType: {type: 'DATE'}},
  {name: 'inner', type: 'RECORD', fields: [{name: 'a b', type: 'STRING'}, {name: 'many', type: 'INTEGER', mode: 'REPEATED'}]},
  {name: 'many', type: 'STRING', mode: 'REPEATED'},
];

test('Node writes every type', {timeout: world.LIMIT}, async () => {
  const table = await world.makeTable(TABLE, FIELDS);
  const moment = new Date('2016-12-03T14:11:27.123Z');
  const full = {
    id: 1,
    flag: true,
    ratio: 0.1,
    name: '東京',
    raw: Buffer.from([0, 255]),
    day: new Date('2016-12-03'),
    clock: '12:34:56.789000',
    civil: '2016-12-03T14:11:27.123456',
    moment,
    price: -3,
    large: '0.00000000000000000000000000000000000001',
    document: '{"a":[1,null]}',
    place: 'POINT(1 2)',
    period: {start: new Date('2016-12-03'), end: null},
    inner: {'a b': 'x', many: [1, 2]},
    many: ['', 'b'],
  };
  await onDefaultStream(table, async writer => {
    const answer = await writer.append([full, {id: 2}]);
    assert.strictEqual(answer.appendResult.offset, null);
  });
  const [queried, listed] = await world.rows(TABLE);
  const plain = found => JSON.parse(JSON.stringify(found));
  const expected = [
    [
      1,
      true,
      0.1,
      '東京',
      full.raw,
      {value: '2016-12-03'},
      {value: '12:34:56.789000'},
      {value: '2016-12-03T14:11:27.123456'},
      {value: '2016-12-03T14:11:27.123Z'},
      '-3',
      '1e-38',
      full.document,
      {value: 'POINT(1 2)'},
      {elementType: 'DATE', start: {value: '2016-12-03'}, end: null},
      {'a b': 'x', many: [1, 2]},
      ['', 'b'],
    ],
    [2, ...Array(14).fill(null), []],
  ];
  assert.deepStrictEqual(plain(queried), plain(expected));
  assert.deepStrictEqual(plain(listed), plain(expected));
});

test('a bad row is named in the answer, which is not an error to the client', {timeout: world.LIMIT}, async () => {
  const table = await world.makeTable(TABLE, [{name: 'id', type: 'INTEGER'}, {name: 'name', type: 'STRING', maxLength: '3'}]);
  await onDefaultStream(table, async writer => {
    const error = await writer.append([{id: 1, name: 'abc'}, {id: 2, name: 'abcd'}]).catch(error => error);
    assert.deepStrictEqual(refused(error), {code: 'INVALID_ARGUMENT'});
    assert.deepStrictEqual(
      error.answer.rowErrors.map(({index, code, message}) => [Number(index), code, message]),
      [[1, 'FIELDS_ERROR', 'Field name: STRING(3) has maximum length 3 but got a value with length 4 on field name.']]
    );
    await writer.append([{id: 3, name: 'abc'}]);
    assert.strictEqual(writer.opened, 1);
  });
  assert.deepStrictEqual((await world.rows(TABLE))[0], [[3, 'abc']]);
});

test('a call that the server ends carries its StorageError in the trailer that Node reads', {timeout: world.LIMIT}, async () => {
  const table = await world.makeTable(TABLE, [{name: 'id', type: 'INTEGER'}]);
  const schema = {fields: [{name: 'id', type: 'INT64', mode: 'NULLABLE'}, {name: 'more', type: 'STRING', mode: 'NULLABLE'}]};
  const writer = await Writer.open(`${table}/streams/_default`, schema);
  try {
    const error = await writer.append([{id: 1, more: 'x'}]).catch(error => error);
    assert.deepStrictEqual(refused(error), {code: 'INVALID_ARGUMENT', storage_error: 'SCHEMA_MISMATCH_EXTRA_FIELDS'});
  } finally {
    writer.close();
  }
});

async function onDefaultStream(table, act) {
  const streamId = `${table}/streams/_default`;
  const stream = await world.writer().getWriteStream({streamId, view: 'FULL'});
  const writer = await Writer.open(streamId, stream.tableSchema);
  try {
    await act(writer);
  } finally {
    writer.close();
  }
}
