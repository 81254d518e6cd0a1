// What is known of the hold or wait that is selected, with links from each to the others. The links are how everything that the canvas shows is
// reached without it.

function showDetails(item) {
  const box = byId("details");
  box.className = "details";
  if (!item) {
    const longest = timeline.resource.waits.reduce((a, b) => (a && lengthOf(a) >= lengthOf(b) ? a : b), null);
    box.replaceChildren(el("h3", {}, "Nothing selected"), el("p", { class: "empty" },
      "Select a wait, in the timeline or in the list, to see what blocked it; or a hold, to see whom it kept waiting."),
    longest ? el("p", {}, linkTo(longest, "The longest wait: ", shortName(longest.owner), `, ${duration(lengthOf(longest))}`)) : "");
    return;
  }
  const parts = { wait: detailsOfWait, hold: detailsOfHold, stranger: detailsOfStranger }[item.kind](item);
  box.replaceChildren(...parts.filter(Boolean));
}

function head(title, item, badge) {
  const bad = !["granted", "released", "open", undefined].includes(badge);
  return el("div", { class: "details-head" }, el("h3", { "data-selected": item.kind + "-" + item.index }, title, " ", shortName(item.owner || item.lockId)),
    badge && el("span", { class: bad ? "badge bad" : "badge" }, badge));
}

const range = (item) => `${clock(item.start)} to ${clock(item.end)} on ${day(item.start)}, UTC`;

function detailsOfWait(wait) {
  return [
    head("Wait of", wait, wait.outcome),
    facts([
      ["waited", el("strong", {}, duration(lengthOf(wait)))], ["for", name(resourceOf(wait).name, "mono")], ["when", range(wait)],
      ["step", named(wait.step, wait.part)], ["mode", wait.mode], ["place in queue", wait.position ? integer(wait.position) : ""],
      ...identity(wait), ["trace / span", wait.trace && traceLink(wait.trace, wait.span)],
      ["handed over", wait.handOver > 0 ? `${duration(wait.handOver)} of it: granted to others, who had not taken it yet` : ""],
      ["unexplained", wait.unexplained > 0 ? `${duration(wait.unexplained)} of it` : ""],
      ["was granted", wait.granted && linkTo(wait.granted, `the hold of ${duration(lengthOf(wait.granted))}`)],
    ]),
    el("h4", {}, wait.blockers.length > 0 ? `Blocked by ${plural(wait.blockers.length + wait.moreBlockers, "hold")}` : "Blocked by nothing that was read"),
    wait.blockers.length > 0 && relationList(wait.blockers, (b) => b.hold, wait),
    wait.moreBlockers > 0 && el("p", { class: "empty" }, `${plural(wait.moreBlockers, "shorter one")} left out of this page.`),
  ];
}

function detailsOfHold(hold) {
  return [
    head("Hold of", hold, hold.outcome),
    facts([
      ["held", el("strong", {}, duration(lengthOf(hold)))], ["resource", name(resourceOf(hold).name, "mono")], ["when", range(hold)],
      ["mode", hold.mode], ["fence", String(hold.fence)], ["reason", hold.reason && name(hold.reason)],
      ["promise ended", hold.expiredAt && `${clock(hold.expiredAt)}, ${duration(Math.max(0, hold.end - hold.expiredAt))} before its end`],
      ["displaced by", hold.endedBy && name(hold.endedBy, "mono")],
      ["its worker", hold.workerDied && `died, or hung, in step ${hold.workerDied.step}: ${hold.workerDied.ended}`],
      ...identity(hold), ["host", hold.host && name(hold.host)], ["trace / span", hold.trace && traceLink(hold.trace, hold.span)],
      ["had waited", hold.waited && linkTo(hold.waited, duration(lengthOf(hold.waited)))],
    ]),
    hold.steps.length > 0 && el("h4", {}, "Steps that ran under it"),
    hold.steps.length > 0 && stepList(hold),
    ...keptWaiting(hold),
  ];
}

function detailsOfStranger(hold) {
  return [
    head("Hold of", hold, hold.read ? "left out of this page" : "its span was not read"),
    facts([["resource", name(resourceOf(hold).name, "mono")], ["fence", hold.fence ? String(hold.fence) : ""], ...identity(hold)]),
    el("p", { class: "empty" }, "What is said here comes from the waits that it blocked."),
    ...keptWaiting(hold),
  ];
}

function keptWaiting(hold) {
  if (hold.kept.length === 0) return [el("h4", {}, "It kept nobody waiting")];
  const longest = [...hold.kept].sort((a, b) => b.to - b.from - (a.to - a.from));
  const many = Math.max(hold.blocks || 0, hold.kept.length);
  return [
    el("h4", {}, `It kept waiting: ${plural(many, "request")}${hold.blocked ? ", in all " + duration(hold.blocked) : ""}`),
    relationList(longest, (b) => b.wait, null),
    many > hold.kept.length && el("p", { class: "empty" }, `${integer(many - hold.kept.length)} of these are not in this page.`),
  ];
}

function identity(item) {
  const temporal = item.workflow && item.workflow !== shortOwner(item.owner);
  return [
    ["workflow", temporal && name(item.workflow)], ["run", item.run && name(item.run, "mono")], ["lock ID", name(item.lockId, "mono")],
  ];
}

// named says a step by its activity, and its number where that says more.
const named = (step, part) => (step || part) && name(step && part && part !== step ? `${step} (${part})` : step || part);

// relationList shows, for each blocker or each one kept waiting, whom, why we know, and which part of the wait it is about.
function relationList(relations, other, wait) {
  const list = el("ol", { class: "list blockers" });
  return limited(relations, 60, (relation) => el("li", {}, relationLink(relation, other(relation), wait)), list, wait ? "blockers" : "waits");
}

function relationLink(relation, item, wait) {
  const step = wait ? relation.step : item.step;
  const of = lengthOf(relation.wait);
  const bar = el("span", {});
  bar.style.left = 100 * Math.min(1, relation.from / of) + "%";
  bar.style.width = 100 * Math.min(1, Math.max(0, relation.to - relation.from) / of) + "%";
  const notes = [relation.named ? "named" : "inferred", relation.last && "its end let the wait in"].filter(Boolean).join(", ");
  return el("a", { href: addressOf(item), "aria-label": `${wait ? "Blocked by" : "It kept waiting"} ${shortOwner(item.owner || item.lockId)}${step ? ", step " + step : ""}, ${duration(relation.to - relation.from)}` },
    el("span", { class: "line" },
      el("span", { class: "what" }, shortName(item.owner || item.lockId, "go"), step ? " · " : "", step && name(step)),
      el("span", { class: "length" }, duration(relation.to - relation.from))),
    el("span", { class: "portion", title: "which part of the wait" }, bar),
    el("span", { class: "what" }, el("small", {}, `${duration(relation.from)} to ${duration(relation.to)} of ${duration(of)}, ${notes}`)));
}

function stepList(hold) {
  const list = el("ol", { class: "list" });
  for (const step of hold.steps) {
    list.append(el("li", {}, el("div", { class: "bar" },
      el("span", {}, named(step.name, step.part) || "step"), el("span", { class: "spring" }), el("span", {}, (step.endUnseen ? "at most " : "") + duration(lengthOf(step)))),
      step.endUnseen && el("small", {}, "it was not seen to end: its worker may have died, or its span was not read"),
      step.trace && el("small", {}, traceLink(step.trace, step.span))));
  }
  if (hold.moreSteps > 0) list.append(el("li", {}, `and ${integer(hold.moreSteps)} more`));
  return list;
}
