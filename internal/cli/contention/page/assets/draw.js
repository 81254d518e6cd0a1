// What is drawn for a window of time. The library draws one element per datum, which ten thousand holds are too many for; so
// everything of one colour is one shape here, what is out of view is not looked at, and what falls on the same pixels is one
// rectangle. Coordinates are pixels of the canvas.

echarts.registerShape("bars", echarts.extendShape({
  type: "bars",
  shape: { rects: [] },
  buildPath(context, shape) {
    const r = shape.rects;
    for (let i = 0; i < r.length; i += 4) context.rect(r[i], r[i + 1], r[i + 2], r[i + 3]);
  },
}));

const theme = {};

// readTheme takes the colours from the style sheet, which knows whether it is dark.
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const names = ["--ink", "--muted", "--faint", "--line", "--surface", "--sunken", "--accent", "--released", "--open", "--expired", "--revoked", "--wait",
    "--wait-deadlock", "--wait-left", "--wait-unclaimed", "--queue", "--queue-soft", "--on-bar", "--on-wait", "--select", "--link", "--window", "--owner-rest"];
  for (let i = 0; i < OWNER_COLOURS; i++) names.push("--owner-" + i);
  for (const n of names) theme[n] = style.getPropertyValue(n).trim();
}

const OWNER_COLOURS = 8;
const FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

// LETTER is how wide a letter of it is, generously.
const LETTER = 6.9;

// viewOf maps times to pixels.
function viewOf(t0, t1, left, right) {
  const scale = (right - left) / (t1 - t0);
  return { t0, t1, left, right, x: (t) => left + (t - t0) * scale, time: (x) => t0 + (x - left) / scale };
}

// barBox is where a stretch of time is on a lane, or null where it is out of view. Nothing is narrower than a pixel.
function barBox(view, section, lane, start, end) {
  if (end < view.t0 || start > view.t1) return null;
  const x = Math.max(view.left, Math.round(view.x(start)));
  const right = Math.min(view.right, Math.round(view.x(end)));
  const y = Math.round(section.y + lane * section.lane);
  const gap = section.lane >= 10 ? 3 : section.lane >= 4 ? 1 : 0;
  const height = Math.max(1, Math.round(section.y + (lane + 1) * section.lane) - y - gap);
  const width = Math.max(1, right - x - (right - x > 4 ? 1 : 0));
  return { x, y, width, height };
}

// laneBars collects, by colour, the rectangles of a section.
function laneBars(view, section, partsOf) {
  const byColour = new Map();
  section.lanes.forEach((lane, i) => {
    const open = new Map(); // the last rectangle of each colour on this lane
    for (let n = firstEndingAfter(lane, view.t0); n < lane.length && lane[n].start <= view.t1; n++) {
      for (const [start, end, colour] of partsOf(lane[n])) addBar(byColour, open, colour, barBox(view, section, i, start, end));
    }
  });
  return byColour;
}

function addBar(byColour, open, colour, box) {
  if (!box) return;
  let rects = byColour.get(colour);
  if (!rects) byColour.set(colour, rects = []);
  const last = open.get(colour);
  if (last !== undefined && box.x <= rects[last] + rects[last + 2] && (box.width < 3 || rects[last + 2] < 3)) {
    rects[last + 2] = Math.max(rects[last + 2], box.x + box.width - rects[last]);
    return;
  }
  open.set(colour, rects.length);
  rects.push(box.x, box.y, box.width, box.height);
}

function barShapes(byColour, opacity) {
  // What ended badly is drawn last: it must not vanish under its neighbours where all are thin.
  const colours = [...byColour.keys()].sort((a, b) => rankOf(a) - rankOf(b));
  return colours.map((colour) => ({ type: "bars", silent: true, shape: { rects: byColour.get(colour) }, style: { fill: theme[colour], opacity } }));
}

const rankOf = (colour) => (colour === "--expired" || colour === "--revoked" || colour === "--wait-deadlock" ? 1 : 0);

// labels are written on bars that have room, and on so many only.
function labels(view, section, fill, isDim) {
  const texts = [];
  if (section.lane < 13) return texts;
  section.lanes.forEach((lane, i) => {
    for (let n = firstEndingAfter(lane, view.t0); n < lane.length && lane[n].start <= view.t1 && texts.length < 150; n++) {
      const box = barBox(view, section, i, lane[n].start, lane[n].end);
      if (!box || box.width < 48) continue;
      const style = { fill: isDim(lane[n]) ? theme["--faint"] : fill, verticalAlign: "middle" };
      texts.push(text(box.x + 5, box.y + box.height / 2 + 0.5, labelOf(lane[n], Math.floor((box.width - 8) / LETTER)), style));
    }
  });
  return texts;
}

