// Puts the page together. What is selected stands in the address (#wait-12), so that links are links, the browser's way back works, and a place
// in the page can be kept.

let current = null;

// go selects what an address names. The reader may come from elsewhere in the page, "far", or see it already, "stay".
function go(address, from) {
  if (location.hash !== address) history.pushState(null, "", address);
  apply(from);
}

function apply(from) {
  const item = find(location.hash);
  if (!item) return;
  const resource = item.kind === "resource" ? item : resourceOf(item);
  chooseResource(resource);
  current = item.kind === "resource" ? null : item;
  showDetails(current);
  finder.select(current);
  timeline.select(current);
  if (current && current.lane !== undefined && from !== "stay") timeline.reveal(current);
  if (from === "far") byId("timeline-section").scrollIntoView({ block: "start" });
}

function chooseResource(resource) {
  if (timeline.resource === resource) return;
  timeline.show(resource);
  finder.show(resource);
  byId("resource").value = resource.index;
  for (const row of document.querySelectorAll("tr[data-resource]")) mark(row, Number(row.dataset.resource) === resource.index);
  byId("chart").setAttribute("aria-label", `Timeline of ${resource.name}: ${plural(resource.holds.length, "hold")} and ${plural(resource.waits.length, "wait")}`);
  const { holds, allHolds, waits, allWaits } = resource.counts;
  byId("chart-note").hidden = holds === allHolds && waits === allWaits;
  byId("chart-note").textContent = `Not all of this resource is drawn: ${integer(holds)} of ${plural(allHolds, "hold")}, ${integer(waits)} of ${plural(allWaits, "wait")}.`;
}

// inPage catches clicks on links into the page, also those that lead where the reader is already.
function inPage(event) {
  const link = event.target.closest("a[href^='#']");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  go(link.getAttribute("href"), link.closest("#timeline-section") ? "" : "far");
}

function startTimeline() {
  timeline.start(byId("chart"));
  finder.start();
  const some = report.resources.filter((r) => r.holds.length + r.waits.length > 0);
  byId("resource").append(...some.map((r) => el("option", { value: r.index }, `${r.name} (${seconds(r.wait.total)} waited)`)));
  byId("resource").addEventListener("change", (event) => go("#resource-" + event.target.value, ""));
  byId("colour").addEventListener("change", (event) => {
    timeline.colouring = event.target.value;
    timeline.recolour();
    timeline.redraw(false);
  });
  byId("zoom-in").addEventListener("click", () => timeline.zoom(1 / 2));
  byId("zoom-out").addEventListener("click", () => timeline.zoom(2));
  byId("zoom-all").addEventListener("click", () => timeline.all());
  chooseResource(some[0]);
  showDetails(null);
}

drawTables();
if (report.holds.length + report.waits.length > 0) {
  startTimeline();
  document.addEventListener("click", inPage);
  addEventListener("popstate", () => apply(""));
  apply("");
} else {
  byId("timeline-section").hidden = true;
}
document.documentElement.dataset.ready = "true";
