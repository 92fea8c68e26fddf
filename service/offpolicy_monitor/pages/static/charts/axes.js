/* Ranges and ticks. An axis is {scale: "log"|"asinh"|"linear", range: [low, high], ticks: [...], label(value)}. */

import { number } from "../lib/numbers.js";

/** Two and five stand between the powers of ten where there are no more than two of these. */
const FEW_DECADES = 100;
/** Parts that a linear axis is cut into. */
const PARTS = 2.2;
/** Digits that tell 22.5 from 25. */
const apart = (value) => number(value, 3);
const NICE = [1, 2, 2.5, 5, 10];

/** The powers of ten from `low` to `high`, both powers themselves. */
export function decades(low, high) {
  const count = Math.round(Math.log10(high / low)) + 1;
  return Array.from({ length: count }, (_, index) => Number((low * 10 ** index).toPrecision(3)));
}

/** Whole decades around what is positive; 1e-6 to 1 where nothing is. */
export function logAxis(values, label = number) {
  const positive = values.filter((value) => value > 0 && value < Infinity);
  const least = positive.length ? Math.min(...positive) : 1e-6;
  const most = positive.length ? Math.max(...positive) : 1;
  const low = 10 ** Math.floor(Math.log10(least) + 1e-9);
  const high = Math.max(10 ** Math.ceil(Math.log10(most) - 1e-9), low * 10);
  const between = high / low <= FEW_DECADES ? [1, 2, 5] : [1];
  const ticks = decades(low, high).flatMap((power) => between.map((factor) => factor * power));
  return { scale: "log", range: [low, high], ticks: ticks.filter((tick) => tick <= high * 1.01), label };
}

/** Round numbers around the values; `from` and `to` fix an end. */
export function linearAxis(values, label = apart, from = null, to = null) {
  const known = values.filter((value) => value != null && Number.isFinite(value));
  const low = from ?? (known.length ? Math.min(...known) : 0);
  const high = to ?? (known.length ? Math.max(...known) : 1);
  const raw = (high - low || Math.abs(low) / 5 || 1) / PARTS;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const size = NICE.find((factor) => factor * unit >= raw) * unit;
  const flat = low === high ? size : 0;
  const bottom = from ?? Math.floor(low / size) * size - flat;
  const top = to ?? Math.ceil(high / size - 1e-9) * size + flat;
  const ticks = [];
  for (let tick = Math.ceil(bottom / size) * size; tick <= top + size * 1e-6; tick += size) ticks.push(Number(tick.toPrecision(6)));
  return { scale: "linear", range: [bottom, top], ticks, label };
}

/** Shares from 0 to 1. Masks are common near none: linear below 1%, logarithmic above. */
export const maskAxis = { scale: "asinh", knee: 0.01, range: [0, 1], ticks: [0, 0.01, 0.1, 1], label: (share) => `${share * 100}%` };
export const shareAxis = { scale: "linear", range: [0, 1], ticks: [0, 0.5, 1], label: (share) => `${Math.round(share * 100)}%` };
