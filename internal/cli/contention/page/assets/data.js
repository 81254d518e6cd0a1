// The data of the page: rows become objects, and what the rows imply (who kept whom waiting) is worked out once.

const report = decode(JSON.parse(document.getElementById("data").textContent));

function decode(raw) {
  raw.to = Math.max(raw.to, raw.from + 1); // an axis has a length, also where everything happened at once
  const places = new Map(raw.resources.map((resource, i) => [resource.name, i]));
  for (const kind of ["hold", "wait"]) {
    raw[kind + "s"] = rows(raw, kind + "s", raw[kind + "s"]);
    raw[kind + "s"].forEach((item, index) => Object.assign(close(raw, item), { kind, index, resource: places.get(item.resource) }));
  }
  raw.resources.forEach((resource, i) => Object.assign(resource, { index: i, kind: "resource", holds: [], waits: [] }));
  for (const hold of raw.holds) {
    hold.kept = []; // the waits that it was in the way of
    hold.waited = null; // the wait that it ended
    raw.resources[hold.resource].holds.push(hold);
  }
  raw.strangers = []; // holds that blocked a wait and are not in the page: not read, or left out
  const strangers = new Map();
  for (const wait of raw.waits) {
    for (const blocker of wait.blockers) {
      blocker.wait = wait;
      if (blocker.betweenSteps) blocker.step = "after " + blocker.step;
      blocker.hold = blocker.hold >= 0 ? raw.holds[blocker.hold] : strangerOf(raw, strangers, wait, blocker);
      blocker.hold.kept.push(blocker);
    }
    wait.granted = wait.hold >= 0 ? raw.holds[wait.hold] : null;
    if (wait.granted) wait.granted.waited = wait;
    raw.resources[wait.resource].waits.push(wait);
  }
  return raw;
}

function strangerOf(raw, strangers, wait, { lockId, owner, workflow, fence, hold }) {
  const key = JSON.stringify([wait.resource, lockId, fence, hold]);
  if (!strangers.has(key)) {
    const stranger = { kind: "stranger", index: raw.strangers.length, resource: wait.resource, lockId, owner, workflow, fence, read: hold === -2, kept: [] };
    strangers.set(key, stranger);
    raw.strangers.push(stranger);
  }
  return strangers.get(key);
}

function rows(raw, kind, list) {
  return list.map((row) => Object.fromEntries(raw.columns[kind].map((column, i) => [column.name, value(raw, column.is, row[i])])));
}

// close gives an end to what has none, because it was still open where the traces end.
function close(raw, item) {
  item.start = item.start ?? raw.from;
  item.end = Math.max(item.start, item.end ?? raw.to);
  return item;
}

// value: times become milliseconds since 1970, null where unknown.
function value(raw, is, v) {
  switch (is) {
    case "string": return raw.strings[v];
    case "time": return time(raw, v);
    case "micros": return v / 1000;
    case "flag": return v === 1;
    case "steps": case "blockers": return rows(raw, is, v);
    default: return v;
  }
}

function time(raw, micros) {
  return micros < 0 ? null : raw.from + micros / 1000;
}

const lengthOf = (item) => item.end - item.start;

const resourceOf = (item) => report.resources[item.resource];

// find gives what an address such as #wait-12 names, or null.
function find(hash) {
  const match = /^#(wait|hold|stranger|resource)-(\d+)$/.exec(hash);
  return (match && report[match[1] + "s"][Number(match[2])]) || null;
}

const addressOf = (item) => "#" + item.kind + "-" + item.index;
