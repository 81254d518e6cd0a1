// The timeline of one resource: holds on lanes, waits beneath, and the queue's length, on one axis of time. The library
// has the scale, zooming, panning and the slider; what stands on it is drawn by draw.js.

const MOST_CONNECTIONS = 100;

const timeline = {
  chart: null, resource: null, sections: null, queue: null, view: null, selected: null, colouring: "owner", colours: new Map(), hover: null,

  start(box) {
    readTheme();
    this.box = box;
    this.chart = echarts.init(box, null, { renderer: "canvas", height: 300 });
    this.chart.getZr().on("mousemove", (event) => this.pointAt(event.offsetX, event.offsetY, event.event));
    this.chart.getZr().on("globalout", () => this.unpoint());
    this.listenToClicks();
    box.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.chart.resize()).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readTheme(); this.redraw(true); });
  },

  show(resource) {
    if (this.resource === resource) return;
    this.resource = resource;
    this.sections = sectionsOf(lanesOf(resource.holds), lanesOf(resource.waits));
    this.queue = queueOf(resource);
    this.recolour();
    this.box.style.height = this.sections.height + "px";
    this.chart.resize({ height: this.sections.height });
    this.redraw(true);
  },

  recolour() {
    this.colours = this.colouring === "owner" ? ownerColours(this.resource.holds) : outcomeColours();
    drawLegend(this);
  },

  // select marks a hold or wait, and nothing when given null.
  select(item) {
    this.selected = item;
    this.redraw(false);
  },

  // reveal moves to a window in which the item is seen, with what it is about around it.
  reveal(item) {
    const others = item.kind === "wait" ? item.blockers.map((b) => b.hold) : item.kept.map((b) => b.wait);
    const near = others.filter((other) => other.start !== undefined && other.resource === item.resource);
    const start = Math.min(item.start, ...near.map((other) => Math.max(other.start, item.start - 2 * lengthOf(item))));
    const end = Math.max(item.end, ...near.map((other) => Math.min(other.end, item.end + 2 * lengthOf(item))));
    const margin = Math.max(2, (end - start) * 0.12);
    this.setWindow(start - margin, end + margin);
  },

  // isSeenWell: what was clicked need not be moved to.
  isSeenWell(item) {
    const { t0, t1, x } = this.view;
    return item.start >= t0 && item.end <= t1 && x(item.end) - x(item.start) > 30;
  },

  setWindow(start, end) {
    const span = Math.min(end - start, report.to - report.from);
    const startValue = Math.max(report.from, Math.min(start, report.to - span));
    this.chart.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, startValue, endValue: startValue + span });
  },

  zoom(factor) {
    const { t0, t1 } = this.view;
    const middle = (t0 + t1) / 2;
    const half = Math.max(1, (t1 - t0) * factor / 2);
    this.setWindow(middle - half, middle + half);
  },

  all() { this.setWindow(report.from, report.to); },

  key(event) {
    const span = this.view.t1 - this.view.t0;
    const move = { ArrowLeft: -0.15, ArrowRight: 0.15, PageUp: -0.9, PageDown: 0.9 }[event.key];
    if (move) this.setWindow(this.view.t0 + move * span, this.view.t1 + move * span);
    else if (event.key === "+" || event.key === "=") this.zoom(1 / 1.5);
    else if (event.key === "-") this.zoom(1.5);
    else if (event.key === "0" || event.key === "Home") this.all();
    else return;
    event.preventDefault();
  },

  // redraw with changed says that more than what is drawn has changed: sizes or colours.
  redraw(changed) {
    const series = { id: "all", data: [[report.from, (this.revision = (this.revision || 0) + 1)]] };
    this.chart.setOption(changed ? optionOf(this, series) : { series: [series] });
  },

  // render is called by the library whenever the window or the size changes.
  render(params, api) {
    const { x, width } = params.coordSys;
    this.view = windowOf(api, x, x + width);
    const { t0, t1 } = this.view;
    this.unpoint();
    byId("window").textContent = `${clock(t0)} to ${clock(t1)} (${duration(t1 - t0)})`;
    const { holds, waits, queue, slider } = this.sections;
    const opacity = this.selected ? 0.35 : 1;
    const related = relatedTo(this.selected);
    const isDim = (item) => related && !related.has(item);
    return {
      type: "group",
      $mergeChildren: false, // nothing of the drawing before is kept: what differs is nearly everything
      children: [
        ...axisShapes(this.view, TOP - 4, this.sections.bottom),
        ...headings(this),
        ...barShapes(laneBars(this.view, holds, (hold) => this.partsOfHold(hold)), opacity),
        ...barShapes(laneBars(this.view, waits, partsOfWait), opacity),
        ...queueShapes(this.view, this.queue, queue),
        ...queueShapes(viewOf(report.from, report.to, x, x + width), this.queue, slider),
        ...selectionShapes(this),
        ...labels(this.view, holds, theme["--on-bar"], isDim),
        ...labels(this.view, waits, theme["--on-wait"], isDim),
      ],
    };
  },

  // partsOfHold are stretches of one colour: what stood after its promise had ended is not its owner's any more.
  partsOfHold(hold) {
    const colour = this.colourOf(hold);
    if (hold.outcome === "expired") {
      const at = hold.expiredAt === null ? hold.start : Math.max(hold.start, Math.min(hold.expiredAt, hold.end));
      return [[hold.start, at, colour], [at, hold.end, "--expired"]];
    }
    return [[hold.start, hold.end, hold.outcome === "revoked" ? "--revoked" : colour]];
  },

  // colourOf gives up on telling neighbours apart where they are too thin to be seen: it would be noise.
  colourOf(hold) {
    if (this.colouring === "outcome") return this.colours.get(hold.outcome) || "--open";
    const thin = this.colours.goRound && this.view.x(hold.end) - this.view.x(hold.start) < 3;
    return (!thin && this.colours.get(hold.owner)) || "--owner-rest";
  },

  // listenToClicks tells a click from the end of a drag.
  listenToClicks() {
    const zr = this.chart.getZr();
    let down = [0, 0];
    zr.on("mousedown", (event) => { down = [event.offsetX, event.offsetY]; this.unpoint(); });
    zr.on("click", (event) => {
      if (Math.hypot(event.offsetX - down[0], event.offsetY - down[1]) > 4) return;
      const item = this.itemAt(event.offsetX, event.offsetY);
      if (item) go(addressOf(item), this.isSeenWell(item) ? "stay" : "");
    });
  },

  itemAt(x, y) {
    if (!this.view || x < this.view.left || x > this.view.right) return null;
    for (const section of [this.sections.holds, this.sections.waits]) {
      const lane = section.lanes[Math.floor((y - section.y) / section.lane)];
      if (lane && y >= section.y) return nearestOn(lane, this.view, x);
    }
    return null;
  },

  pointAt(x, y, event) {
    const item = this.itemAt(x, y);
    const inQueue = this.view && y >= this.sections.queue.y && y <= this.sections.bottom && x >= this.view.left && x <= this.view.right;
    if (!item && !inQueue) return this.unpoint();
    this.chart.getZr().setCursorStyle(item ? "pointer" : "default");
    showTip(event, item ? tipOf(item) : queueTip(this.queue, this.view.time(x)));
  },

  unpoint() { byId("tip").hidden = true; },
};

