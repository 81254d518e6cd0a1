// Which colour stands for what.

// ownerColours gives the eight owners that kept others waiting longest a colour each, if that says something. Where owners are many and alike, as
// where each workflow is one, colours go round, so that neighbours differ.
function ownerColours(holds) {
  const weights = new Map();
  for (const hold of holds) weights.set(hold.owner, (weights.get(hold.owner) || 0) + hold.blocked + lengthOf(hold) * 1e-6);
  const owners = [...weights.keys()];
  const colours = new Map();
  const ranked = [...owners].sort((a, b) => weights.get(b) - weights.get(a));
  const sum = (list) => list.reduce((total, owner) => total + weights.get(owner), 0);
  colours.goRound = owners.length > OWNER_COLOURS && sum(ranked.slice(0, OWNER_COLOURS)) < sum(owners) / 2;
  const chosen = colours.goRound ? owners : ranked.slice(0, OWNER_COLOURS);
  chosen.forEach((owner, i) => colours.set(owner, "--owner-" + (i % OWNER_COLOURS)));
  colours.rest = owners.length - chosen.length;
  return colours;
}

const outcomeColours = () => new Map([["released", "--released"], ["open", "--open"], ["expired", "--released"], ["revoked", "--revoked"]]);

function drawLegend(t) {
  const entries = t.colouring === "owner" ? ownerEntries(t.colours) : [["released", "--released"], ["still open where the traces end", "--open"]];
  const outcomes = new Set([...t.resource.holds, ...t.resource.waits].map((item) => item.kind + item.outcome));
  const also = [
    ["holdexpired", "stood on after its promise had ended", "--expired"], ["holdrevoked", "revoked", "--revoked"], ["waitgranted", "waiting", "--wait"],
    ["waitdeadlock", "waited, ended by a deadlock", "--wait-deadlock"], ["waitleft", "waited, gave up", "--wait-left"],
    ["waitunclaimed", "waited, and did not take it", "--wait-unclaimed"],
  ];
  for (const [key, label, colour] of also) if (outcomes.has(key)) entries.push([label, colour]);
  byId("legend").replaceChildren(...entries.map(([label, colour]) => {
    const swatch = el("span", { class: "swatch" });
    swatch.style.background = `var(${colour})`;
    return el("li", {}, swatch, name(label));
  }));
}

function ownerEntries(colours) {
  if (colours.goRound) return [["held: zoomed in, neighbours differ in colour", "--owner-rest"]];
  const entries = [...colours].map(([owner, colour]) => [shortOwner(owner), colour]);
  if (colours.rest > 0) entries.push([plural(colours.rest, "other owner"), "--owner-rest"]);
  return entries;
}
