// The page of `agentsys view`: trajectories come from its server, which also tells when there are more cases.

const kept = new Map();
let complete = !LIVE;  // whether all cases that there are have been told of
const LATEST = document.getElementById("live");

function stillReading() {
  return !complete;
}

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
  return answer.json();
}

const served = {
  trajectory(id) {
    if (!kept.has(id)) {
      const asking = ask(`case/${encodeURIComponent(id)}`).then(({ texts, trajectory }) => {
        texts.forEach(([number, text]) => TEXTS.set(number, text));
        return trajectory;
      });
      asking.catch(() => kept.delete(id));
      kept.set(id, asking);
    }
    return kept.get(id);
  },
  async withText(query) {
    const pattern = searchPattern(query);
    const named = CASES.filter((row) => namesOf(row).search(pattern) >= 0).map((row) => row.id);
    const { ids } = await ask(`search?q=${encodeURIComponent(query)}`);
    return new Set([...named, ...ids]);
  },
};

const collator = new Intl.Collator("en", { numeric: true });
function inReadingOrder(one, other) {
  for (const name of ["benchmark", "suite", "user_task", "injection_task", "attack"]) {
    if (one[name] !== other[name]) return collator.compare(one[name], other[name]);
  }
  return (one.defense !== "none") - (other.defense !== "none") || collator.compare(one.defense, other.defense)
    || collator.compare(one.model, other.model) || one.epoch - other.epoch;
}

function take(told) {
  for (const id of told.gone) BY_ID.delete(id);
  for (const row of told.rows) {
    BY_ID.set(row.id, row);
    kept.delete(row.id);
  }
  CASES = [...BY_ID.values()].sort(inReadingOrder);
  fillSelects();
  const { state } = current;
  const changed = state && told.rows.some((row) => row.id === state.case || row.id === state.beside);
  return show({ fresh: true }).then(() => (changed ? showCase(current.rows, current.state) : null));
}

function sayLatest(told) {
  LATEST.classList.remove("lost");
  const latest = CASES.reduce((best, row) => (best === null || (row.written ?? 0) > (best.written ?? 0) ? row : best), null);
  const parts = [element("span", "pulse", "●"), element("span", "", told.reading ? `reading: ${count(CASES.length, "case")} so far` : count(CASES.length, "case"))];
  if (told.planned) parts.push(element("span", "quiet", told.planned));
  if (latest) {
    const link = element("a", "", oneLine(`${caseTitle(latest)} · ${caseUnder(latest)}`));
    link.href = addressOf({ ...stateOfAddress(), case: latest.id, beside: "" });
    parts.push(element("span", "quiet", "latest:"), link, element("span", "chips", ...outcomeChips(latest)));
  }
  LATEST.replaceChildren(...parts);
}

// The server's tables as a document of their own: parsed without anything in it being run or loaded.
function showNumbers() {
  const request = new XMLHttpRequest();
  request.responseType = "document";
  request.open("GET", "numbers");
  request.addEventListener("load", () => {
    const made = request.response && request.response.getElementById("numbers");
    if (request.status !== 200 || !made) return;
    const before = document.getElementById("numbers");
    const after = document.importNode(made, true);
    const open = [...before.querySelectorAll("details")].map((one) => one.open);
    after.querySelectorAll("details").forEach((one, place) => { one.open = Boolean(open[place]); });
    before.replaceWith(after);
    makeTablesSortable(after);
  });
  request.send();
}

async function follow() {
  const { run } = LATEST.dataset;
  let since = Number(LATEST.dataset.version);
  let numbers = 0;
  for (;;) {
    try {
      const told = await ask(`changes?run=${run}&since=${since}&numbers=${numbers}`);
      if (told.run !== run) { location.reload(); return; }
      since = told.version;
      const waited = !complete;
      complete = !told.reading;
      if (told.rows.length || told.gone.length) await take(told);
      if (waited && complete && current.state.case && !BY_ID.has(current.state.case)) await showCase(current.rows, current.state);
      if (told.numbers !== numbers) { numbers = told.numbers; showNumbers(); }
      sayLatest(told);
    } catch (fault) {
      LATEST.classList.add("lost");
      LATEST.replaceChildren(element("span", "pulse", "●"), "The server of this page does not answer: was agentsys view ended?");
      await new Promise((done) => { setTimeout(done, 1000); });
    }
  }
}
