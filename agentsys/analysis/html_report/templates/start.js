// Putting it together: the address decides what is shown; filters change the address.

const foundLine = document.getElementById("found");
let current = { rows: [], state: null };

function same(before, after, names) {
  return before !== null && names.every((name) => before[name] === after[name]);
}

// `arrive`: go where the address leads.
function show({ arrive = false } = {}) {
  const state = stateOfAddress();
  const before = current.state;
  const unfiltered = same(before, state, [...FILTERS, "order"]);
  const rows = unfiltered ? current.rows : filtered(state);
  current = { rows, state };
  if (!unfiltered) {
    for (const name of [...FILTERS, "order"]) form.elements[name].value = state[name];
    foundLine.textContent = `${amount(rows.length)} of ${count(CASES.length, "case")}`;
    showList(rows, state);
  } else if (state.case && BY_ID.has(state.case) && !list.querySelector(`a[data-id="${CSS.escape(state.case)}"]`)) {
    showList(rows, state);
  }
  markChosen(state);
  const sameCase = same(before, state, ["case", "beside", "q"]);
  if (!sameCase || !unfiltered) showCase(rows, state);
  if (arrive) goTo(before, state);
}

// A link to a case leads to the case; one to a filter, to the list.
function goTo(before, state) {
  if (state.case) {
    if (same(before, state, ["case", "beside"])) return;
    view.focus({ preventScroll: true });
    view.scrollIntoView({ block: "start" });
  } else if ([...FILTERS].some((name) => state[name])) {
    document.getElementById("trajectories").scrollIntoView({ block: "start" });
  }
}

function typed() {
  const state = { ...stateOfAddress() };
  for (const name of [...FILTERS, "order"]) state[name] = form.elements[name].value;
  if (!state.order) state.order = USUAL_ORDER;
  history.replaceState(null, "", addressOf(state));
  show();
}

function step(by) {
  const { rows, state } = current;
  const at = placeOf(rows, state.case);
  const next = rows[at < 0 ? 0 : at + by];
  if (next !== undefined) location.hash = addressOf({ ...state, case: next.id, beside: "" });
}

let waiting = 0;
form.addEventListener("submit", (event) => { event.preventDefault(); typed(); });
form.addEventListener("change", typed);
form.elements.q.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(typed, 200); });
form.addEventListener("reset", () => setTimeout(typed));

// A plain anchor such as #tables moves the page and leaves filters alone.
window.addEventListener("hashchange", () => { if (location.hash.includes("=")) show({ arrive: true }); });

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape") {
    const chosen = list.querySelector("[aria-current]") || list.querySelector("a");
    if (chosen) chosen.focus();
    else event.target.blur();
  } else if (!typing && event.key === "/") {
    event.preventDefault();
    form.elements.q.focus();
  } else if (!typing && event.key === "j") step(1);
  else if (!typing && event.key === "k") step(-1);
});

fillSelects();
fillOrders();
form.hidden = false;
makeTablesSortable(document);
show({ arrive: true });
