/* A line in words, for those who do not see it. */

import { number } from "../lib/numbers.js";

/** "rose from 0.001 to 0.02, least 0.001, largest 0.03". */
export function inWords(values, label = number) {
  const known = values.filter((value) => value != null);
  if (!known.length) return "has no values";
  const [first, last] = [known[0], known.at(-1)];
  const little = Math.abs(first) * 0.1;
  const trend = last > first + little ? "rose" : last < first - little ? "fell" : "stayed";
  const least = known.reduce((a, b) => Math.min(a, b));
  const most = known.reduce((a, b) => Math.max(a, b));
  return `${trend} from ${label(first)} to ${label(last)}, least ${label(least)}, largest ${label(most)}`;
}
