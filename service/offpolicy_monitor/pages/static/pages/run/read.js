/* Everything that the first screen of a run shows, from the same calls that scripts make. They are begun as soon as this
   module is there, while what draws is still being loaded. */

import { aRun, get, getOrNull } from "../../lib/api.js";
import { run } from "../../lib/address.js";
import { columns } from "../../charts/columns.js";
import { fieldsOf } from "./fields.js";

/** Alerts that lanes are drawn from, and steps apart from which two breaches of a rule are two bars. */
const ALERTS = 500;
const APART = 5;

/** {step, found}: the worst sequence of a step, found null where there is none or it cannot be had. */
export async function worstAt(run, step) {
  return { step, found: await getOrNull(`v1/runs/${run}/worst`, { from: step, to: step, limit: 1 }).catch(() => null) };
}

/** What the page shows now; null where there is no such run. */
export async function read() {
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

/** The first of these. Whoever waits for it is told where it fails. */
export const begun = read();
begun.catch(() => null);
