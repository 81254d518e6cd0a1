// Everything of the page that is text and tables.

function drawTables() {
  drawNotes();
  drawTiles();
  drawResources();
  drawLoad();
  drawRoots();
  drawTypes();
  drawMembers();
  drawPriorities();
  drawOwners();
  drawDeaths();
  drawOverlong();
  drawLosses();
  drawDeadlocks();
  drawReading();
}

function drawNotes() {
  const notes = [...report.leftOut];
  const { broken, malformed, unreadable } = report.read;
  if (unreadable > 0) notes.push(`Waits and holds may be missing, since not all could be opened: ${(report.read.problems || []).join("; ")}.`);
  if (broken + malformed > 0) notes.push(`Some of what was read is broken, so waits and holds may be missing: ${brokenText()}.`);
  byId("notes").replaceChildren(...notes.map((note) => el("li", {}, note)));
  byId("notes").hidden = notes.length === 0;
  byId("span-of-time").textContent = report.holds.length + report.waits.length > 0
    ? ` · ${day(report.from)}, ${clock(report.from)} to ${day(report.to) === day(report.from) ? "" : day(report.to) + ", "}${clock(report.to)} UTC, ${duration(report.to - report.from)}` : "";
}

function brokenText() {
  const { broken, malformed } = report.read;
  const parts = [];
  if (broken > 0) parts.push(plural(broken, "line") + " that cannot be read");
  if (malformed > 0) parts.push(`${plural(malformed, "lock span")} without what a lock span must have`);
  return parts.join(", ") || "nothing";
}

function drawTiles() {
  const { totals, read } = report;
  const tile = (label, v, more, bad) => el("div", { class: bad ? "tile bad" : "tile" }, el("dt", {}, label), el("dd", {}, v), el("dd", {}, more));
  const share = totals.acquisitions > 0 ? percent(totals.waited / totals.acquisitions) : "0" + NBSP + "%";
  const shareOfWait = (part) => percent(totals.wait.total > 0 ? Math.max(part, 0) / totals.wait.total : 0);
  byId("tiles").replaceChildren(
    tile("Total wait", seconds(totals.wait.total), `${plural(totals.wait.count, "wait")} added up, ${shareOfWait(totals.handOver)} hand-overs, ${shareOfWait(totals.unexplained - totals.handOver)} unexplained`),
    tile("Had to wait", share, `${integer(totals.waited)} of ${plural(totals.acquisitions, "acquisition")}`),
    tile("Wait, p50", of(totals.wait, "p50"), "half of the waits took longer"),
    tile("Wait, p95", of(totals.wait, "p95"), `p99 ${of(totals.wait, "p99")}, longest ${of(totals.wait, "max")}`),
    tile("Hold, p50", of(totals.hold, "p50"), `p95 ${of(totals.hold, "p95")}, longest ${of(totals.hold, "max")}`),
    tile("Deadlocks", integer(totals.deadlocks), totals.deadlocks > 0 ? "ended by giving up one" : "none was ended", totals.deadlocks > 0),
    tile("Lost / expired", `${integer(totals.lost)} / ${integer(totals.expired)}`, "steps that lost it, holds that ran out", totals.lost + totals.expired > 0),
    tile("Lock spans read", integer(read.lockSpans), `of ${plural(read.spans, "span")} in ${plural(read.files, "file")}; ${integer(read.broken + read.malformed)} broken`, read.broken + read.malformed > 0),
  );
}

// table makes one of columns, [heading, value of a row, class], and rows.
function table(columns, rows, options) {
  const body = el("tbody", {});
  const all = el("table", { class: options.className }, el("thead", {}, ...(options.groups ? [options.groups] : []),
    el("tr", {}, ...columns.map(([heading, , className, title]) => el("th", { class: className, scope: "col", title }, heading)))), body);
  const make = (row) => {
    const tr = el("tr", options.row ? options.row(row) : {});
    tr.append(...columns.map(([, of, className]) => el("td", { class: className }, of(row))));
    return tr;
  };
  body.append(...rows.slice(0, options.most).map(make));
  if (rows.length <= options.most) return all;
  const button = el("button", { type: "button", class: "more" }, `Show all ${integer(rows.length)}`);
  button.addEventListener("click", () => { body.append(...rows.slice(options.most).map(make)); button.remove(); });
  const box = el("div", {});
  box.append(all, button);
  return box;
}

// meter is a bar with its number: the longest is full.
function meter(v, most, label, share) {
  const fill = el("span", { class: "fill" });
  fill.style.width = 100 * (most > 0 ? v / most : 0) + "%";
  fill.hidden = !(v > 0);
  return el("span", { class: "meter" }, el("span", { class: "track", "aria-hidden": "true" }, fill), el("span", { class: "value" }, label), share && el("span", { class: "share" }, share));
}

// of is a distribution's percentile; of nothing there is none.
const of = (distribution, rank) => (distribution.count > 0 ? seconds(distribution[rank]) : "–");

