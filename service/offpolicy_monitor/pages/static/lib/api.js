/* The API that scripts use, and nothing else. A report carries the answers with it and asks nobody. */

import { find } from "./dom.js";
import { root } from "./address.js";

/** A refusal of the service, in its own words. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the service answered ${status}`);
    this.status = status;
    this.errors = problem.errors ?? [];
  }
}

const carried = find("#answers") ? JSON.parse(find("#answers").textContent) : null;

/** Whether this page is a file with its answers in it. */
export const isReport = carried !== null;

/** The path and query of a call: lists repeat their name, what is null is left out. */
export function call(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one != null) query.append(name, one);
  }
  return query.size ? `${path}?${query}` : path;
}

/** The answer of a call; raises Refused, or TypeError where the service cannot be reached. */
export async function get(path, parameters = {}, signal = undefined) {
  const asked = call(path, parameters);
  if (isReport) {
    if (!(asked in carried)) throw new Refused(404, { detail: "a report holds the answers of one moment; ask the service" });
    return carried[asked];
  }
  const answer = await fetch(root() + asked, { signal });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, body);
  return body;
}

/** Whether the run of this page was refused: from then on it is looked for where nothing is. */
let isMissing = false;

/** A run as the service has it, null where there is none. */
export async function aRun(name) {
  if (isMissing) {
    const { runs } = await get("v1/runs", { q: `^${name.replaceAll(".", "\\.")}$`, limit: 1 });
    if (!runs.some(({ run }) => run === name)) return null;
  }
  const found = await getOrNull(`v1/runs/${name}`);
  isMissing = found === null;
  return found;
}

/** The same as `get`, null where there is no such thing (404), or no longer (410): a run that is new has no diagnosis. */
export async function getOrNull(path, parameters = {}) {
  try {
    return await get(path, parameters);
  } catch (error) {
    if (error instanceof Refused && [404, 410].includes(error.status)) return null;
    throw error;
  }
}
