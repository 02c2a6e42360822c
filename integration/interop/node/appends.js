// Google's managed writer on one stream, and what a client sees of an answer.
'use strict';

const {adapt, managedwriter, protos} = require('@google-cloud/bigquery-storage');
const gax = require(require.resolve('google-gax', {paths: [require.resolve('@google-cloud/bigquery-storage')]}));

const world = require('./world');

const {StorageError} = protos.google.cloud.bigquery.storage.v1;

// What clients parse of a text (write-api.md 3.3), and the words by which a finalized stream is known.
const PARSED = /expected offset -?\d+, received -?\d+|Stream has been finalized/;

/** Appends JSON rows, which Google's client makes protobuf messages of. */
class Writer {
  /** `tableSchema` is that of a WriteStream; `options` are those of a JSONWriter. */
  static async open(stream, tableSchema, options = {}) {
    const writer = new Writer();
    writer.opened = 1;
    writer.connection = await world.writer().createStreamConnection({streamId: stream});
    writer.connection.on('reconnect', () => writer.opened++);
    // A connection's failure is told to the append that it fails.
    writer.connection.on('error', () => {});
    writer.json = new managedwriter.JSONWriter({
      connection: writer.connection,
      protoDescriptor: adapt.convertStorageSchemaToProto2Descriptor(tableSchema, 'root'),
      ...options,
    });
    return writer;
  }

  /** The answer; a refusal is thrown, though the client itself hands over one that came inside the stream. */
  async append(rows, offset) {
    const answer = await this.json.appendRows(rows, offset).getResult();
    if (answer.error) {
      throw Object.assign(new Error(answer.error.message), {code: answer.error.code, answer});
    }
    return answer;
  }

  close() {
    this.json.close();
  }
}

/** What a client sees of a refusal: its code, the StorageError's, and the part of the text that clients parse. */
function refused(error) {
  if (typeof error.code !== 'number') {
    throw error;
  }
  const seen = {code: gax.Status[error.code]};
  const code = storageError(error);
  if (code !== undefined) {
    seen.storage_error = code;
  }
  const parsed = PARSED.exec(error.message);
  if (parsed) {
    seen.text = parsed[0];
  }
  return seen;
}

/** The code of the StorageError, by name: in the answer if there is one, else in the trailers of the call. */
function storageError(error) {
  const found = error.answer
    ? error.answer.error.details
        .filter(detail => detail.type_url.endsWith('/google.cloud.bigquery.storage.v1.StorageError'))
        .map(detail => StorageError.decode(detail.value))
    : managedwriter.parseStorageErrors(error);
  return found.length > 0 ? StorageError.StorageErrorCode[found[0].code] : undefined;
}

module.exports = {Writer, refused};