function drawResources() {
  const { resources, totals } = report;
  if (resources.length === 0) return byId("resources").replaceChildren(el("p", { class: "empty" }, "No resource was read."));
  const most = resources[0].wait.total;
  const groups = el("tr", { class: "groups" }, el("th", { colspan: "4" }), el("th", { colspan: "3", scope: "colgroup" }, "Wait"), el("th", { colspan: "3", scope: "colgroup" }, "Hold"), el("th", { colspan: "2", class: "roomy" }));
  byId("resources").replaceChildren(table([
    ["Resource", (r) => linkTo(r, name(r.name, "mono")), "name"],
    ["Total wait, share of all", (r) => meter(r.wait.total, most, seconds(r.wait.total), percent(totals.wait.total > 0 ? r.wait.total / totals.wait.total : 0))],
    ["Waits", (r) => integer(r.wait.count)], ["Longest queue", (r) => integer(r.longestQueue)], ["p50", (r) => of(r.wait, "p50")], ["p95", (r) => of(r.wait, "p95")], ["p99", (r) => of(r.wait, "p99")],
    ["p50", (r) => of(r.hold, "p50")], ["p95", (r) => of(r.hold, "p95")], ["p99", (r) => of(r.hold, "p99")],
    ["Busy", (r) => percent(r.busy), "roomy", "share of its time in which somebody held it"], ["Contended", (r) => percent(r.contended), "roomy", "share of its time in which somebody waited"],
  ], resources, { className: "choose", groups, most: 8, row: (r) => ({ "data-resource": r.index, onclick: (event) => { if (!event.target.closest("a")) go(addressOf(r), "far"); } }) }));
}

// show fills a section, and hides it where there is nothing to say.
function show(id, list, content) {
  byId(id + "-section").hidden = list.length === 0;
  if (list.length > 0) byId(id).replaceChildren(content);
}

// oneLine is an owner that is cut where it has no room, and said in full where somebody points at it.
const oneLine = (owner) => shortName(owner, "one-line");

function drawMembers() {
  const { members } = report;
  show("members", members, table([
    ["Member", (m) => name(m.member, "mono"), "name"], ["Of", (m) => name(m.resource, "mono"), "text"],
    ["Total wait", (m) => meter(m.wait.total, members[0].wait.total, seconds(m.wait.total))], ["Waits", (m) => integer(m.wait.count)], ["Wait p95", (m) => of(m.wait, "p95")],
    ["Holds", (m) => integer(m.hold.count)], ["Held", (m) => seconds(m.hold.total)], ["Hold p95", (m) => of(m.hold, "p95")],
  ], members, { most: 8 }));
}

function drawPriorities() {
  const { priorities } = report;
  show("priorities", priorities, table([
    ["Priority", (p) => integer(p.priority)], ["Waits", (p) => integer(p.wait.count)], ["Total wait", (p) => seconds(p.wait.total)],
    ["p50", (p) => of(p.wait, "p50")], ["p95", (p) => of(p.wait, "p95")], ["p99", (p) => of(p.wait, "p99")],
  ], priorities, { most: 8 }));
}

function drawOwners() {
  const owners = report.owners.filter((owner) => owner.blocked > 0);
  show("owners", owners, table([
    ["Owner", (o) => oneLine(o.name), "name"], ["Kept others waiting", (o) => meter(o.blocked, owners[0].blocked, seconds(o.blocked))],
    ["Waits", (o) => integer(o.blockedWaits)], ["Held", (o) => seconds(o.held)], ["Waited itself", (o) => seconds(o.waited)], ["Most on", (o) => name(o.worst || ""), "text"],
  ], owners, { most: 8 }));
}

function drawOverlong() {
  const hold = (o) => report.holds[o.hold];
  show("overlong", report.overlong, table([
    ["Hold of", (o) => linkTo(hold(o), shortName(hold(o).owner)), "name"], ["On", (o) => name(resourceOf(hold(o)).name), "text"],
    ["Held", (o) => seconds(o.held)], ["Steps ran", (o) => seconds(o.ran)], ["Kept others waiting", (o) => seconds(o.blocked)],
  ], report.overlong, { most: 8 }));
}

function drawLosses() {
  show("losses", report.losses, table([
    ["At", (l) => clock(Date.parse(l.at))],
    ["Owner", (l) => (l.hold >= 0 ? linkTo(report.holds[l.hold], shortName(l.owner || l.lockId)) : shortName(l.owner || l.lockId)), "text"],
    ["Resource", (l) => name(l.resource), "text"], ["What", (l) => el("span", { class: "badge bad" }, l.outcome), "text"],
    ["Why", (l) => name(l.reason || ""), "text"], ["Trace / span", (l) => (l.trace ? traceLink(l.trace, l.span, true) : ""), "text"],
  ], report.losses, { most: 8 }));
}

function drawDeadlocks() {
  show("deadlocks", report.deadlocks, table([
    ["At", (d) => clock(Date.parse(d.at))], ["Who waited for whom", (d) => name(d.cycle.split(" ").map(shortOwner).join(" ")), "text"], ["Given up", (d) => shortName(d.victim), "text"],
    ["Trace / span", (d) => (d.trace ? traceLink(d.trace, d.span, true) : ""), "text"],
  ], report.deadlocks, { most: 8 }));
}

function drawReading() {
  const { read } = report;
  byId("reading").replaceChildren(facts([
    ["files", integer(read.files)], ["spans", `${integer(read.spans)}, of which ${integer(read.lockSpans)} of locks`],
    ["duplicates", `${integer(read.duplicates)}, left out`], ["broken", brokenText()],
    ["not opened", read.unreadable > 0 && `${integer(read.unreadable)} of the files and folders`],
    ["handed over", `${seconds(report.totals.handOver)} of the waiting: granted to others, who had not taken it yet`],
    ["unexplained", `${seconds(report.totals.unexplained - report.totals.handOver)} of the waiting, by no hold that was read`],
  ]), el("ul", { class: "empty" }, ...report.cut.map((what) => el("li", {}, what)), ...(read.problems || []).map((problem) => el("li", {}, name(problem)))));
}