// windowOf asks the library where the two ends of all time are: between them the axis is linear.
function windowOf(api, left, right) {
  const from = api.coord([report.from, 0])[0];
  const to = api.coord([report.to, 0])[0];
  const perPixel = (report.to - report.from) / (to - from);
  return viewOf(report.from + (left - from) * perPixel, report.from + (right - from) * perPixel, left, right);
}

const WAIT_COLOURS = { granted: "--wait", deadlock: "--wait-deadlock", unclaimed: "--wait-unclaimed" };

const partsOfWait = (wait) => [[wait.start, wait.end, WAIT_COLOURS[wait.outcome] || "--wait-left"]];

// nearestOn forgives three pixels: many bars are only one wide.
function nearestOn(lane, view, x) {
  const reach = 3 * (view.t1 - view.t0) / (view.right - view.left);
  const t = view.time(x);
  let best = null;
  let distance = Infinity;
  for (let n = firstEndingAfter(lane, t - reach); n < lane.length && lane[n].start <= t + reach; n++) {
    const d = Math.max(lane[n].start - t, t - lane[n].end, 0);
    if (d < distance) [best, distance] = [lane[n], d];
  }
  return best;
}

function queueOf(resource) {
  const times = [];
  const lengths = [];
  for (let i = 0; i < resource.queue.length; i += 2) {
    times.push(report.from + resource.queue[i] / 1000);
    lengths.push(resource.queue[i + 1]);
  }
  return { times, lengths, longest: resource.longestQueue };
}

