/* How many tokens have which log-ratio: one row per gap, on a signed axis that is linear near 0 and logarithmic beyond. */

import { percent, number } from "../lib/numbers.js";
import { element, svg } from "../lib/dom.js";
import { isNarrow } from "./board.js";
import { swatch } from "./lines.js";

const [HEIGHT, PAD] = [96, 16];
/** nats: linear below, logarithmic above, up to the end of the axis. */
const [KNEE, END] = [1e-4, 20];
/** Pixels of a column; columns of a page and of a phone, which has room for fewer ticks too. */
const STEP = 7.5;
const [COLUMNS, COLUMNS_NARROW] = [120, 48];
const TICKS = [-10, -1, -0.1, -0.01, -0.001, 0, 0.001, 0.01, 0.1, 1, 10];
const TICKS_NARROW = [-10, -0.1, 0, 0.1, 10];

const signed = (d) => Math.asinh(d / KNEE) / Math.asinh(END / KNEE);
/** Where a log-ratio stands, from 0 to 1. */
const place = (d) => (signed(Math.max(-END, Math.min(END, d))) + 1) / 2;

/** `found`: {low, high, count} of the bins that hold something, null for an open end; columns have one width. */
export function histogram(gap, found) {
  if (!found?.count.length) return null;
  const all = found.count.reduce((sum, count) => sum + count, 0);
  const [many, marked] = isNarrow() ? [COLUMNS_NARROW, TICKS_NARROW] : [COLUMNS, TICKS];
  const width = many * STEP;
  const columns = new Float64Array(many);
  found.count.forEach((count, bin) => { columns[Math.min(many - 1, Math.floor(place(middle(found, bin)) * many))] += count / all; });
  const most = Math.max(...columns);
  const bar = (share, index) => share > 0 && svg("rect", { x: index * STEP, width: STEP - 1, y: HEIGHT - PAD - (share / most) * (HEIGHT - PAD - 4), height: (share / most) * (HEIGHT - PAD - 4), fill: `var(--${gap === "total" ? "text" : gap})` });
  const ticks = marked.map((d) => [place(d) * width, d]).map(([left, d]) => svg("g", {}, svg("path", { d: `M${left} 0V${HEIGHT - PAD}`, stroke: "var(--grid)" }), svg("text", { x: left, y: HEIGHT - 3, "text-anchor": "middle", class: "tick" }, number(d))));
  const beyond = shareBeyond(found, 0.1, all);
  return element("figure", { class: "histogram" },
    element("figcaption", {}, swatch(gap), ` ${gap}`, element("span", { class: "quiet" }, ` |d| > 0.1 nats: ${percent(beyond)} of the tokens; highest column ${percent(most)}`)),
    svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `Tokens by ${gap} log-ratio: ${percent(beyond)} are beyond 0.1 nats, ${number(all)} tokens` }, ticks, [...columns].map(bar)));
}

/** The middle of a bin, the end of one that is open. */
const middle = ({ low, high }, bin) => ((low[bin] ?? high[bin]) + (high[bin] ?? low[bin])) / 2;

function shareBeyond({ low, high, count }, bound, all) {
  return count.reduce((sum, tokens, bin) => sum + (low[bin] >= bound || (high[bin] ?? bound) <= -bound ? tokens : 0), 0) / all;
}
