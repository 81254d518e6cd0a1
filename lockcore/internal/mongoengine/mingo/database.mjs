// The commands that the lock engine and its tests send, on documents in memory. Node.js runs one at
// a time.
import { EJSON } from 'bson';
import { at, isDocument, matches, projected, run } from './pipeline.mjs';

const collections = new Map(); // by database and name: documents by their _id

function collection(command, name) {
  const key = `${command.$db}.${name}`;
  if (!collections.has(key)) collections.set(key, new Map());
  return collections.get(key);
}

const idOf = (doc) => EJSON.stringify({ _id: doc._id });

// found looks only at documents that the filter names, if it does: a run of the tests leaves
// thousands behind.
function found(docs, filter) {
  const id = filter._id;
  const named = isDocument(id) ? (id.$in ?? (id.$eq && [id.$eq])) : id && [id];
  const candidates = named ? named.map((_id) => docs.get(idOf({ _id }))).filter(Boolean) : [...docs.values()];
  return candidates.filter((doc) => matches(doc, filter));
}

// update changes the documents that match, or makes one of what the filter says, and returns what
// became of each.
function update(docs, { q, u, multi, upsert }) {
  if (!Array.isArray(u) && Object.keys(u).some((key) => key.startsWith('$'))) throw failure(9, 'updates are pipelines or whole documents');
  let before = found(docs, q).slice(0, multi ? undefined : 1);
  const made = before.length === 0 && upsert === true;
  if (made) {
    const equal = Object.entries(q).map(([name, v]) => [name, isDocument(v) ? v.$eq : v]);
    before = [Object.fromEntries(equal.filter(([, v]) => v !== undefined))];
    if (docs.has(idOf(before[0]))) throw failure(11000, 'E11000 duplicate key');
  }
  return before.map((doc) => {
    const after = Array.isArray(u) ? run([doc], u)[0] : { _id: doc._id, ...u };
    if (idOf(after) !== idOf(doc)) throw failure(66, 'an update changes _id');
    docs.set(idOf(after), after);
    return { after, changed: !made && EJSON.stringify(after) !== EJSON.stringify(doc) };
  });
}

function insert(docs, made) {
  const twice = made.findIndex((doc) => docs.has(idOf(doc)));
  const inserted = twice < 0 ? made : made.slice(0, twice);
  for (const doc of inserted) docs.set(idOf(doc), doc);
  return twice < 0 ? { n: inserted.length } : { n: inserted.length, writeErrors: [{ index: twice, code: 11000, errmsg: 'E11000 duplicate key' }] };
}

const cursor = (command, name, docs) => ({ cursor: { id: 0n, ns: `${command.$db}.${name}`, firstBatch: docs } });

const nothing = () => ({});
const hello = () => ({
  isWritablePrimary: true, ismaster: true, helloOk: true, minWireVersion: 0, maxWireVersion: 21, logicalSessionTimeoutMinutes: 30,
  maxBsonObjectSize: 16 << 20, maxMessageSizeBytes: 48 << 20, maxWriteBatchSize: 100000, localTime: new Date(Date.now()),
});

const handlers = {
  hello,
  isMaster: hello,
  ping: nothing,
  endSessions: nothing,
  createIndexes: nothing,
  find: (c) => cursor(c, c.find, found(collection(c, c.find), c.filter ?? {}).slice(0, c.limit || undefined)),
  aggregate: (c) => {
    const filter = c.pipeline[0]?.$match;
    return cursor(c, c.aggregate, run(found(collection(c, c.aggregate), filter ?? {}), c.pipeline.slice(filter ? 1 : 0)));
  },
  findAndModify: (c) => {
    if (!c.new) throw failure(9, 'findAndModify is asked for the document after');
    const changed = update(collection(c, c.findAndModify), { q: c.query, u: c.update, upsert: c.upsert });
    return { value: changed.map((one) => projected(one.after, c.fields ?? {}))[0] ?? null };
  },
  update: (c) => {
    const updated = [], writeErrors = [];
    for (const [index, one] of c.updates.entries()) {
      try {
        updated.push(...update(collection(c, c.update), one));
      } catch ({ code, message }) {
        writeErrors.push({ index, code, errmsg: message });
        if (c.ordered !== false) break;
      }
    }
    const answer = { n: updated.length, nModified: updated.filter((one) => one.changed).length };
    return writeErrors.length > 0 ? { ...answer, writeErrors } : answer;
  },
  insert: (c) => insert(collection(c, c.insert), c.documents),
  dropDatabase: (c) => {
    for (const key of collections.keys()) if (key.startsWith(`${c.$db}.`)) collections.delete(key);
    return {};
  },
};

const failure = (code, text) => Object.assign(new Error(text), { code });

// answer is what a server answers to a command. What mingo refuses is an error, in mingo's words.
export function answer(command) {
  const name = Object.keys(command)[0];
  at(Math.floor(performance.timeOrigin + performance.now()));
  try {
    if (!handlers[name]) throw failure(59, `there is no command ${name}`);
    return { ...handlers[name](command), ok: 1 };
  } catch (err) {
    return { ok: 0, code: err.code ?? 2, errmsg: `mingo: ${err.message}` };
  }
}
