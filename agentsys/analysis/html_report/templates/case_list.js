// The list of cases: links, a page of them at a time.

const PAGE = 100;
const list = document.getElementById("cases");

let someReal = false;
// `always`: say of a simulated case that it is one even where all of them are (the page's banner says so).
function outcomeChips(row, { always = false } = {}) {
  const chips = [];
  if (row.outcome === "attack_succeeded") chips.push(chip("injection carried out", "bad", "The attack succeeded"));
  if (row.outcome === "attack_failed") chips.push(chip("resisted", "good", "The injection task was not carried out"));
  if (row.outcome === "attack_unseen") {
    chips.push(chip("never seen", "note", "The attack failed, but no tool had returned its text"));
  }
  if (row.outcome === "error") chips.push(chip(`error: ${row.error_kind || "unknown"}`, "bad"));
  if (row.solved === true) chips.push(chip("solved", "good", "The user task was solved"));
  if (row.solved === false) chips.push(chip("not solved", "note", "The user task was not solved"));
  if (row.simulated && (always || someReal)) {
    chips.push(chip("simulated", "simulated", "A scripted agent, not a language model"));
  }
  return chips;
}

function shortTask(id) {
  return id.replace(/^user_task_(\d+)$/, "user $1").replace(/^injection_task_(\d+)$/, "injection $1");
}

function caseTitle(row) {
  const task = row.injection_task ? `${shortTask(row.user_task)} × ${shortTask(row.injection_task)}` : shortTask(row.user_task);
  return `${row.suite} · ${task}${row.epoch ? ` · epoch ${row.epoch}` : ""}`;
}

function caseUnder(row) {
  return row.attack === "none" ? row.defense : `${row.defense} / ${row.attack}`;
}

const COLUMNS = {
  model: ["Model", (row) => row.model],
  verdict: ["Verdict", (row) => row.verdict],
  tokens: ["Tokens", (row) => row.tokens !== null && amount(row.tokens)],
  cost_usd: ["Cost", (row) => row.cost_usd !== null && `$${row.cost_usd.toFixed(4)}`],
  seconds: ["Time", (row) => row.seconds !== null && seconds(row.seconds)],
  length: ["Tool results", (row) => row.length !== null && amount(row.length)],
  exposed_shown: ["Agent saw the injection", (row) => row.exposed_shown !== null && (row.exposed_shown ? "yes" : "no")],
};
const columnsBox = document.getElementById("columns");

function fillColumns() {
  const boxes = Object.entries(COLUMNS).map(([name, [label]]) => {
    const box = element("input", "");
    Object.assign(box, { type: "checkbox", name, id: `column-${name}` });
    return element("label", "", box, ` ${label}`);
  });
  columnsBox.append(element("div", "columns", ...boxes));
}

function caseColumns(row, state) {
  const shown = state.show.split(",").filter((name) => Object.hasOwn(COLUMNS, name));
  const facts = shown.map((name) => [COLUMNS[name][0], COLUMNS[name][1](row) || "–"]);
  return facts.length ? element("span", "case-under", oneLine(facts.map((fact) => fact.join(" ")).join(" · "))) : null;
}

function caseLink(row, state) {
  const link = element(
    "a", "case-link",
    element("span", "case-title", oneLine(caseTitle(row))),
    element("span", "case-under", oneLine(caseUnder(row))),
    caseColumns(row, state),
    element("span", "chips", ...outcomeChips(row)),
  );
  link.href = addressOf({ ...state, case: row.id, beside: "" });
  link.dataset.id = row.id;
  return link;
}

// Marks the chosen case in the list and brings it into the list's view, without moving the page.
function markChosen(state) {
  for (const link of list.querySelectorAll("a")) {
    if (link.dataset.id !== state.case) link.removeAttribute("aria-current");
    else {
      link.setAttribute("aria-current", "true");
      const above = link.offsetTop - list.scrollTop;
      if (above < 0 || above + link.offsetHeight > list.clientHeight) {
        list.scrollTop = link.offsetTop - list.clientHeight / 3;
      }
    }
  }
}

function placeOf(rows, id) {
  return rows.findIndex((row) => row.id === id);
}

// As many pages as it takes to have the chosen case among them.
function pagesFor(rows, state) {
  return PAGE * Math.max(1, Math.ceil((placeOf(rows, state.case) + 1) / PAGE));
}

function showList(rows, state, shown = pagesFor(rows, state)) {
  const links = rows.slice(0, shown).map((row) => caseLink(row, state));
  list.replaceChildren(...links);
  if (rows.length > shown) {
    const more = element("button", "more", `Show ${amount(Math.min(PAGE, rows.length - shown))} more`);
    more.type = "button";
    more.addEventListener("click", () => {
      showList(rows, state, shown + PAGE);
      list.children[shown].focus();
    });
    list.append(more);
  }
  if (!rows.length) list.append(element("p", "quiet", "No case matches these filters."));
}

list.addEventListener("keydown", (event) => {
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const target = step && document.activeElement && document.activeElement[step];
  if (!target || !list.contains(document.activeElement)) return;
  event.preventDefault();
  target.focus();
});
