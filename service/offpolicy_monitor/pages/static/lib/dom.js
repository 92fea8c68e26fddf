/* Elements from plain values. Text is always text: no page puts markup together from strings, so that a run's name,
   a label or a sequence's id cannot become markup. Styles are set as properties, which the policy header allows. */

const SVG = "http://www.w3.org/2000/svg";

/** The first element that matches. */
export const find = (selector, root = document) => root.querySelector(selector);

/** An HTML element: attributes by name, `on` for listeners, `style` for properties, `data` for the dataset. */
export const element = (tag, attributes = {}, ...children) => made(document.createElement(tag), attributes, children);

/** The same of SVG. */
export const svg = (tag, attributes = {}, ...children) => made(document.createElementNS(SVG, tag), attributes, children);

/** Put these children in place of those that there are. */
export function fill(host, ...children) {
  host.replaceChildren(...flat(children));
  return host;
}

function made(host, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) host.addEventListener(event, listener);
    else if (name === "style") for (const [property, text] of Object.entries(value)) host.style.setProperty(property, text);
    else if (name === "data") Object.assign(host.dataset, value);
    else host.setAttribute(name, value === true ? "" : value);
  }
  host.append(...flat(children));
  return host;
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child != null && child !== false);
}
