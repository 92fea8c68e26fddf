/* What a page shows is in its address, so that a link shows a colleague the same picture. The address itself is written
   once changes rest: to write it takes a browser longer than to draw a plot, and it refuses to at every move of a
   slider. */

import { find } from "./dom.js";

/** What leads from one page to the next with it. */
const KEPT = ["step", "theme"];

/** Milliseconds that changes rest before they are written. */
const RESTED = 60;

const all = new URLSearchParams(location.search);
let due = null;

/** Every part of the state, as text. */
export const state = () => Object.fromEntries(all);

/** Change parts of it; null takes a part away. */
export function remember(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value == null || value === "") all.delete(name);
    else all.set(name, value);
  }
  for (const link of document.querySelectorAll("a[data-keep]")) link.href = keeping(link.dataset.keep);
  clearTimeout(due);
  due = setTimeout(write, RESTED);
}

/** History keeps one entry per page, not one per move. */
function write() {
  const query = all.size ? `?${all}` : "";
  if (query !== location.search) history.replaceState(null, "", location.pathname + query + location.hash);
}

/** An address of the service with what is kept of the state. */
export function keeping(path) {
  const [place, query = ""] = path.split("?");
  const all = new URLSearchParams(query);
  for (const [name, value] of Object.entries(state())) if (KEPT.includes(name) && !all.has(name)) all.set(name, value);
  return root() + place + (all.size ? "?" + all : "");
}

/** Where the service begins, seen from this page: a proxy may serve it below a path of its own. */
export const root = () => find("html").dataset.root;

/** The run that this page is of. */
export const run = () => find("html").dataset.run;

/** Pages of a run, by what they answer. */
export const pages = {
  run: (name) => `runs/${name}`,
  step: (name, step) => `runs/${name}/steps/${step}`,
  whatif: (name) => `runs/${name}/what-if`,
  worst: (name) => `runs/${name}/worst`,
  diagnosis: (name) => `runs/${name}/diagnosis`,
  compare: (names) => `compare?runs=${names.map(encodeURIComponent).join(",")}`,
};
