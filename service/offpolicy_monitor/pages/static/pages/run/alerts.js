/* A lane per rule that fired: a bar for each stretch of breaches; open rules and those of the half at fault first, each
   with those for which it speaks under it. */

import { keeping, root } from "../../lib/address.js";
import { element, fill } from "../../lib/dom.js";
import { LEVEL, glyph } from "../../lib/glyphs.js";
import { number } from "../../lib/numbers.js";
import { colour } from "../../lib/theme.js";
import { gutter, isNarrow } from "../../charts/board.js";
import { Lane } from "../../charts/lane.js";
import { underRoots } from "../../lib/roots.js";
import { panel } from "./panel.js";

const MOST = 6;
/** Pixels; a lane clips what it draws to its own width. */
const MOST_WIDE = 1e4;
const RANK = { critical: 2, warning: 1, info: 0 };

/** {alert, rows, isOpen, severity, since, under} of each rule that warned at least, the most telling first; `under` is
    the rule whose alert speaks for it. */
function lanesOf({ alerts, rules, verdict }) {
  const half = new Map(rules.map((rule) => [rule.alert, rule.half]));
  const names = [...new Set(alerts.filter(({ severity, since_step: since }) => RANK[severity] && since != null).map(({ alert }) => alert))];
  const lanes = names.map((alert) => {
    const rows = alerts.filter((row) => row.alert === alert && RANK[row.severity] && row.since_step != null);
    const open = rows.filter(({ state }) => state === "active");
    const telling = open.length ? open : rows;
    const severity = telling.some((row) => row.severity === "critical") ? "critical" : "warning";
    const under = open.find((row) => row.severity === severity)?.inhibited_by ?? null;
    return { alert, rows, isOpen: open.length > 0, severity, since: Math.min(...telling.map((row) => row.since_step)), under, isAtFault: verdict.half != null && half.get(alert) === verdict.half };
  });
  const sorted = lanes.sort((a, b) => b.isOpen - a.isOpen || RANK[b.severity] - RANK[a.severity] || b.isAtFault - a.isAtFault || a.since - b.since);
  return underRoots(sorted, (lane) => sorted.find(({ alert, isOpen }) => isOpen && alert === lane.under));
}

/** What a rule says, and of its worst breach how far it went, since which step it counts and at which it was over. */
function told({ rows, severity }) {
  const worst = rows.filter((row) => row.severity === severity).reduce((a, b) => ((b.peak ?? b.value) > (a.peak ?? a.value) ? b : a));
  const steps = [`from step ${worst.since_step}`, worst.active_step != null && `open at ${worst.active_step}`, worst.resolved_step != null && `over at ${worst.resolved_step}`];
  return `${worst.summary}: ${worst.expression}. Peak ${number(worst.peak ?? worst.value)}, ${severity} at ${number(worst.threshold)}; ${steps.filter(Boolean).join(", ")}.`;
}

export const alertLanes = {
  id: "alerts",
  shows(data) {
    const lanes = lanesOf(data);
    return lanes.length ? { key: Math.min(lanes.length, MOST), lanes, name: data.name } : null;
  },
  draw(stack, board, first) {
    const hint = first.lanes.length > MOST ? `${MOST} of ${first.lanes.length}, open ones first` : "open ones first";
    const { plot, rail } = panel(stack, { title: "Alerts", hint, call: `v1/alerts?run=${first.name}&merge=5`, extra: "tight lanes" });
    let data = first;
    const tall = isNarrow() ? 28 : 16; // on a phone the name stands above its lane
    const words = ({ isOpen, since, rows }) => (isOpen ? `from ${since}` : `to ${Math.max(...rows.map((row) => row.last_step ?? row.since_step))}`);
    const lane = new Lane(board, plot, first.key * tall + 4, draw, { "aria-hidden": "true" });

    function label() {
      const rows = data.lanes.slice(0, MOST).map((rule) => element("div", { class: `s-${LEVEL[rule.severity]}${rule.root ? " goes-with" : ""}` }, glyph(LEVEL[rule.severity]),
        element("a", { class: "what", href: `${root()}runbook#${rule.alert}`, data: { text: told(rule), call: `/v1/alerts?run=${data.name}&merge=5` } }, rule.alert), element("span", { class: "quiet" }, words(rule))));
      fill(rail, element("div", { class: "lane-labels" }, rows), element("a", { class: "more", href: keeping(`alerts?run=${data.name}`) }, "All alerts"));
    }
    function draw(ctx, left) {
      data.lanes.slice(0, MOST).forEach((rule, line) => {
        const top = (line + 1) * tall - 16;
        if (isNarrow()) {
          ctx.font = `11px ${colour("--sans")}`;
          ctx.fillStyle = colour(`--${LEVEL[rule.severity]}`);
          ctx.fillText(`${rule.alert}, ${words(rule)}`, gutter().left + 2, top - 1);
        }
        ctx.fillStyle = colour("--grid");
        ctx.fillRect(0, top + 8, MOST_WIDE, 1);
        bars(ctx, left, rule.rows, "warning", top + 5, 6);
        bars(ctx, left, rule.rows, "critical", top + 3, 10); // height says severity too
      });
    }
    function bars(ctx, left, rows, severity, top, thick) {
      ctx.beginPath();
      for (const row of rows) {
        if (row.severity !== severity) continue;
        const [from, to] = [left(row.since_step - 0.5), left((row.last_step ?? row.since_step) + 0.5)];
        ctx.rect(from, top, Math.max(2, to - from), thick);
      }
      ctx.fillStyle = colour(`--${LEVEL[severity]}-fill`);
      ctx.fill();
    }
    label();
    return (next) => {
      data = next;
      label();
      lane.redraw();
    };
  },
};
