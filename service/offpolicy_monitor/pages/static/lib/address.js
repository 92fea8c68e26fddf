/* What a page shows is in its address, so that a link shows a colleague the same picture. */

import { find } from "./dom.js";

/** What leads from one page to the next with it. */
const KEPT = ["step", "theme"];

/** Every part of the state, as text. */
export const state = () => Object.fromEntries(new URLSearchParams(location.search));

/** Change parts of it; null takes a part away. History keeps one entry per page, not one per move. */
export function remember(changes) {
  const all = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value == null || value === "") all.delete(name);
    else all.set(name, value);
  }
  history.replaceState(null, "", location.pathname + (all.size ? "?" + all : "") + location.hash);
  for (const link of document.querySelectorAll("a[data-keep]")) link.href = keeping(link.dataset.keep);
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
