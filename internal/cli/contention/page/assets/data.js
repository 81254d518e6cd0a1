// The data of the page: rows become objects, and what the rows imply (who kept whom waiting) is worked out once.

const report = decode(JSON.parse(document.getElementById("data").textContent));

function decode(raw) {
  raw.to = Math.max(raw.to, raw.from + 1); // an axis has a length, also where everything happened at once
  raw.holds = rows(raw, raw.holdColumns, raw.holds, "hold");
  raw.waits = rows(raw, raw.waitColumns, raw.waits, "wait");
  raw.strangers = rows(raw, raw.strangerColumns, raw.strangers, "stranger");
  raw.resources.forEach((resource, i) => Object.assign(resource, { index: i, kind: "resource", holds: [], waits: [] }));
  for (const hold of raw.holds) {
    hold.steps = stepsOf(raw, hold.steps);
    hold.kept = []; // the waits that it was in the way of
    hold.waited = null; // the wait that it ended
    raw.resources[hold.resource].holds.push(hold);
  }
  for (const stranger of raw.strangers) stranger.kept = [];
  for (const wait of raw.waits) {
    wait.blockers = blockersOf(raw, wait);
    wait.granted = wait.hold >= 0 ? raw.holds[wait.hold] : null;
    if (wait.granted) wait.granted.waited = wait;
    raw.resources[wait.resource].waits.push(wait);
  }
  return raw;
}

function rows(raw, columns, list, kind) {
  return list.map((row, index) => {
    const item = { kind, index };
    columns.forEach((column, i) => { item[column.name] = value(raw, column.is, row[i]); });
    if (kind !== "stranger") close(raw, item);
    return item;
  });
}

// close gives an end to what has none, because it was still open where the traces end.
function close(raw, item) {
  item.start = item.start ?? raw.from;
  item.end = Math.max(item.start, item.end ?? raw.to);
}

// value: times become milliseconds since 1970, null where unknown.
function value(raw, is, v) {
  switch (is) {
    case "string": return raw.strings[v];
    case "time": return time(raw, v);
    case "micros": return v / 1000;
    default: return v;
  }
}

function time(raw, micros) {
  return micros < 0 ? null : raw.from + micros / 1000;
}

function stepsOf(raw, flat) {
  const steps = [];
  for (let i = 0; i < flat.length; i += 7) {
    const [name, part, start, end, trace, span, endUnseen] = flat.slice(i, i + 7);
    const s = raw.strings;
    steps.push({ name: s[name], part: s[part], start: time(raw, start), end: time(raw, end), trace: s[trace], span: s[span], endUnseen: endUnseen === 1 });
  }
  return steps;
}

// blockersOf also tells each blocker's hold of it.
function blockersOf(raw, wait) {
  const flat = wait.blockers;
  const blockers = [];
  for (let i = 0; i < flat.length; i += 7) {
    const [at, from, to, flags, step, trace, span] = flat.slice(i, i + 7);
    const hold = at >= 0 ? raw.holds[at] : raw.strangers[-1 - at];
    const blocker = {
      wait, hold, from: from / 1000, to: to / 1000, named: (flags & 1) !== 0, last: (flags & 2) !== 0,
      step: raw.strings[step], trace: raw.strings[trace], span: raw.strings[span],
    };
    hold.kept.push(blocker);
    blockers.push(blocker);
  }
  return blockers;
}

const lengthOf = (item) => item.end - item.start;

const resourceOf = (item) => report.resources[item.resource];

// find gives what an address such as #wait-12 names, or null.
function find(hash) {
  const match = /^#(wait|hold|stranger|resource)-(\d+)$/.exec(hash);
  return (match && report[match[1] + "s"][Number(match[2])]) || null;
}

const addressOf = (item) => "#" + item.kind + "-" + item.index;
