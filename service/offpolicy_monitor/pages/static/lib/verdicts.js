/* Verdicts as words and levels. */

import { LEVEL } from "./glyphs.js";

/** States of a run that are no judgement of its figures. */
const NOT_JUDGED = new Set(["silent", "finished", "too_early", "not_measured"]);
const WORDS = {
  healthy: "Healthy", drifting: "Drifting", off_policy: "Off-policy", data_wrong: "Data wrong", alarm: "Alarm",
  too_early: "Too early", silent: "Silent", finished: "Finished", not_measured: "Not measured",
};

/** healthy, warn, critical, or unknown: what colour and shape say. */
export const levelOf = ({ state, verdict }) => (NOT_JUDGED.has(state) ? "unknown" : LEVEL[verdict]);

/** The state in a word. */
export const wordOf = ({ state, verdict }) => WORDS[state] ?? verdict;

/** The head of the sentence without the state, which stands beside it in a list. */
export function brief({ head }) {
  const rest = head.replace(/^(Drifting|Healthy|Finished|Data wrong|Off-policy) (?=since|at)|^Too early to judge: /, "");
  return rest.replace(/^./, (letter) => letter.toUpperCase());
}
