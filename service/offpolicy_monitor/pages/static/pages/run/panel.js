/* A panel: its question, a plot on the left, and on the right the list of its lines with their values at the cursor,
   which is legend and read-out in one. */

import { root, run } from "../../lib/address.js";
import { defined } from "../../lib/definitions.js";
import { element, fill } from "../../lib/dom.js";
import { swatch } from "../../charts/lines.js";

/** {plot, rail}: the two hosts of a new panel. `call`: the part of the API behind the run that gives its figures. */
export function panel(stack, { title, hint, call, extra = "" }) {
  const plot = element("div", { class: "plot" });
  const rail = element("div", { class: `rail ${extra}` });
  const address = call.startsWith("v1/") ? call : `v1/runs/${run()}/${call}`;
  stack.append(element("section", { class: `panel ${extra}`, "aria-label": title },
    element("header", {}, element("h2", {}, title), element("span", { class: "quiet" }, hint),
      element("a", { class: "api", href: root() + address, data: { text: "These figures, from the API.", call: `/${address}` } }, "JSON")),
    plot, rail));
  return { plot, rail };
}

/**
 * The list of lines beside a plot. `rows`: [{kind?, name, figure, value(index), note?(index), detail?}]; a row without
 * a kind is of a figure that is not drawn. Answers how to put other rows in place; values follow the board.
 */
export function readout(board, rail, rows, before = [], after = []) {
  let cells = [];
  const put = (next) => {
    cells = next.map((row) => ({ row, value: element("dd", {}, "–"), note: row.note ? element("dd", { class: "note" }) : null }));
    const list = cells.flatMap(({ row, value, note }) => [
      element("dt", {}, row.kind ? swatch(row.kind) : element("span"), element("span", {}, defined(row.name, row.figure), row.detail ? element("span", { class: "quiet" }, ` ${row.detail}`) : null)),
      value, note].filter(Boolean));
    fill(rail, before, list.length ? element("dl", {}, list) : null, after);
    read(board.index);
  };
  const read = (index) => {
    for (const { row, value, note } of cells) {
      value.textContent = row.value(index);
      if (note) note.textContent = row.note(index);
    }
  };
  board.onMove(read);
  put(rows);
  return put;
}
