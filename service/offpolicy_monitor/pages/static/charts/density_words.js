/* What a density shows, in words: how far the two policies agree, and where they do not. */

import { percent } from "../lib/numbers.js";

/** The two policies of a gap, as formulas name them. */
export const NAMES = { mismatch: ["μ", "π_old"], total: ["μ", "π"] };
/** Probabilities in the engine by which tokens are told apart. */
const PARTS = [[0, "below 0.1"], [0.1, "from 0.1 to 0.5"], [0.5, "from 0.5 to 0.9"], [0.9, "from 0.9 to 0.99"], [0.99, "above 0.99"]];
/** Cells from the diagonal on which a token is far off: -log p is twice as large. */
const FAR = 2;
/** Share of the tokens below which nothing far off is worth a sentence. */
const FEW = 0.001;

/** A probability with the digits that tell it from 1. */
function digits(p) {
  if (p < 0.9) return String(Number(p.toPrecision(2)));
  return p.toFixed(Math.ceil(-Math.log10(1 - p)) + 1);
}

/** The probabilities of a bin: "0.61 to 0.69". */
export function chance(edges, bin) {
  if (bin === 0) return `below ${digits(Math.exp(edges[0]))}`;
  if (bin === edges.length) return `above ${digits(Math.exp(edges.at(-1)))}`;
  return `${digits(Math.exp(edges[bin - 1]))} to ${digits(Math.exp(edges[bin]))}`;
}

/** Sentences. `found` and `within` as charts/density.js has them. */
export function cellsInWords(gap, found, within) {
  const [mu, pi] = NAMES[gap];
  const all = found.count.reduce((sum, count) => sum + count, 0);
  const share = (chosen) => found.count.reduce((sum, count, index) => sum + (chosen(found.numerator[index] - found.denominator[index], index) ? count : 0), 0) / all;
  const [above, below] = [share((by) => by > 0), share((by) => by < 0)];
  return [
    within == null ? null : `${percent(within)} of the tokens have probabilities within a factor of 2 of one another.`,
    `${percent(share((by) => by === 0))} lie in cells on the diagonal, ${percent(above)} above it (${pi} > ${mu}), ${percent(below)} below (${pi} < ${mu}).`,
    far(found, share, mu),
  ].filter(Boolean);
}

/** Where most of what is far from the diagonal lies. */
function far(found, share, mu) {
  const whole = share((by) => Math.abs(by) >= FAR);
  if (whole < FEW) return `${whole ? percent(whole) : "None"} of them lie far from it.`;
  const part = (index) => PARTS.findLastIndex(([least]) => Math.exp(found.edges[found.denominator[index] - 1] ?? -Infinity) >= least);
  const parts = PARTS.flatMap(([, name], number) => [1, -1].map((side) => ({ name, side, share: share((by, index) => by * side >= FAR && part(index) === number) })));
  const most = parts.reduce((a, b) => (b.share > a.share ? b : a));
  return `${percent(whole)} lie far from it, −log p twice as large or more in one of the two; most of them ${most.side > 0 ? "above" : "below"} it with ${mu} ${most.name} (${percent(most.share)}).`;
}
