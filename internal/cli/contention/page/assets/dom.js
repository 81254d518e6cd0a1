// Elements. Text is only ever set as text: names in the data are anybody's.

// el makes an element: properties starting with "aria-" or "data-" and the like become attributes; children are nodes or text.
function el(tag, properties, ...children) {
  const node = document.createElement(tag);
  for (const [name, v] of Object.entries(properties || {})) {
    if (v === undefined || v === null || v === false) continue;
    if (name === "onclick") node.addEventListener("click", v);
    else node.setAttribute(name, v === true ? "" : v);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false && child !== ""));
  return node;
}

const byId = (id) => document.getElementById(id);

// name isolates text that may be written from right to left, or want to be.
const name = (text, className) => el("bdi", { class: className }, text);

// shortName has the whole name as its title.
const shortName = (owner, className) => el("bdi", { class: className, title: owner }, shortOwner(owner));

function linkTo(item, ...children) {
  return el("a", { href: addressOf(item) }, ...children);
}

// traceLink leads to a span where traces can be looked at, and else is text that can be copied. A link may be short.
function traceLink(trace, span, short) {
  const ids = [trace && el("code", {}, trace), trace && span ? " / " : "", span && el("code", {}, span)].filter(Boolean);
  if (!report.traceURL || !trace) return el("span", {}, ...ids);
  const href = report.traceURL.replaceAll("{trace}", encodeURIComponent(trace)).replaceAll("{span}", encodeURIComponent(span || ""));
  return el("a", { href, target: "_blank", rel: "noopener noreferrer", title: `trace ${trace}, span ${span || "unknown"}` }, ...(short ? [el("code", {}, trace.slice(0, 8) + "…")] : ids));
}

// facts is a list of names and values; those without a value are left out.
function facts(pairs) {
  const list = el("dl", { class: "facts" });
  for (const [label, v] of pairs) {
    if (!v) continue;
    list.append(el("dt", {}, label), el("dd", {}, v));
  }
  return list;
}

// limited shows the first n of what make gives for the items, and the others when asked.
function limited(items, n, make, container, what) {
  container.append(...items.slice(0, n).map(make));
  if (items.length <= n) return container;
  const button = el("button", { type: "button", class: "more" }, `Show all ${integer(items.length)} ${what}`);
  button.addEventListener("click", () => {
    container.append(...items.slice(n).map(make));
    button.remove();
  });
  const box = el("div", {});
  box.append(container, button);
  return box;
}
