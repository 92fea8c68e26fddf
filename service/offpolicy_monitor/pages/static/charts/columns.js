/* The answer of /series as columns over one x. */

import { get, isReport } from "../lib/api.js";

const MOST = 1500;

/** Points that a plot of this width can show: a peak and a trough per pixel and a half. A report is for any width. */
export const points = () => (isReport ? MOST : Math.max(200, Math.min(MOST, Math.round(innerWidth * 1.2))));

/** {steps, values: {field: [...]}} of one row per step of a range; fields that the run does not have are left out. */
export async function columns(run, fields, from = null, to = null) {
  const { series } = await get(`v1/runs/${run}/series`, { field: fields, by: "step", points: points(), from, to });
  const every = new Set(series.flatMap(({ step }) => step));
  const steps = [...every].sort((a, b) => a - b);
  const values = {};
  for (const { field, step, value } of series) {
    const found = new Map(step.map((number, index) => [number, value[index]]));
    const column = steps.map((number) => found.get(number) ?? null);
    if (column.some((one) => one != null)) values[field] = column;
  }
  return { steps, values };
}
