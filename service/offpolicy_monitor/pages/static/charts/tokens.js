/* A sequence as a strip of tokens, coloured by log-ratio: side by hue, size by shade and by a bar inside. What a
   correction drops has a dashed edge and its letter, so that colour is never the only carrier. */

import { element } from "../lib/dom.js";
import { decimals, number } from "../lib/numbers.js";

const NUMERATOR = { mismatch: "old_logprobs", staleness: "logprobs", total: "logprobs" };
const DENOMINATOR = { mismatch: "sampling_logprobs", staleness: "old_logprobs", total: "sampling_logprobs" };
const SYMBOL = { sampling_logprobs: "log μ", old_logprobs: "log π_old", logprobs: "log π" };
const SIDES = { mismatch: ["trainer below engine", "trainer above engine"], staleness: ["policy moved down", "policy moved up"], total: ["policy below engine", "policy above engine"] };

/** Bounds of the shades, |d| in nats, and what each mixes into the panel's colour. */
const SHADES = [0.02, 0.1, 0.3, 1];
const MIXED = [0, 8, 18, 32, 48];
/** Tokens that one strip shows; of a longer sequence those around its largest log-ratios. */
const MOST = 400;

/** log-ratios of a sequence's kept tokens, null where one of the two is missing. */
export function ratios(columns, gap) {
  const [above, below] = [columns?.[NUMERATOR[gap]], columns?.[DENOMINATOR[gap]]];
  return above && below ? above.map((value, index) => (value == null || below[index] == null ? null : value - below[index])) : null;
}

const hue = (d) => `var(--${d < 0 ? "mismatch" : "staleness"})`;
const tint = (d) => `color-mix(in srgb, ${hue(d)} ${MIXED[SHADES.filter((bound) => Math.abs(d) >= bound).length]}%, var(--panel))`;

/** What the shades mean. */
export function tintLegend(gap) {
  const box = (d) => element("i", { style: { background: tint(d) } }, String(Math.abs(d)));
  return element("span", { class: "scale" }, element("span", {}, `${SIDES[gap][0]} by |d| ≥`), [...SHADES].reverse().map((bound) => box(-bound)), " ", SHADES.map(box), element("span", {}, SIDES[gap][1]));
}

/** The strip. `cuts`: [{letter, drops: [bool per token] or null}]. */
export function strip(sequence, gap, cuts = []) {
  const found = ratios(sequence.columns, gap);
  if (!found) return element("p", { class: "quiet" }, "Its tokens were not kept: they are of as many sequences by each ranking as ", element("code", {}, "OFFPOLICY_KEEP_WORST"), " of the service says.");
  const tokens = found.map((d, index) => token(sequence.columns, d, index, cuts)).slice(0, MOST);
  const rest = found.length - tokens.length;
  return element("div", {}, element("ol", { class: "tokens", "aria-label": "Tokens and their log-ratios" }, tokens), rest > 0 ? element("p", { class: "quiet" }, `and ${rest} more tokens`) : null);
}

function token(columns, d, index, cuts) {
  const values = Object.keys(SYMBOL).filter((name) => columns[name]).map((name) => `${SYMBOL[name]} ${number(columns[name][index], 3)}`);
  const position = columns.position?.[index] ?? index;
  const word = columns.text?.[index] ?? columns.token_ids?.[index] ?? position;
  const letters = cuts.filter(({ drops }) => drops?.[index]).map(({ letter }) => letter).join("");
  const text = `position ${position}: ${values.join(", ")}${letters ? `; dropped by ${[...letters].join(" and ")}` : ""}`;
  const size = d == null ? 0 : Math.min(1, Math.log10(1 + Math.abs(d) * 99) / 2);
  return element("li", { class: `token${letters ? " cut" : ""}`, data: { text }, style: { "--tint": tint(d ?? 0), "--side": hue(d ?? 0) } },
    element("span", { class: "p" }, String(word)), element("span", { class: "v" }, d == null ? "–" : decimals(d)), element("span", { class: "marks" }, letters),
    element("i", { style: { width: `${size * 100}%` } }), element("span", { class: "sr" }, text));
}