function headings(t) {
  const { holds, waits, queue } = t.sections;
  const counts = t.resource.counts;
  const some = (n, all) => (n < all ? `${integer(n)} of ${integer(all)}` : integer(n));
  const atOnce = (lanes) => (lanes.length > 1 ? `, up to ${lanes.length} at once` : "");
  const x = t.view.left;
  return [
    text(x, holds.y - 6, `Holds: ${some(counts.holds, counts.allHolds)}${atOnce(holds.lanes)}`, { verticalAlign: "bottom" }),
    text(x, waits.y - 6, `Waits: ${some(counts.waits, counts.allWaits)}${atOnce(waits.lanes)}`, { verticalAlign: "bottom" }),
    text(x, queue.y - 6, `Queue: how many wait, at most ${t.queue.longest}`, { verticalAlign: "bottom" }),
    { type: "bars", silent: true, shape: { rects: [x, t.sections.bottom, t.view.right - x, 1] }, style: { fill: theme["--line"] } },
  ];
}

// selectionShapes draws what is selected, and what it has to do with it, above everything else.
function selectionShapes(t) {
  const item = t.selected;
  if (!item || item.resource !== t.resource.index || item.lane === undefined) return [];
  const shapes = [];
  const relations = (item.kind === "wait" ? item.blockers : item.kept).slice(0, MOST_CONNECTIONS);
  const boxOf = (one) => one.lane === undefined || one.resource !== item.resource ? null
    : barBox(t.view, one.kind === "hold" ? t.sections.holds : t.sections.waits, one.lane, one.start, one.end);
  const paint = (one, width) => {
    const box = boxOf(one);
    if (!box) return;
    for (const [start, end, colour] of one.kind === "hold" ? t.partsOfHold(one) : partsOfWait(one)) {
      const part = barBox(t.view, one.kind === "hold" ? t.sections.holds : t.sections.waits, one.lane, start, end);
      if (part) shapes.push(filled(part, colour));
    }
    shapes.push(outline(box, "--select", width));
  };
  for (const relation of relations) paint(item.kind === "wait" ? relation.hold : relation.wait, 1);
  relations.forEach((relation, i) => shapes.push(...connect(t, relation, boxOf, item.kind === "wait" ? 0.5 : (i + 1) / (relations.length + 1))));
  paint(item, 2);
  return shapes;
}

// relatedTo is the set of what is not dimmed, or null where nothing is selected.
function relatedTo(item) {
  return item && new Set([item, ...(item.blockers || []).map((b) => b.hold), ...(item.kept || []).map((b) => b.wait)]);
}

// connect draws a line somewhere, 0 to 1, in what is seen of the time that one was in the other's way.
function connect(t, { wait, hold, from, to, last }, boxOf, where) {
  const [waitBox, holdBox] = [boxOf(wait), boxOf(hold)];
  if (!waitBox || !holdBox) return [];
  const start = Math.max(t.view.t0, wait.start + from);
  const end = Math.min(t.view.t1, wait.start + to);
  if (start > end) return [];
  return connection(Math.round(t.view.x(start + (end - start) * where)), waitBox.y, holdBox.y + holdBox.height, last);
}

function optionOf(t, series) {
  const { slider, bottom } = t.sections;
  const zoom = { xAxisIndex: 0, filterMode: "none", throttle: 0, minValueSpan: Math.min(2, report.to - report.from) };
  return {
    animation: false,
    grid: { left: 14, right: 14, top: TOP, height: bottom - TOP },
    xAxis: { type: "value", show: false, min: report.from, max: report.to },
    yAxis: { type: "value", show: false, min: 0, max: 1 },
    dataZoom: [
      { type: "inside", zoomOnMouseWheel: true, moveOnMouseMove: true, moveOnMouseWheel: false, ...zoom },
      {
        type: "slider", top: slider.y, height: slider.height, left: 14, right: 14, showDetail: false, brushSelect: true, showDataShadow: false, ...zoom,
        backgroundColor: "transparent", borderColor: theme["--line"], fillerColor: theme["--window"], moveHandleSize: 5,
        handleStyle: { color: theme["--surface"], borderColor: theme["--accent"] }, moveHandleStyle: { color: theme["--accent"], opacity: 0.5 },
      },
    ],
    series: [{ ...series, type: "custom", clip: false, silent: true, renderItem: (params, api) => t.render(params, api) }],
  };
}
