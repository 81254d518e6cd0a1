// The list beside the timeline: all waits and holds of its resource, longest first, that have a text in them. It is the timeline for keyboards and
// screen readers.

const MOST_FOUND = 100;

const finder = {
  resource: null, selected: null,

  start() {
    byId("finder-kind").addEventListener("change", () => this.draw());
    byId("finder-text").addEventListener("input", () => this.draw());
  },

  show(resource) {
    this.resource = resource;
    this.draw();
  },

  select(item) {
    this.selected = item;
    for (const link of byId("finder-list").querySelectorAll("a")) mark(link, item && link.getAttribute("href") === addressOf(item));
  },

  draw() {
    const kind = byId("finder-kind").value;
    const words = byId("finder-text").value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = this.resource[kind + "s"];
    const found = all.filter((item) => words.every((word) => haystack(item).includes(word))).sort((a, b) => lengthOf(b) - lengthOf(a));
    byId("finder-list").replaceChildren(...found.slice(0, MOST_FOUND).map((item) => el("li", {}, this.link(item))));
    const shown = found.length > MOST_FOUND ? `, the ${MOST_FOUND} longest are listed: search for others` : ", longest first";
    byId("finder-count").textContent = found.length > 0 ? plural(found.length, kind) + shown : nothingFound(kind, all);
  },

  link(item) {
    const step = item.kind === "wait" ? item.step : item.steps.map((s) => s.name).join(", ");
    const bad = !["granted", "released"].includes(item.outcome);
    const link = linkTo(item,
      el("span", { class: "what" }, shortName(item.owner), step ? " · " : "", step && name(step), " ",
        el("small", {}, clock(item.start), bad ? ", " + item.outcome : "")),
      el("span", { class: "length" }, duration(lengthOf(item))));
    mark(link, item === this.selected);
    return link;
  },
};

function nothingFound(kind, all) {
  if (all.length > 0) return `No ${kind} has that in it.`;
  return kind === "wait" ? "Nobody waited for it, of what is in this page." : "No hold of it is in this page.";
}

// haystack is what of an item is searched; made once, when it is first looked at.
function haystack(item) {
  if (!item.haystack) {
    const steps = item.steps ? item.steps.map((s) => `${s.name} ${s.part}`).join(" ") : `${item.step} ${item.part}`;
    item.haystack = [item.owner, item.workflow, item.run, item.lockId, steps, item.fence, item.outcome, item.mode, item.trace, item.span].join(" ").toLowerCase();
  }
  return item.haystack;
}

function mark(node, current) {
  if (current) node.setAttribute("aria-current", "true");
  else node.removeAttribute("aria-current");
}
