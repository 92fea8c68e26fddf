/* What every page has: the theme, keys, definitions on hover and focus. The header itself comes with the page. */

import { element, find } from "./dom.js";
import { remember } from "./address.js";
import { apply, flip } from "./theme.js";
import { define } from "./definitions.js";

const KEYS = new Map([
  ["?", { text: "these keys", act: () => find("#keys").showModal() }],
  ["t", { text: "light or dark", act: flip }],
  ["/", { text: "filter", act: () => find("[data-filter]")?.focus() }],
]);

/** Begin a page. */
export function frame() {
  apply();
  remember({});
  define();
  document.body.append(element("dialog", { id: "keys", "aria-labelledby": "keys-title" }));
  find("#theme").addEventListener("click", flip);
  find("#help").addEventListener("click", () => find("#keys").showModal());
  find(".skip").addEventListener("click", () => find("#main").focus());
  addEventListener("keydown", pressed);
  drawKeys();
}

/** Keys of this page: {"ArrowLeft ArrowRight": {text, act(event)}, …}; one entry may name several keys. */
export function keys(more) {
  for (const [names, entry] of Object.entries(more)) KEYS.set(names, entry);
  drawKeys();
}

function pressed(event) {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range";
  if (typing || event.ctrlKey || event.metaKey || event.altKey || find("dialog[open]")) return;
  if (event.target.type === "range" && /^(Arrow|Home|End)/.test(event.key)) return;
  for (const [names, { act }] of KEYS) {
    if (!names.split(" ").includes(event.key)) continue;
    event.preventDefault();
    act(event);
    return;
  }
}

const SHOWN = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" };

function drawKeys() {
  const rows = [...KEYS].map(([names, { text }]) => [
    element("dt", {}, names.split(" ").map((name) => element("kbd", {}, SHOWN[name] ?? name))),
    element("dd", {}, text),
  ]);
  const close = element("form", { method: "dialog" }, element("button", { class: "tool" }, "Close"));
  find("#keys").replaceChildren(element("h2", { id: "keys-title" }, "Keys"), element("dl", {}, ...rows.flat()), close);
}
