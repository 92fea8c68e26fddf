/* States differ by shape and word, not by colour alone. */

import { svg } from "./dom.js";

const SHAPES = {
  healthy: [["circle", { cx: 7, cy: 7, r: 6 }], ["path", { d: "M4 7.2l2.2 2.2L10 5", class: "cut" }]],
  warn: [["path", { d: "M7 .8 13.6 13H.4z" }], ["path", { d: "M7 5v4M7 10.4v1.4", class: "cut" }]],
  critical: [["path", { d: "M4.2.5h5.6l3.7 3.7v5.6l-3.7 3.7H4.2L.5 9.8V4.2z" }], ["path", { d: "M7 3.4v4.3M7 9.2v1.6", class: "cut" }]],
  unknown: [["circle", { cx: 7, cy: 7, r: 5.2, class: "ring" }]],
};

/** The level of a verdict or of a severity. */
export const LEVEL = {
  accept: "healthy", warn: "warn", skip: "critical",
  info: "healthy", warning: "warn", critical: "critical",
};

/** The sign of a level, beside its word. */
export function glyph(level) {
  const shapes = SHAPES[level].map(([tag, attributes]) => svg(tag, attributes));
  return svg("svg", { class: `glyph s-${level}`, viewBox: "0 0 14 14", "aria-hidden": "true" }, shapes);
}
