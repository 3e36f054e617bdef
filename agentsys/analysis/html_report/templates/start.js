// Putting it together: the address decides what is shown; filters change the address.

const foundLine = document.getElementById("found");
let current = { places: [], state: null };

function same(before, after, names) {
  return before !== null && names.every((name) => before[name] === after[name]);
}

function show({ focusCase = false } = {}) {
  const state = stateOfAddress();
  const before = current.state;
  const filters = [...SELECTS, "q"];
  const unfiltered = same(before, state, filters);
  const places = unfiltered ? current.places : filtered(state);
  current = { places, state };
  if (!unfiltered) {
    for (const name of filters) form.elements[name].value = state[name];
    foundLine.textContent = `${amount(places.length)} of ${count(CASES.length, "case")}`;
    showList(places, state);
  } else if (state.case !== null && !list.querySelector(`a[data-place="${state.case}"]`)) {
    showList(places, state);
  }
  markChosen(state);
  if (!same(before, state, ["case", "q"]) || !unfiltered) showCase(places, state);
  if (focusCase && state.case !== null && (before === null || before.case !== state.case)) {
    view.focus({ preventScroll: true });
    view.scrollIntoView({ block: "start" });
  }
}

function typed() {
  const state = { ...stateOfAddress() };
  for (const name of [...SELECTS, "q"]) state[name] = form.elements[name].value;
  history.replaceState(null, "", addressOf(state));
  show();
}

function step(by) {
  const { places, state } = current;
  const at = places.indexOf(state.case);
  const next = places[at < 0 ? 0 : at + by];
  if (next !== undefined) location.hash = addressOf({ ...state, case: next });
}

let waiting = 0;
form.addEventListener("submit", (event) => { event.preventDefault(); typed(); });
form.addEventListener("change", typed);
form.elements.q.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(typed, 200); });
form.addEventListener("reset", () => setTimeout(typed));

// A plain anchor such as #tables moves the page and leaves filters alone.
window.addEventListener("hashchange", () => { if (location.hash.includes("=")) show({ focusCase: true }); });

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape") {
    const chosen = list.querySelector("[aria-current]") || list.querySelector("a");
    if (chosen) chosen.focus();
  } else if (!typing && event.key === "/") {
    event.preventDefault();
    form.elements.q.focus();
  } else if (!typing && event.key === "j") step(1);
  else if (!typing && event.key === "k") step(-1);
});

fillSelects();
form.hidden = false;
show({ focusCase: true });
