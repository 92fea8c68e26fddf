/* The first screen of a run, from the top: one sentence, the two halves of the gap, steps, alerts, what the gap is made
   of, what is kept out of the loss, what was sent besides, the worst sequence. */

import { aRun, get, getOrNull, isReport } from "../lib/api.js";
import { keeping, pages, run, state } from "../lib/address.js";
import { element, fill, find } from "../lib/dom.js";
import { failed, noSteps } from "../lib/empty.js";
import { frame, keys } from "../lib/frame.js";
import { follow } from "../lib/live.js";
import { Board } from "../charts/board.js";
import { columns } from "../charts/columns.js";
import { Finer } from "../charts/finer.js";
import { boardKeys } from "../charts/keys.js";
import { drawHead } from "./run/head.js";
import { drawVerdict } from "./run/verdict.js";
import { panels } from "./run/panels.js";
import { fieldsOf } from "./run/fields.js";
import { WorstOf, worstAt } from "./run/worst.js";

/** Alerts that lanes are drawn from, and steps apart from which two breaches of a rule are two bars. */
const ALERTS = 500;
const APART = 5;

const host = find("#page");
let drawn = null;

/** Everything that the page shows, from the same calls that scripts make. */
async function read() {
  const name = run();
  const about = await aRun(name);
  if (!about) return null;
  const [verdict, series, { alerts }, { rules }, diagnosis, worst] = await Promise.all([
    get(`v1/runs/${name}/verdict`),
    columns(name, fieldsOf(about)),
    get("v1/alerts", { run: name, merge: APART, limit: ALERTS }),
    get(`v1/runs/${name}/rules`),
    getOrNull(`v1/runs/${name}/diagnosis`),
    about.last_step == null ? null : worstAt(name, about.last_step),
  ]);
  return { name, about, alerts, rules, diagnosis, verdict, worst, ...series };
}

async function show() {
  let data;
  try {
    data = await read();
  } catch (error) {
    if (!drawn) fill(host, failed(error));
    return;
  }
  if (!data) return fill(host, noSteps(run()));
  document.title = `${data.name}: ${data.verdict.head ?? data.verdict.sentence}`;
  if (!drawn) begin(data);
  else if (data.steps.length) drawn.update(data);
}

/** The first time: the parts of the page, and the keys that move through it. */
function begin(data) {
  const head = element("div", { class: "runhead" });
  const verdict = element("section", { "aria-label": "Verdict" });
  const stack = element("div", { class: "stack" });
  const worst = element("div");
  fill(host, head, verdict, stack, worst);
  drawHead(head, data);
  drawVerdict(verdict, data);
  if (!data.steps.length) {
    fill(stack, element("p", { class: "panel quiet" }, "No step is complete yet."));
    drawn = { update: (next) => { drawn = null; begin(next); } };
    return;
  }
  const board = new Board(data.steps, data.verdict.since_step, changesOf(data));
  const parts = panels(stack, board, data);
  const sequence = new WorstOf(worst, board, data);
  keyboard(board);
  let newest = data;
  const put = (series) => {
    const shown = { ...newest, ...series };
    board.update(shown.steps, shown.verdict.since_step, changesOf(shown));
    parts.update(shown);
    sequence.update(shown);
    board.moved();
  };
  const finer = new Finer(board, {
    read: (from, to) => columns(data.name, fieldsOf(newest.about), from, to), coarse: () => newest, count: () => newest.about.steps, put,
  });
  const update = async (next) => {
    newest = next;
    drawHead(head, next);
    drawVerdict(verdict, next);
    put(await finer.of(next));
  };
  drawn = { update };
  board.moved();
}

/** Steps from which the policy has another version, and the run another attempt. */
function changesOf({ steps, values }) {
  const changed = (column) => steps.filter((_, index) => column?.[index] != null && column[index - 1] != null && column[index] !== column[index - 1]);
  return { versions: changed(values.policy_version), attempts: changed(values.attempt) };
}

function keyboard(board) {
  boardKeys(board, {
    "s": { text: "everything about this step (also Enter on the bar of steps)", act: () => (location.href = keeping(pages.step(run(), board.steps[board.pinned]))) },
  });
  if (!isReport) keys({ "[ ]": { text: "previous, next run", act: (event) => neighbour(event.key === "[" ? -1 : 1) } });
}

/** Go to the run before or after this one, worst first. */
async function neighbour(by) {
  const { runs } = await get("v1/runs", { order: "worst", limit: 200 });
  const index = runs.findIndex((other) => other.run === run());
  const next = runs[(index + by + runs.length) % runs.length];
  const theme = state().theme;
  if (next) location.href = new URL(find("html").dataset.root + pages.run(next.run) + (theme ? `?theme=${theme}` : ""), location.href);
}

frame();
await show();
follow(run(), show);
