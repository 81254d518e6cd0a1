// Asks for this page again every two seconds, and puts the new content in place, unless the reader is
// in the middle of something there.
"use strict";
const live = document.getElementById("live");
const main = document.getElementById("main");
document.documentElement.dataset.ready = "";

// The old way of copying needs no permission, and works where the page is served without TLS.
document.addEventListener("click", (e) => {
  if (!e.target.matches("button.copy")) return;
  getSelection().selectAllChildren(e.target.previousElementSibling);
  const done = document.execCommand("copy");
  e.target.textContent = done ? "copied" : "selected";
  if (done) getSelection().removeAllRanges();
});

// A command that needs a reason ends with the place for it, until the reader has typed one.
const fill = (input) => {
  input.closest("dd").querySelector(".typed").textContent = input.value ? `'${input.value.replaceAll("'", "'\\''")}'` : input.dataset.default;
};
document.addEventListener("input", (e) => { if (e.target.matches(".reason")) fill(e.target); });

const busy = () => document.hidden || !live.checked || !getSelection().isCollapsed || (main.contains(document.activeElement) && document.activeElement.matches("input"));

// One question at a time: answers that came late would pile up, and an old one would replace a newer.
let asking = false;

async function ask() {
  if (asking) return;
  asking = true;
  try {
    await refresh();
  } finally {
    asking = false;
  }
}

async function refresh() {
  if (busy()) return;
  const at = [...main.querySelectorAll("a, button")].indexOf(document.activeElement);
  const address = at < 0 ? "" : document.activeElement.getAttribute("href");
  const answer = await fetch(location.href, { credentials: "same-origin" });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.getElementById("main");
  if (!fresh || busy()) return;
  // What the reader has opened or typed stays.
  const before = new Map([...main.querySelectorAll("[data-key]")].map((e) => [e.dataset.key, e]));
  main.replaceChildren(...fresh.childNodes);
  for (const e of main.querySelectorAll("[data-key]")) {
    const old = before.get(e.dataset.key);
    if (old && old.open) e.open = true;
    if (old && old.value) { e.value = old.value; fill(e); }
  }
  document.title = page.title;
  const same = address ? main.querySelector(`a[href="${CSS.escape(address)}"]`) : null;
  if (same) same.focus({ preventScroll: true });
}

setInterval(() => ask().catch(() => {
  const at = main.querySelector(".at");
  if (at && !at.dataset.old) { at.dataset.old = "1"; at.append(" — no answer since"); }
}), 2000);
