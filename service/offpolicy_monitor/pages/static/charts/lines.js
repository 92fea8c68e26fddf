/* How a line looks, by what it means: a colour, a width and dashes, so that colour is never the only carrier. */

import { svg } from "../lib/dom.js";

export const LINES = {
  mismatch: { colour: "--mismatch", width: 2 },
  staleness: { colour: "--staleness", width: 1.6, dash: [6, 3] },
  total: { colour: "--text", width: 1.6 },
  other: { colour: "--other", width: 1.5, dash: [2, 2] },
  preset: { colour: "--preset", width: 1.8 },
  run1: { colour: "--mismatch", width: 2 },
  run2: { colour: "--staleness", width: 1.8, dash: [7, 3] },
  run3: { colour: "--preset", width: 1.8, dash: [3, 3] },
  run4: { colour: "--healthy", width: 1.8, dash: [9, 3, 2, 3] },
};

/** Runs that are compared have a line each; there are no more. */
export const OF_RUNS = ["run1", "run2", "run3", "run4"];

/** A piece of the line, for the list beside a plot. */
export function swatch(kind) {
  const { colour, width, dash } = LINES[kind];
  const line = svg("path", { d: "M0 5h18", stroke: `var(${colour})`, "stroke-width": width + 0.4, "stroke-dasharray": dash?.join(" ") });
  return svg("svg", { class: "swatch", viewBox: "0 0 18 10", "aria-hidden": "true" }, line);
}
