// What is not a plain table: the load over time, the trees of blocking, and what is grouped by type.

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, v] of Object.entries(attributes)) node.setAttribute(key, v);
  node.append(...children);
  return node;
}

const mean = (v) => (v >= 10 ? integer(Math.round(v)) : v.toFixed(1));

function drawLoad() {
  const { load } = report;
  byId("load-section").hidden = load.length === 0;
  if (load.length === 0) return;
  const most = Math.max(1, ...load.map((l) => Math.max(l.held, l.waiting)));
  const line = (of) => load.map((l, i) => `${i},${most - l[of]} ${i + 1},${most - l[of]}`).join(" ");
  const peak = load.reduce((a, b) => (b.waiting > a.waiting ? b : a));
  const said = `At most ${mean(Math.max(...load.map((l) => l.held)))} held and ${mean(peak.waiting)} waiting at once, the latter at ${clock(peak.at)}`;
  const chart = svg("svg", { viewBox: `0 ${-most * 0.05} ${load.length} ${most * 1.1}`, preserveAspectRatio: "none", role: "img", "aria-label": said },
    svg("polygon", { class: "waiting", points: `0,${most} ${line("waiting")} ${load.length},${most}` }),
    svg("polyline", { class: "held", points: line("held") }));
  const swatch = (kind) => el("li", {}, el("span", { class: "swatch " + kind }), kind);
  byId("load").className = "load";
  byId("load").replaceChildren(
    el("ul", { class: "legend" }, swatch("held"), swatch("waiting"), el("li", {}, said + ".")), chart,
    el("div", { class: "axis", "aria-hidden": "true" }, el("span", {}, clock(report.from)), el("span", {}, clock(report.to))),
    el("details", {}, el("summary", {}, "As a table"), loadTable(load)));
}

// loadTable has a row for every few points: the mean of them.
function loadTable(load) {
  const per = Math.ceil(load.length / 24);
  const rows = [];
  for (let i = 0; i < load.length; i += per) {
    const some = load.slice(i, i + per);
    const of = (key) => some.reduce((sum, l) => sum + l[key], 0) / some.length;
    rows.push({ at: some[0].at, held: of("held"), waiting: of("waiting") });
  }
  return table([["From", (l) => clock(l.at)], ["Held", (l) => mean(l.held)], ["Waiting", (l) => mean(l.waiting)]], rows, { most: rows.length });
}

function drawRoots() {
  const list = el("ul", { class: "tree" });
  show("roots", report.roots, limited(report.roots, 8, (root) => rootNode(root, root === report.roots[0]), list, "root blockers"));
}

const typed = (item) => item.workflowType && el("span", { class: "badge" }, name(item.workflowType));

function rootNode(root, open) {
  return node(open, root, [
    el("span", { class: "time" }, seconds(root.caused)), el("span", { class: "who" }, shortName(root.owner), " ", typed(root)),
    el("small", {}, name(root.did), `; ${plural(root.waits, "wait")} because of it`),
    root.hold >= 0 && linkTo(report.holds[root.hold], "its hold"),
  ]);
}

function waiterNode(waiter) {
  const own = waiter.total > waiter.waited ? `waited ${seconds(waiter.waited)} itself, ` : "";
  return node(true, waiter, [
    el("span", { class: "time" }, seconds(waiter.total)), el("span", { class: "who" }, shortName(waiter.owner), " ", typed(waiter)),
    el("small", {}, own, "for ", name(waiter.resource), waiter.step && " in step ", waiter.step && name(waiter.step)),
    waiter.wait >= 0 && linkTo(report.waits[waiter.wait], "its wait"),
  ]);
}

// node is one of a tree, with its branches made when it is opened first: most are never looked at.
function node(open, item, parts) {
  const row = el("span", { class: "row" }, ...parts.filter(Boolean));
  const below = item.waiters || [];
  if (below.length + (item.omitted || 0) === 0) return el("li", {}, el("div", { class: "leaf" }, row));
  const details = el("details", { open }, el("summary", {}, row));
  const fill = () => {
    if (!details.open || details.lastChild.tagName === "UL") return;
    details.append(el("ul", {}, ...below.map(waiterNode), item.omitted > 0 && el("li", { class: "empty" }, `and ${integer(item.omitted)} more`)));
  };
  details.addEventListener("toggle", fill);
  fill();
  return el("li", {}, details);
}

const typeName = (type) => (type ? name(type) : el("span", { class: "empty" }, "(type not known)"));

function drawTypes() {
  const { types } = report;
  const rows = types.flatMap((t) => [t, ...(t.steps || []).slice(0, 5).map((s) => ({ ...s, step: true }))]);
  const of = (row, side) => (row.step ? name(row[side] || "–") : typeName(row[side]));
  show("types", types, table([
    ["Waiter", (r) => of(r, "waiter"), "name"], ["waits for", (r) => of(r, "blocker"), "text"],
    ["Waited", (r) => meter(r.waited, types[0].waited, seconds(r.waited))], ["Waits", (r) => integer(r.waits)],
  ], rows, { most: 24, row: (r) => ({ class: r.step && "sub" }) }));
}

function drawDeaths() {
  const holds = report.holds.filter((h) => h.workerDied).sort((a, b) => b.blocked - a.blocked);
  const length = (d) => duration(Date.parse(d.to) - Date.parse(d.from));
  show("deaths", holds, table([
    ["Hold of", (h) => linkTo(h, shortName(h.owner)), "name"], ["On", (h) => name(resourceOf(h).name), "text"], ["In step", (h) => name(h.workerDied.step), "text"],
    ["Worker", (h) => name(h.workerDied.host || ""), "text"], ["From", (h) => clock(Date.parse(h.workerDied.from))], ["For", (h) => length(h.workerDied)],
    ["Ended", (h) => (h.workerDied.ended === "expired" ? "by expiry" : "by the next attempt"), "text"], ["Kept others waiting", (h) => duration(h.blocked)],
  ], holds, { most: 8 }));
}
