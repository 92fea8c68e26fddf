/* Runs beside each other, aligned by step: mismatch, staleness, what is left of the tokens, reward. */

import { get } from "../lib/api.js";
import { keeping, pages, remember, state } from "../lib/address.js";
import { element, fill, find } from "../lib/dom.js";
import { failed } from "../lib/empty.js";
import { frame, keys } from "../lib/frame.js";
import { glyph } from "../lib/glyphs.js";
import { follow } from "../lib/live.js";
import { number, percent } from "../lib/numbers.js";
import { brief, levelOf } from "../lib/verdicts.js";
import { linearAxis, logAxis, shareAxis } from "../charts/axes.js";
import { Board } from "../charts/board.js";
import { columns } from "../charts/columns.js";
import { OF_RUNS } from "../charts/lines.js";
import { Plot } from "../charts/plot.js";
import { panel, readout } from "./run/panel.js";

/** Figures that runs are compared by. */
const PANELS = [
  { field: "gaps.mismatch.k3", title: "Mismatch", hint: "k3, nats per token, log scale", axis: logAxis, shown: number, height: 200 },
  { field: "gaps.staleness.k3", title: "Staleness", hint: "k3, nats per token, log scale", axis: logAxis, shown: number, height: 150 },
  { field: "gaps.total.k3", title: "Total", hint: "k3, nats per token, log scale", axis: logAxis, shown: number, height: 150 },
  { field: "gaps.total.ess", title: "Effective sample size", hint: "share of the tokens", axis: () => shareAxis, shown: percent, height: 90 },
  { field: "correction.masked_token_fraction", title: "Kept out of the loss", hint: "by the correction in use, share of the tokens", axis: () => shareAxis, shown: percent, height: 90 },
  { field: "entropy_mean", title: "Entropy", hint: "nats per token", axis: linearAxis, shown: number, height: 90 },
  { field: "reward_mean", title: "Reward", hint: "mean, as sent", axis: linearAxis, shown: number, height: 90 },
];
const MOST = OF_RUNS.length;

const names = () => (state().runs ?? "").split(",").filter(Boolean).slice(0, MOST);
const host = find("#page");

async function show() {
  const chosen = names();
  if (chosen.length < 2) return void (await choose(chosen));
  try {
    const fields = PANELS.map(({ field }) => field);
    const [abouts, found] = [await Promise.all(chosen.map((name) => get(`v1/runs/${name}`))), await Promise.all(chosen.map((name) => columns(name, fields)))];
    draw(chosen, abouts, joined(found));
  } catch (error) {
    fill(host, failed(error));
  }
}

/** The columns of several runs over the steps of all: {steps, values: [per run {field: [...]}]}. */
function joined(found) {
  const steps = [...new Set(found.flatMap((one) => one.steps))].sort((a, b) => a - b);
  const values = found.map((one) => {
    const index = new Map(one.steps.map((step, position) => [step, position]));
    return Object.fromEntries(Object.entries(one.values).map(([field, column]) => [field, steps.map((step) => column[index.get(step)] ?? null)]));
  });
  return { steps, values };
}

function draw(chosen, abouts, { steps, values }) {
  const stack = element("div", { class: "stack" });
  const list = element("div", { class: "card" }, chosen.map((name, index) => element("p", { class: `line s-${levelOf(abouts[index].summary)}` },
    glyph(levelOf(abouts[index].summary)), " ", element("a", { class: "runname", href: keeping(pages.run(name)) }, name), " ", element("span", { class: "quiet" }, brief(abouts[index].summary)))));
  fill(host, heading(), list, stack);
  if (!steps.length) return;
  const board = new Board(steps);
  const shown = PANELS.filter(({ field }) => values.some((of) => of[field]));
  shown.forEach(({ field, title, hint, axis, shown: words, height }, order) => {
    const { plot, rail } = panel(stack, { title, hint, call: `v1/runs/${chosen[0]}/series?field=${field}&by=step` });
    const lines = chosen.map((name, index) => ({ kind: OF_RUNS[index], name, values: values[index][field] ?? steps.map(() => null) }));
    new Plot(board, plot, { title, height, hasSteps: order === shown.length - 1, axis: axis(lines.flatMap((line) => line.values)), lines });
    readout(board, rail, lines.map((line) => ({ kind: line.kind, name: line.name, figure: field, value: (index) => words(line.values[index]) })));
  });
  keys({
    "ArrowLeft ArrowRight": { text: "step back, forward", act: (event) => board.pin(board.pinned + (event.key === "ArrowLeft" ? -1 : 1)) },
    "0": { text: "all steps (also double-click)", act: () => board.zoom(board.full) },
  });
  board.moved();
}

const heading = () => element("div", { class: "section" }, element("h1", { class: "title" }, "Compare"), element("span", { class: "quiet" }, "aligned by step"));

/** Fewer than two runs are named: pick them. */
async function choose(chosen) {
  const { runs } = await get("v1/runs", { limit: 200 });
  const boxes = runs.map(({ run }) => {
    const box = element("input", { type: "checkbox", value: run });
    box.checked = chosen.includes(run);
    return element("label", { class: "pickrun" }, box, ` ${run}`);
  });
  const go = element("button", { class: "tool", on: { click: () => {
    remember({ runs: [...host.querySelectorAll("input:checked")].map(({ value }) => value).slice(0, MOST).join(",") });
    show();
  } } }, "Compare");
  fill(host, heading(), element("div", { class: "card" }, element("p", {}, runs.length < 2 ? "There are fewer than two runs." : `Choose two to ${MOST} runs:`), boxes, runs.length < 2 ? null : go));
}

frame();
await show();
follow(null, show);
