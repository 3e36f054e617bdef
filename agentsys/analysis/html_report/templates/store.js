// The cases: the list of them at once, texts and trajectories when they are needed.

const CASES = JSON.parse(document.getElementById("index-data").textContent);
const BY_ID = new Map(CASES.map((row) => [row.id, row]));
const TEXTS = new Map();

// `trajectory` gives one or null, `withText` the ids of cases that hold a text.
const source = {
  loaded: null,
  data() {
    if (source.loaded === null) {
      const { texts, trajectories } = JSON.parse(document.getElementById("trajectory-data").textContent);
      texts.forEach((text, number) => TEXTS.set(number, text));
      source.loaded = new Map(CASES.map((row, place) => [row.id, trajectories[place]]));
    }
    return source.loaded;
  },
  trajectory: (id) => source.data().get(id),
  withText(query) {
    const known = source.data();
    const pattern = searchPattern(query);
    const holds = (text) => { pattern.lastIndex = 0; return pattern.test(text); };
    const texts = new Set();
    for (const [number, text] of TEXTS) if (holds(typeof text === "string" ? text : text.join(""))) texts.add(number);
    return new Set(CASES.filter((row) => {
      if (holds(namesOf(row))) return true;
      const found = known.get(row.id) && searchable(row.id, known.get(row.id));
      return Boolean(found) && (holds(found.tools) || found.texts.some((number) => texts.has(number)));
    }).map((row) => row.id));
  },
};

function namesOf(row) {
  return [row.id, row.suite, row.user_task, row.injection_task, row.defense, row.attack, row.model,
    row.error_kind || "", row.path].join("\n");
}

const perCase = new Map();
function searchable(id, trajectory) {
  if (!perCase.has(id)) {
    perCase.set(id, { texts: [...textNumbers(trajectory)], tools: toolNames(trajectory).join("\n") });
  }
  return perCase.get(id);
}

function pieces(number) {
  const text = TEXTS.get(number);
  return typeof text === "string" ? [text] : text;
}

function searchPattern(query) {
  return query ? new RegExp(query.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi") : null;
}

// Numbers of the texts that a trajectory shows; whatever else is a number in it is left alone.
function textNumbers(trajectory) {
  const found = new Set();
  const take = (messages) => {
    for (const message of messages || []) {
      message.parts.forEach((part) => found.add(part));
      (message.calls || []).forEach((call) => found.add(call.args));
      if (message.error !== undefined) found.add(message.error);
    }
  };
  take(trajectory.messages);
  for (const span of trajectory.spans || []) {
    take(span.messages);
    if (span.detail !== undefined) found.add(span.detail);
  }
  trajectory.injections.forEach((injection) => found.add(injection.text));
  (trajectory.notes || []).forEach((note) => found.add(note));
  if (trajectory.error !== undefined) found.add(trajectory.error);
  return found;
}

function toolNames(trajectory) {
  const names = trajectory.messages.flatMap((message) => (message.calls || []).map((call) => call.tool));
  return names.concat((trajectory.spans || []).map((span) => span.name || ""));
}
