/* Runs beside each other, aligned by step: mismatch, staleness, what is left of the tokens, reward. */

import { get } from "../lib/api.js";
import { keeping, pages, remember, state } from "../lib/address.js";
import { element, fill, find } from "../lib/dom.js";
import { failed, noRuns } from "../lib/empty.js";
import { frame } from "../lib/frame.js";
import { glyph } from "../lib/glyphs.js";
import { follow } from "../lib/live.js";
import { number, percent } from "../lib/numbers.js";
import { brief, levelOf } from "../lib/verdicts.js";
import { linearAxis, logAxis, shareAxis } from "../charts/axes.js";
import { Board } from "../charts/board.js";
import { columns } from "../charts/columns.js";
import { Finer } from "../charts/finer.js";
import { boardKeys } from "../charts/keys.js";
import { OF_RUNS, swatch } from "../charts/lines.js";
import { Plot } from "../charts/plot.js";
import { smoothChoice } from "../charts/smooth.js";
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
const FIELDS = PANELS.map(({ field }) => field);
const host = find("#page");
let drawn = null;

async function show() {
  const chosen = names();
  try {
    if (chosen.length < 2) return void (await choose(chosen));
    const abouts = await Promise.all(chosen.map((name) => get(`v1/runs/${name}`)));
    const data = { chosen, abouts, ...(await read(chosen)) };
    if (drawn?.key === keyOf(data)) await drawn.update(data);
    else begin(data);
  } catch (error) {
    if (!drawn) fill(host, failed(error));
  }
}

/** Which runs and which panels there are: with others the page is drawn anew. */
const keyOf = ({ chosen, values }) => [...chosen, ...panelsOf(values).map(({ field }) => field)].join();
const panelsOf = (values) => PANELS.filter(({ field }) => OF_RUNS.some((_, index) => values[of(index, field)]));
const of = (index, field) => `${index} ${field}`;

/** The figures of several runs over the steps of all: {steps, values: {"INDEX FIELD": [...]}}. */
async function read(chosen, from = null, to = null) {
  const found = await Promise.all(chosen.map((name) => columns(name, FIELDS, from, to)));
  const steps = [...new Set(found.flatMap((one) => one.steps))].sort((a, b) => a - b);
  const values = {};
  found.forEach((one, run) => {
    const index = new Map(one.steps.map((step, position) => [step, position]));
    for (const [field, column] of Object.entries(one.values)) values[of(run, field)] = steps.map((step) => column[index.get(step)] ?? null);
  });
  return { steps, values };
}

function begin(data) {
  const stack = element("div", { class: "stack" });
  const list = element("div", { class: "card" });
  fill(host, heading(element("span", { class: "paneltools" }, smoothChoice())), list, stack);
  drawList(list, data);
  if (!data.steps.length) return void fill(stack, element("p", { class: "panel quiet" }, "No step is complete yet."));
  const board = new Board(data.steps);
  const shown = panelsOf(data.values);
  const at = element("p", { class: "at" });
  board.onMove((index) => at.replaceChildren("step ", element("b", {}, String(board.steps[index]))));
  const updates = shown.map((one, order) => draw(stack, board, one, data, order === shown.length - 1, order ? [] : [at]));
  let newest = data;
  const put = (series) => {
    board.update(series.steps);
    for (const update of updates) update(series);
    board.moved();
  };
  const finer = new Finer(board, {
    read: (from, to) => read(data.chosen, from, to), coarse: () => newest, put,
    count: () => Math.max(...newest.abouts.map(({ steps }) => steps)),
  });
  boardKeys(board);
  board.moved();
  const update = async (next) => {
    newest = next;
    drawList(list, next);
    put(await finer.of(next));
  };
  drawn = { key: keyOf(data), update };
}

/** What is said of each run, with the look of its line. */
function drawList(host, { chosen, abouts }) {
  fill(host, chosen.map((name, index) => element("p", { class: `line s-${levelOf(abouts[index].summary)}` },
    swatch(OF_RUNS[index]), " ", glyph(levelOf(abouts[index].summary)), " ", element("a", { class: "runname", href: keeping(pages.run(name)) }, name), " ", element("span", { class: "quiet" }, brief(abouts[index].summary)))));
}

/** A panel of one figure with a line per run, `above` its list; answers how it is brought up to date. */
function draw(stack, board, { field, title, hint, axis, shown: words, height }, data, isLast, above) {
  const { plot, rail } = panel(stack, { title, hint, call: `v1/runs/${data.chosen[0]}/series?field=${field}&by=step` });
  const lines = ({ steps, values }) => data.chosen.map((name, index) => ({ kind: OF_RUNS[index], name, values: values[of(index, field)] ?? steps.map(() => null) }));
  const shown = (series) => ({ title, hint, say: words, height, hasSteps: isLast, axis: axis(lines(series).flatMap((line) => line.values)), lines: lines(series) });
  const rows = (series) => lines(series).map((line) => ({ kind: line.kind, name: line.name, figure: field, value: (index) => words(line.values[index]) }));
  const line = new Plot(board, plot, shown(data));
  const put = readout(board, rail, rows(data), above);
  return (series) => {
    line.show(shown(series));
    put(rows(series));
  };
}

const heading = (...more) => element("div", { class: "section" }, element("h1", { class: "title" }, "Compare"), element("span", { class: "quiet" }, "aligned by step"), more);

/** Fewer than two runs are named: pick them. */
async function choose(chosen) {
  const { runs } = await get("v1/runs", { limit: 200 });
  if (runs.length < 2) return void fill(host, heading(), runs.length ? oneRun(runs[0].run) : noRuns());
  const picked = () => [...host.querySelectorAll("input:checked")].map(({ value }) => value);
  const go = element("button", { class: "button", on: { click: () => { remember({ runs: picked().join(",") }); show(); } } }, "Compare");
  const counted = () => {
    const many = picked().length;
    go.disabled = many < 2 || many > MOST;
    go.textContent = many < 2 ? `Choose two to ${MOST} runs` : many > MOST ? `At most ${MOST} runs` : `Compare ${many} runs`;
  };
  const boxes = runs.map(({ run, summary }) => {
    const box = element("input", { type: "checkbox", value: run, on: { change: counted } });
    box.checked = chosen.includes(run);
    return element("label", { class: `pickrun s-${levelOf(summary)}` }, box, glyph(levelOf(summary)), element("span", {}, run));
  });
  fill(host, heading(), element("div", { class: "card" }, boxes, go));
  counted();
}

const oneRun = (name) => element("p", { class: "card" }, "There is one run so far, ", element("a", { href: keeping(pages.run(name)) }, name), ". This page changes by itself once there are two.");

frame();
await show();
follow(null, () => (names().length < 2 && find("input", host) ? null : show())); // what one picks stays picked
