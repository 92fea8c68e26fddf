/* The API, each call to be tried from here. */

import { root } from "../lib/address.js";
import { frame } from "../lib/frame.js";
import { onTheme } from "../lib/theme.js";

const html = document.documentElement;
onTheme(() => html.classList.toggle("dark-mode", html.dataset.theme === "dark"));
frame();
SwaggerUIBundle({
  url: `${root()}openapi.json`,
  dom_id: "#swagger",
  deepLinking: true,
  displayRequestDuration: true,
  defaultModelsExpandDepth: 0,
  docExpansion: "list",
  validatorUrl: null,
});
