// The conversation of `scenario/golden.json`, held by Google's managed writer for Node with protobuf rows.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const {test} = require('node:test');

const golden = require('../scenario/golden.json');
const {Writer, refused} = require('./appends');
const world = require('./world');

// The name of this client in the golden transcript, and of its table in the fault plan.
const CLIENT = 'node-protobuf';
const TABLE = 'node_protobuf';

test('Node with protobuf sees the golden transcript', {timeout: world.LIMIT}, async () => {
  const notSeen = golden.not_seen.filter(rule => rule.client === CLIENT).map(rule => rule.field);
  const conversation = new Conversation(await world.makeTable(TABLE, golden.table));
  const transcript = [];
  try {
    for (const [number, step] of golden.steps.entries()) {
      const expected = {...step.see};
      notSeen.forEach(field => delete expected[field]);
      const seen = await conversation.take(step.do);
      transcript.push({do: step.do, see: seen});
      assert.deepStrictEqual(seen, expected, difference(number, step, seen));
    }
  } finally {
    conversation.close();
    fs.writeFileSync(path.join(world.transcripts(), `${CLIENT}.json`), JSON.stringify(transcript, null, 1) + '\n');
  }
});

function difference(number, step, seen) {
  return `step ${number}, ${JSON.stringify(step.do)} (${step.fact}):\nexpected ${JSON.stringify(step.see)}\nfound    ${JSON.stringify(seen)}`;
}

/** Carries out steps, and says what there was to see. */
class Conversation {
  constructor(table) {
    this.table = table;
  }

  async take(step) {
    try {
      if ('create' in step) {
        return await this.create(step.create);
      }
      if ('attach' in step) {
        return await this.attach();
      }
      if ('flush' in step) {
        // The connection's own flushRows sends no offset when asked for 0; no step does.
        const answer = await this.writer.connection.flushRows({offset: step.flush});
        return {code: 'OK', offset: Number(answer.offset)};
      }
      if ('finalize' in step) {
        // The connection's own finalize would close it first.
        const answer = await world.writer().finalizeWriteStream({name: this.stream.name});
        return {code: 'OK', row_count: Number(answer.rowCount)};
      }
    } catch (error) {
      return refused(error);
    }
    if ('append' in step) {
      const seen = await this.append(step.append, step.offset);
      if (step.cut === 'line') {
        delete seen.code;
      }
      return seen;
    }
    assert.deepStrictEqual(step, {read: 'rows'});
    return await this.read();
  }

  async create(streamType) {
    this.stream = await world.writer().createWriteStreamFullResponse({streamType, destinationTable: this.table});
    this.writer = await Writer.open(this.stream.name, this.stream.tableSchema);
    return {code: 'OK'};
  }

  async attach() {
    return {code: 'OK', type: (await world.writer().getWriteStream({streamId: this.stream.name})).type};
  }

  async append(rows, offset) {
    const named = rows.map(([id, name]) => ({id, name}));
    let seen;
    try {
      const answer = await this.writer.append(named, offset);
      seen = {code: 'OK', offset: Number(answer.appendResult.offset.value)};
    } catch (error) {
      seen = refused(error);
    }
    return {...seen, connection: this.writer.opened};
  }

  async read() {
    const [queried, listed] = await world.rows(TABLE);
    assert.deepStrictEqual(queried, listed);
    return {rows: queried};
  }

  close() {
    this.writer?.close();
  }
}
