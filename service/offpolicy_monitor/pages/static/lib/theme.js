/* Light or dark: the system's, or what one chose, which is then in the address. A page comes in the right one; this is
   for what changes afterwards. */

import { remember, state } from "./address.js";
import { find } from "./dom.js";

const system = matchMedia("(prefers-color-scheme: dark)");
const painters = [];

/** Call this after every change of colours: a canvas keeps those that it was painted with. */
export const onTheme = (paint) => painters.push(paint);

/** Values of this theme that were read: a plot asks for the same few at every line that it draws. */
const known = new Map();

/** The value of a colour, by its meaning: `--mismatch`. */
export function colour(name) {
  if (!known.has(name)) known.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return known.get(name);
}

/** The other of the two. */
export function flip() {
  remember({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" });
  apply();
}

export function apply() {
  const chosen = state().theme;
  const shown = ["light", "dark"].includes(chosen) ? chosen : system.matches ? "dark" : "light";
  document.documentElement.dataset.theme = shown;
  find("#dark").media = shown === "dark" ? "all" : "not all";
  known.clear();
  for (const paint of painters) paint();
}

system.addEventListener("change", apply);
