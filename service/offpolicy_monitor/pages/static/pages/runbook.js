/* The runbook is served as it is read; its script has the theme and the keys. */

import { frame } from "../lib/frame.js";

frame();