// labelOf is what of a name has room. Names of one kind mostly differ at their ends, so their beginnings go first, unless
// most names end alike.
function labelOf(item, room) {
  const owner = shortOwner(item.owner);
  const full = item.step ? owner + " · " + item.step : owner;
  if (full.length <= room) return full;
  if (owner.length <= room) return owner;
  return endsAlike() ? owner.slice(0, room - 1) + "…" : "…" + owner.slice(1 - room);
}

let alike;

// endsAlike tells whether most owners have the same last characters.
function endsAlike() {
  if (alike === undefined) {
    const ends = new Map();
    for (const hold of report.holds) ends.set(hold.owner.slice(-5), (ends.get(hold.owner.slice(-5)) || 0) + 1);
    alike = Math.max(0, ...ends.values()) > report.holds.length / 2 && new Set(report.holds.map((hold) => hold.owner)).size > 2;
  }
  return alike;
}

function text(x, y, content, style) {
  return { type: "text", silent: true, x, y, style: { text: content, font: FONT, fill: theme["--muted"], ...style } };
}

// queueColumns are, for each pixel, the longest that the queue was meanwhile.
function queueColumns(view, queue) {
  const columns = new Float64Array(Math.max(1, Math.ceil(view.right - view.left)));
  const { times, lengths } = queue;
  for (let i = Math.max(0, upperBound(times, view.t0) - 1); i < times.length && times[i] <= view.t1; i++) {
    if (lengths[i] === 0) continue;
    const end = i + 1 < times.length ? times[i + 1] : view.t1;
    const last = Math.min(columns.length - 1, Math.floor(view.x(end) - view.left));
    for (let c = Math.max(0, Math.floor(view.x(times[i]) - view.left)); c <= last; c++) columns[c] = Math.max(columns[c], lengths[i]);
  }
  return columns;
}

function upperBound(sorted, t) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= t) low = middle + 1;
    else high = middle;
  }
  return low;
}

// queueShapes is a step chart: an area, and its upper edge.
function queueShapes(view, queue, box) {
  const columns = queueColumns(view, queue);
  const area = [];
  const edge = [];
  const bottom = box.y + box.height;
  let before = 0;
  for (let c = 0; c < columns.length;) {
    const from = c;
    while (c < columns.length && columns[c] === columns[from]) c++;
    const height = columns[from] && Math.max(1, Math.round(box.height * columns[from] / Math.max(1, queue.longest)));
    edge.push(view.left + from, bottom - Math.max(height, before), 1, Math.abs(height - before));
    before = height;
    if (height === 0) continue;
    area.push(view.left + from, bottom - height, c - from, height);
    edge.push(view.left + from, bottom - height, c - from, 1);
  }
  return [
    { type: "bars", silent: true, shape: { rects: area }, style: { fill: theme["--queue-soft"] } },
    { type: "bars", silent: true, shape: { rects: edge }, style: { fill: theme["--queue"] } },
  ];
}

function outline(box, colour, width) {
  const grow = width / 2;
  return {
    type: "rect", silent: true, shape: { x: box.x - grow, y: box.y - grow, width: box.width + width, height: box.height + width, r: 2 },
    style: { fill: "none", stroke: theme[colour], lineWidth: width },
  };
}

const filled = (box, colour) => ({ type: "rect", silent: true, shape: { ...box }, style: { fill: theme[colour] } });

// connection is a line between a wait and a hold at one moment, with a dot on the wait and an arrow at the hold.
function connection(x, fromY, toY, strong) {
  const stroke = theme["--link"];
  return [
    { type: "circle", silent: true, shape: { cx: x, cy: fromY + 3, r: strong ? 3 : 2.5 }, style: { fill: stroke } },
    { type: "line", silent: true, shape: { x1: x, y1: fromY + 3, x2: x, y2: toY + 4 }, style: { stroke, lineWidth: strong ? 2 : 1, opacity: strong ? 1 : 0.7 } },
    { type: "polygon", silent: true, shape: { points: [[x, toY], [x - 4, toY + 7], [x + 4, toY + 7]] }, style: { fill: stroke, opacity: strong ? 1 : 0.7 } },
  ];
}
