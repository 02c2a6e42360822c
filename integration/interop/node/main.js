// Runs Node's tests against an emulator that listens, for `run` beside this folder: main.js GRPC HTTP TRANSCRIPTS, two addresses and a folder.
'use strict';

const {after} = require('node:test');

const world = require('./world');

const [grpc, http, transcripts] = process.argv.slice(2);
world.connect(grpc, http, transcripts);
after(world.close);

require('./connections.test');
require('./scenario.test');
require('./tables.test');
require('./types.test');
