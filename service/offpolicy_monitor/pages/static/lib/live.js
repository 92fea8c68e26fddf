/* What happens now: server-sent events, many of which are one change to a page. */

import { isReport } from "./api.js";
import { find } from "./dom.js";
import { root } from "./address.js";

/** Milliseconds that changes are gathered for, and between two tries to reach a service that is gone. */
const GATHERED = 250;
const AGAIN = 2000;

/** Call `changed` soon after something happened, in one run or in any, and after the service was away. */
export function follow(run, changed) {
  if (isReport) return;
  let due = null;
  let wasAway = false;
  const soon = () => (due ??= setTimeout(() => { due = null; changed(); }, GATHERED));
  const open = () => {
    const events = new EventSource(`${root()}v1/events${run ? `?run=${encodeURIComponent(run)}` : ""}`);
    for (const name of ["step", "alert", "run"]) events.addEventListener(name, soon);
    events.onopen = () => {
      say("");
      if (wasAway) soon();
      wasAway = false;
    };
    events.onerror = () => {
      wasAway = true;
      say("The service does not answer. This page goes on by itself once it does.");
      if (events.readyState === EventSource.CLOSED) setTimeout(open, AGAIN);
    };
    addEventListener("pagehide", () => events.close(), { once: true });
  };
  open();
}

function say(text) {
  const host = find("#away");
  if (host) host.textContent = text;
}
