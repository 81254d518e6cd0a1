// Runs a program with LOCKSTEP_MONGODB_URI naming a server of MongoDB's wire protocol that is
// mingo, and ends with its status:
//
//	node lockcore/internal/mongoengine/mingo/server.mjs go test -run '^TestPipelines' ./lockcore/internal/mongoengine
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { deserialize, serialize } from 'bson';
import { answer } from './database.mjs';

const OP_REPLY = 1;
const OP_QUERY = 2004;
const OP_MSG = 2013;
const HEADER = 16;

// commandOf reads the body of an OP_MSG: flags, and sections that are a document, or a name with
// documents.
function commandOf(message) {
  const command = {};
  for (let from = HEADER + 4; from < message.length; ) {
    const size = message.readInt32LE(from + 1);
    const section = message.subarray(from + 1, from + 1 + size);
    if (message[from] === 0) {
      Object.assign(command, deserialize(section));
    } else {
      const nameEnd = section.indexOf(0, 4);
      command[section.subarray(4, nameEnd).toString()] = documents(section.subarray(nameEnd + 1));
    }
    from += 1 + size;
  }
  return command;
}

function documents(bytes) {
  const docs = [];
  for (let from = 0; from < bytes.length; from += bytes.readInt32LE(from)) {
    docs.push(deserialize(bytes.subarray(from, from + bytes.readInt32LE(from))));
  }
  return docs;
}

// integers makes integers of the numbers that do not fit into 32 bits, which would be sent as
// doubles.
function integers(v) {
  if (Number.isInteger(v) && Math.abs(v) > 0x7fffffff) return BigInt(v);
  if (Array.isArray(v)) return v.map(integers);
  if (v === null || typeof v !== 'object' || Object.getPrototypeOf(v) !== Object.prototype) return v;
  return Object.fromEntries(Object.entries(v).map(([name, field]) => [name, integers(field)]));
}

function reply(message) {
  const opcode = message.readInt32LE(12);
  let head, body;
  switch (opcode) {
    case OP_MSG: // the answer has flags, and the kind of its only section
      head = Buffer.alloc(HEADER + 5);
      head.writeInt32LE(OP_MSG, 12);
      body = answer(commandOf(message));
      break;
    case OP_QUERY: // how a client says hello: flags, the name of a collection, two numbers, a document
      head = Buffer.alloc(HEADER + 20); // flags, a cursor, its position, and how many documents follow
      head.writeInt32LE(OP_REPLY, 12);
      head.writeInt32LE(1, HEADER + 16);
      body = answer(deserialize(message.subarray(message.indexOf(0, HEADER + 4) + 9)));
      break;
    default:
      throw new Error(`a message of the kind ${opcode}`);
  }
  const doc = serialize(integers(body));
  head.writeInt32LE(head.length + doc.length, 0);
  head.writeInt32LE(message.readInt32LE(4), 8); // the message that it answers
  return Buffer.concat([head, doc]);
}

function serve(socket) {
  let read = Buffer.alloc(0);
  socket.setNoDelay(true);
  socket.on('error', () => socket.destroy());
  socket.on('data', (data) => {
    read = Buffer.concat([read, data]);
    while (read.length >= HEADER && read.length >= read.readInt32LE(0)) {
      const message = read.subarray(0, read.readInt32LE(0));
      read = read.subarray(message.length);
      socket.write(reply(message));
    }
  });
}

const [program, ...args] = process.argv.slice(2);
const server = createServer(serve).listen(0, '127.0.0.1', () => {
  const uri = `mongodb://127.0.0.1:${server.address().port}/?directConnection=true`;
  const child = spawn(program, args, { stdio: 'inherit', env: { ...process.env, LOCKSTEP_MONGODB_URI: uri } });
  child.on('error', (err) => {
    console.error(err.message);
    process.exit(1);
  });
  child.on('exit', (status) => process.exit(status ?? 1));
});
