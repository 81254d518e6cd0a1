// What is said of the thing under the pointer.

function showTip(event, lines) {
  const tip = byId("tip");
  const [head, ...rest] = lines;
  tip.replaceChildren(el("strong", {}, name(head)), ...rest.filter(Boolean).map((line) => el("div", {}, name(line))));
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8)) + "px";
  tip.style.top = (event.clientY + 18 + height < innerHeight ? event.clientY + 18 : Math.max(4, event.clientY - height - 12)) + "px";
}

function tipOf(item) {
  const steps = item.kind === "wait" ? item.step : item.steps.map((s) => s.name).join(", ");
  return [
    `${shortOwner(item.owner)} ${item.kind === "wait" ? "waited" : "held"} ${duration(lengthOf(item))}`,
    item.workflow && item.workflow !== shortOwner(item.owner) && "workflow " + item.workflow,
    steps && (item.kind === "wait" || item.steps.length === 1 ? "step " : "steps ") + steps,
    `${item.mode}, ${item.outcome}${item.fence ? ", fence " + item.fence : ""}`,
    item.reason && "reason: " + item.reason,
    `${clock(item.start)} to ${clock(item.end)}`,
    relationOf(item),
    item.trace && "trace " + item.trace,
    item.span && "span " + item.span,
  ];
}

function relationOf(item) {
  if (item.kind === "hold") return item.kept.length > 0 && `kept ${plural(item.blocks, "request")} waiting, in all ${duration(item.blocked)}`;
  const n = item.blockers.length + item.moreBlockers;
  return n > 0 && `blocked by ${n === 1 ? shortOwner(item.blockers[0].hold.owner) : plural(n, "hold")}`;
}

function queueTip(queue, t) {
  const at = upperBound(queue.times, t) - 1;
  return [plural(at < 0 ? 0 : queue.lengths[at], "waits", "wait"), clock(t)];
}
