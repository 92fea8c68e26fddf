/* A line without axes for a row of a table. All share one log axis, so that rows can be compared. */

import { number } from "../lib/numbers.js";
import { svg } from "../lib/dom.js";
import { inWords } from "./words.js";

const [WIDTH, HEIGHT, LOW, HIGH] = [190, 36, -5, -1];

const top = (value) => HEIGHT - 2 - ((Math.log10(Math.min(10 ** HIGH, Math.max(value, 10 ** LOW))) - LOW) / (HIGH - LOW)) * (HEIGHT - 4);

/** `values` of k3 in nats per token; `kind` says whose; `limit`: the value of the dashed line. */
export function spark(values, kind, limit) {
  const left = (index) => 1 + (index / Math.max(1, values.length - 1)) * (WIDTH - 6);
  const corners = values.map((value, index) => (value > 0 ? `${left(index).toFixed(1)},${top(value).toFixed(1)}` : null));
  const stroke = `var(--${kind === "total" ? "text" : "mismatch"})`;
  const last = values.at(-1);
  const end = left(values.length - 1);
  return svg("svg", { class: "spark", width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${kind} k3 ${inWords(values, number)}` },
    limit > 0 && svg("path", { d: `M0 ${top(limit)}H${WIDTH}`, stroke: "var(--warn)", "stroke-dasharray": "3 3", opacity: 0.7 }),
    svg("polyline", { points: corners.filter(Boolean).join(" "), fill: "none", stroke, "stroke-width": 1.6 }),
    last > 10 ** HIGH
      ? svg("path", { d: `M${end - 4} 7l4-6 4 6z`, fill: stroke })
      : last > 0 && svg("circle", { cx: end, cy: top(last), r: 2.4, fill: stroke }));
}
