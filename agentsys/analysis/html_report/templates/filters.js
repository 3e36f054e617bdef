// What is shown: filters, the order, the chosen case and the one beside it. It all stands in the address
// after `#`, so that a view can be linked to and the browser's Back button works.

const OUTCOMES = {
  attack_succeeded: "injection carried out",
  attack_failed: "injection not carried out",
  attack_unseen: "payload never seen",
  benign: "no attack",
  error: "errored",
};
const TASKS = { solved: "solved", failed: "not solved" };
const NAMED = ["model", "suite", "defense", "attack", "error_kind", "verdict"];
const SELECTS = [...NAMED, "outcome", "task"];
const FILTERS = [...SELECTS, "q", "where"];
const ORDERS = {
  task: ["by task", null],
  newest: ["newest first", (row) => row.written],
  tokens: ["most tokens first", (row) => row.tokens],
  cost: ["highest cost first", (row) => row.cost_usd],
  time: ["longest first", (row) => row.seconds],
  length: ["most tool results first", (row) => row.length],
};
const USUAL_ORDER = "task";

const form = document.getElementById("filters");

function stateOfAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const state = Object.fromEntries([...FILTERS, "case", "beside", "show"].map((name) => [name, given.get(name) || ""]));
  state.order = Object.hasOwn(ORDERS, given.get("order") || "") ? given.get("order") : USUAL_ORDER;
  return state;
}

function addressOf(state) {
  const filled = Object.entries(state).filter(([name, value]) => value && !(name === "order" && value === USUAL_ORDER));
  return `#${new URLSearchParams(filled)}`;
}

// Again after each part of the list: what is chosen stays chosen.
function fillSelects() {
  const values = (name) => [...new Set(CASES.map((row) => row[name]))].filter(Boolean).sort();
  const options = {
    ...Object.fromEntries(NAMED.map((name) => [name, values(name).map((v) => [v, v])])),
    outcome: Object.entries(OUTCOMES).filter(([key]) => CASES.some((row) => row.outcome === key)),
    task: Object.entries(TASKS),
  };
  for (const name of SELECTS) {
    const select = form.elements[name];
    select.replaceChildren(new Option("all", ""), ...options[name].map(([value, label]) => new Option(plainText(label), value)));
    select.closest("label").hidden = options[name].length < (name === "error_kind" ? 1 : 2);
  }
}

function fillOrders() {
  for (const [value, [label]] of Object.entries(ORDERS)) form.elements.order.append(new Option(label, value));
}

// Terms such as `tokens>5000 verdict!=valid outcome=error,benign`: all hold, and after a comma stands another value.
const FIELDS = ["outcome", "solved", "verdict", "error_kind", "exposed_raw", "exposed_shown", "tokens", "cost_usd", "seconds",
  "length", "injection_round", "epoch", "suite", "user_task", "injection_task", "defense", "attack", "model"];
const COMPARE = {
  "=": (value, wanted) => wanted.split(",").includes(value),
  "!=": (value, wanted) => !wanted.split(",").includes(value),
  ">": (value, wanted) => value !== "" && Number(value) > Number(wanted),
  "<": (value, wanted) => value !== "" && Number(value) < Number(wanted),
};

function parseWhere(text) {
  return text.split(/\s+/).filter(Boolean).map((term) => {
    const [, field, sign, wanted] = term.match(/^(\w+)(!=|[=<>])(.+)$/) || [];
    if (!FIELDS.includes(field)) throw new Error(`"${term}" is no filter; write e.g. tokens>5000 (fields: press ?)`);
    if ("<>".includes(sign) && Number.isNaN(Number(wanted))) throw new Error(`"${term}": ${wanted} is no number`);
    return (row) => COMPARE[sign](String(row[field] ?? "").replace(/\s/g, "_"), wanted);
  });
}

function matches(row, state) {
  if ([...NAMED, "outcome"].some((name) => state[name] && row[name] !== state[name])) return false;
  return !state.task || row.solved === (state.task === "solved");
}

function filtered(state) {
  const terms = parseWhere(state.where);
  const rows = CASES.filter((row) => matches(row, state) && terms.every((holds) => holds(row)) && (!state.q || search.ids.has(row.id)));
  const value = ORDERS[state.order][1];
  // Sorting is stable: what has the same value, or none, stays in the order of tasks.
  return value ? rows.sort((a, b) => (value(b) ?? -1) - (value(a) ?? -1)) : rows;
}
