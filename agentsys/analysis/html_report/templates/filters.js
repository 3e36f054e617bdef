// What is shown: filters and the chosen case. It all stands in the address after `#`, so that a view can
// be linked to and the browser's Back button works.

const OUTCOMES = {
  attack_succeeded: "attack carried out",
  attack_failed: "attack not carried out",
  attack_unseen: "payload never seen",
  benign: "no attack",
  error: "errored",
};
const TASKS = { solved: "solved", failed: "not solved" };
const SELECTS = ["model", "suite", "defense", "attack", "outcome", "task"];

const form = document.getElementById("filters");

function stateOfAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const state = Object.fromEntries([...SELECTS, "q"].map((name) => [name, given.get(name) || ""]));
  const place = given.has("case") ? Number(given.get("case")) : NaN;
  state.case = Number.isInteger(place) && place >= 0 && place < CASES.length ? place : null;
  return state;
}

function addressOf(state) {
  const filled = Object.entries(state).filter(([, value]) => value !== "" && value !== null);
  return `#${new URLSearchParams(filled.map(([name, value]) => [name, String(value)]))}`;
}

function fillSelects() {
  const values = (name) => [...new Set(CASES.map((row) => row[name]))].sort();
  const options = {
    ...Object.fromEntries(["model", "suite", "defense", "attack"].map((name) => [name, values(name).map((v) => [v, v])])),
    outcome: Object.entries(OUTCOMES).filter(([key]) => CASES.some((row) => row.outcome === key)),
    task: Object.entries(TASKS),
  };
  for (const name of SELECTS) {
    const all = new Option("all", "");
    const known = options[name].map(([value, label]) => new Option(plainText(label), value));
    form.elements[name].append(all, ...known);
    form.elements[name].closest("label").hidden = known.length < 2;
  }
}

function matches(row, state) {
  if (["model", "suite", "defense", "attack", "outcome"].some((name) => state[name] && row[name] !== state[name])) {
    return false;
  }
  return !state.task || row.solved === (state.task === "solved");
}

function filtered(state) {
  const withText = state.q ? casesWith(state.q) : null;
  const places = [];
  CASES.forEach((row, place) => {
    if (matches(row, state) && (withText === null || withText.has(place))) places.push(place);
  });
  return places;
}
