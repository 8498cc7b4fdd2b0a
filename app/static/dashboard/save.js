/* dashboard/save.js -- saves CSV as a file, of the service or made here. */
import {getCsv} from "./api.js";
import {button, el, toast, toastProblem} from "./dom.js";

const KEEP_MS = 60000; // until then the browser has begun to write it

function saveBlob(blob, name) {
  const href = URL.createObjectURL(blob);

  el("a", {download: name, href}).click();
  setTimeout(() => URL.revokeObjectURL(href), KEEP_MS);
  toast("Saved. Import the columns as text: a spreadsheet treats a name or code that begins with = as a formula.");
}

/* address(): or a promise of it. What ends early makes no file: a toast says why. */
export function saveButton(words, address, name, signal, attributes) {
  const pressed = button(words,
    async () => {
      pressed.disabled = true;
      try {
        saveBlob(await getCsv(await address(), signal), name);
      } catch (problem) {
        if (!signal?.aborted) toastProblem(problem);
      }
      pressed.disabled = false;
    },
    attributes);

  return pressed;
}
