// Runs Node's tests against an emulator that listens, for `run` beside this folder: main.js GRPC HTTP, each host:port.
'use strict';

const {after} = require('node:test');

const world = require('./world');

const [grpc, http] = process.argv.slice(2);
world.connect(grpc, http);
after(world.close);

require('./connections.test');
require('./scenario.test');
require('./tables.test');
require('./types.test');
