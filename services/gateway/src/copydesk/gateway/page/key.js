// The API key, for as long as the tab is open and in no other tab.

const NAME = "copydesk.api-key";
let inMemory = ""; // where the browser keeps nothing for this site

export function apiKey() {
  try {
    return sessionStorage.getItem(NAME) ?? inMemory;
  } catch {
    return inMemory;
  }
}

export function keepApiKey(key) {
  inMemory = key;
  try {
    sessionStorage.setItem(NAME, key);
  } catch {
    // It holds for this page, then.
  }
}

// Shows `form` until a key was given, and then calls `onKey`.
export function askForKey(form, onKey) {
  const field = form.querySelector("input");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!field.value.trim()) return;
    keepApiKey(field.value.trim());
    field.value = "";
    form.hidden = true;
    onKey();
  });
  return () => { form.hidden = false; };
}
