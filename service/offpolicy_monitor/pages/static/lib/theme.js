/* Light or dark: the system's, or what one chose, which is then in the address. */

import { remember, state } from "./address.js";

const system = matchMedia("(prefers-color-scheme: dark)");
const painters = [];

/** Call this after every change of colours: a canvas keeps those that it was painted with. */
export const onTheme = (paint) => painters.push(paint);

/** The value of a colour, by its meaning: `--mismatch`. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The other of the two. */
export function flip() {
  remember({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" });
  apply();
}

export function apply() {
  const chosen = state().theme;
  document.documentElement.dataset.theme = ["light", "dark"].includes(chosen) ? chosen : system.matches ? "dark" : "light";
  for (const paint of painters) paint();
}

system.addEventListener("change", apply);
