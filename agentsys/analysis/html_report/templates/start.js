// Putting it together: the address decides what is shown; filters change the address.

const foundLine = document.getElementById("found");
const keys = document.getElementById("keys");
let current = { rows: [], state: null };
const search = { query: "", ids: new Set(), wanted: "" };

function same(before, after, names) {
  return before !== null && names.every((name) => before[name] === after[name]);
}

let atWork = 0;

function setBusy(more) {
  atWork += more;
  document.body.toggleAttribute("data-busy", atWork > 0);
}

// `arrive`: go where the address leads. `anew`: the list has grown, or a search has ended.
async function show({ arrive = false, anew = false } = {}) {
  const state = stateOfAddress();
  setBusy(1);
  try {
    if (state.q && (state.q !== search.query || anew === "grown")) {
      if (!await find(state.q)) return;
      anew = true;
    }
    const before = current.state;
    const unfiltered = !anew && same(before, state, [...FILTERS, "order", "show"]);
    const rows = unfiltered ? current.rows : filtered(state);
    current = { rows, state };
    if (!unfiltered) showFiltered(rows, state);
    else if (state.case && BY_ID.has(state.case) && !list.querySelector(`a[data-id="${CSS.escape(state.case)}"]`)) showList(rows, state);
    markChosen(state);
    if (!unfiltered || !same(before, state, ["case", "beside", "q"])) await showCase(rows, state);
    if (arrive) goTo(before, state);
  } catch (error) {
    foundLine.textContent = error.message;
  } finally {
    setBusy(-1);
  }
}

function showFiltered(rows, state) {
  for (const name of [...FILTERS, "order"]) form.elements[name].value = state[name];
  for (const box of columnsBox.querySelectorAll("input")) box.checked = state.show.split(",").includes(box.name);
  const unread = DATA.cases - CASES.length;
  foundLine.textContent = `${amount(rows.length)} of ${count(CASES.length, "case")}${unread ? `; ${amount(unread)} more are being read` : ""}`;
  showList(rows, state);
}

// False if another search has begun since.
async function find(query) {
  search.wanted = query;
  const ids = await idsWithText(query, (number) => {
    if (number % 10 === 9) foundLine.textContent = `Searching: ${amount(number * DATA.per_block)} of ${count(DATA.cases, "case")}`;
    return search.wanted === query;
  });
  if (ids === null) return false;
  Object.assign(search, { query, ids });
  return true;
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

let waiting = 0;

function typed() {
  clearTimeout(waiting);
  waiting = 0;
  const state = { ...stateOfAddress() };
  for (const name of [...FILTERS, "order"]) state[name] = form.elements[name].value;
  if (!state.order) state.order = USUAL_ORDER;
  state.show = [...columnsBox.querySelectorAll("input:checked")].map((box) => box.name).join(",");
  history.replaceState(null, "", addressOf(state));
  return show();
}

function step(by) {
  const { rows, state } = current;
  const at = placeOf(rows, state.case);
  const next = rows[at < 0 ? 0 : at + by];
  if (next !== undefined) location.hash = addressOf({ ...state, case: next.id, beside: "" });
}

const soon = () => { clearTimeout(waiting); waiting = setTimeout(typed, 200); };
form.addEventListener("submit", (event) => { event.preventDefault(); typed(); });
form.addEventListener("change", typed);
form.elements.q.addEventListener("input", soon);
form.elements.where.addEventListener("input", soon);
form.addEventListener("reset", () => setTimeout(typed));
columnsBox.addEventListener("change", typed);

// A plain anchor such as #tables moves the page and leaves filters alone.
window.addEventListener("hashchange", () => { if (location.hash.includes("=")) show({ arrive: true }); });

document.getElementById("keys-button").addEventListener("click", () => keys.showModal());
const KEYS = {
  "/": () => form.elements.q.focus(),
  w: () => form.elements.where.focus(),
  j: () => step(1),
  k: () => step(-1),
  "?": () => keys.showModal(),
};

async function backToList(from) {
  if (waiting) await typed();
  from.blur();
  (list.querySelector("[aria-current]") || list.querySelector("a") || document.body).focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
  const typing = event.target.matches("input:not([type=checkbox]), select, textarea");
  if (event.key === "Escape") {
    event.preventDefault(); // A search field would be emptied.
    backToList(event.target);
  } else if (!typing && Object.hasOwn(KEYS, event.key)) {
    event.preventDefault();
    KEYS[event.key]();
  }
});

// Loads the page again when a server has more, unless somebody is typing; it stays where it is.
async function follow() {
  try {
    const stamp = await (await fetch("stamp", { cache: "no-store" })).text();
    const idle = !keys.open && !document.activeElement.matches("input, select");
    if (stamp !== DATA.follow && idle) {
      history.replaceState({ scrolled: window.scrollY }, "");
      location.reload();
    }
  } catch {
    document.getElementById("following").textContent = "The server has ended; what you see stays.";
  }
}

async function start() {
  setBusy(1);
  fillOrders();
  fillColumns();
  document.getElementById("fields").textContent = FIELDS.join(", ");
  form.hidden = columnsBox.hidden = false;
  makeTablesSortable(document);
  const scrolled = history.state && history.state.scrolled;
  let parts = 0;
  const shown = [];
  await loadCases(() => {
    parts += 1;
    someReal = CASES.some((row) => !row.simulated);
    fillSelects();
    shown.push(show({ arrive: parts === 1 && !scrolled, anew: parts === 1 || "grown" }));
  });
  if (!DATA.parts) shown.push(show());
  await Promise.all(shown);
  if (scrolled) window.scrollTo(0, scrolled);
  if (DATA.follow) setInterval(follow, 2000);
}

start().catch((error) => { foundLine.textContent = error.message; }).finally(() => setBusy(-1));
