/* The answer of /series as columns over one x. */

import { get, isReport } from "../lib/api.js";

const MOST = 1500;

/** Points that a plot of this width can show: a peak and a trough per pixel and a half. A report is for any width. */
export const points = () => (isReport ? MOST : Math.max(200, Math.min(MOST, Math.round(innerWidth * 1.2))));

/** {steps, values: {field: [...]}} of one row per step of a range; fields that the run does not have are left out. */
export async function columns(run, fields, from = null, to = null) {
  const { series } = await get(`v1/runs/${run}/series`, { field: fields, by: "step", points: points(), from, to });
  const steps = onOne(series) ? series[0].step : [...new Set(series.flatMap(({ step }) => step))].sort((a, b) => a - b);
  const values = {};
  for (const { field, step, value } of series) {
    const column = step.length === steps.length ? value : spread(steps, step, value);
    if (column.some((one) => one != null)) values[field] = column;
  }
  return { steps, values };
}

/** Whether all have the same steps, as what is kept narrow has. */
function onOne(series) {
  const { step } = series[0];
  return series.every((one) => one.step.length === step.length && one.step.every((number, index) => number === step[index]));
}

/** Values of some of the steps, null at the others. */
function spread(steps, step, value) {
  const found = new Map(step.map((number, index) => [number, value[index]]));
  return steps.map((number) => found.get(number) ?? null);
}
