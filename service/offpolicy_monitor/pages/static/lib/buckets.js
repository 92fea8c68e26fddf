/* Buckets of breakdowns for people: the API names one by its lower edge ("1e-3", "first"), a page by what is in it. */

import { number, percent } from "./numbers.js";

/** Upper edges of the engine's probability, by the lower one that names the bucket. */
const PROBABILITY = { 0: 1e-4, "1e-4": 1e-3, "1e-3": 0.01, "1e-2": 0.1, "1e-1": 0.5, "5e-1": 0.9, "9e-1": 0.99, "99e-2": 1 };
/** Probabilities below the least one that `percent` writes. */
const share = (probability) => (probability < 0.001 ? `${probability * 100}%` : percent(probability));
const count = (many, unit) => `${number(Number(many))} ${unit}${Number(many) === 1 ? "" : "s"}`;
/** From a power of two to below the next one. */
const doubling = (low) => (low === "1" ? "1" : `${number(Number(low))} to ${number(2 * Number(low) - 1)}`);

const WORDS = {
  mu_probability(low) {
    const high = PROBABILITY[low];
    if (low === "0") return `below ${share(high)}`;
    return high === 1 ? `${percent(Number(low))} or more` : `${share(Number(low))} to ${share(high)}`;
  },
  position: (bucket) => (["first", "last"].includes(bucket) ? `${bucket} token` : `index ${doubling(bucket)}`),
  length: (bucket) => `${doubling(bucket)} token${bucket === "1" ? "" : "s"}`,
  lag(bucket) {
    if (bucket === "negative") return "newer than the policy";
    return bucket.endsWith("+") ? `${bucket.slice(0, -1)} versions or more` : count(bucket, "version");
  },
  turn: (bucket) => (bucket.endsWith("+") ? `turn ${bucket.slice(0, -1)} or later` : `turn ${bucket}`),
  shard: (bucket) => `shard ${bucket}`,
};

const FIRST = ["negative", "first"];

/** The buckets of a dimension in their order, which JSON does not keep: it puts whole numbers before words. */
export function inOrder(groups) {
  const rank = ([bucket]) => FIRST.indexOf(bucket);
  return Object.entries(groups).sort((a, b) => rank(b) - rank(a));
}

/** A bucket in words. */
export const bucketWords = (dimension, bucket) => (WORDS[dimension] ?? decodeURIComponent)(bucket);

/** A dimension that a trainer named itself. */
export const labelWords = (dimension) => `By label ${decodeURIComponent(dimension.replace(/^label:/, ""))}`;
