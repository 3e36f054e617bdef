// The embedded data: the list of cases at once, texts and trajectories when one of them is first needed.

const CASES = JSON.parse(document.getElementById("index-data").textContent);

let loaded = null;
function data() {
  if (loaded === null) loaded = JSON.parse(document.getElementById("trajectory-data").textContent);
  return loaded;
}

function pieces(number) {
  const text = data().texts[number];
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

let perCase = null;
function searchable(place) {
  if (perCase === null) {
    perCase = data().trajectories.map((trajectory) =>
      trajectory && { texts: [...textNumbers(trajectory)], tools: toolNames(trajectory).join("\n") });
  }
  return perCase[place];
}

// Places of the cases in which the query stands somewhere.
function casesWith(query) {
  const pattern = searchPattern(query);
  const holds = (text) => { pattern.lastIndex = 0; return pattern.test(text); };
  const texts = data().texts.map((text) => holds(typeof text === "string" ? text : text.join("")));
  return new Set([...CASES.keys()].filter((place) => {
    const row = CASES[place];
    const names = [row.suite, row.user_task, row.injection_task, row.defense, row.attack, row.model,
      row.error_kind || "", row.path].join("\n");
    if (holds(names)) return true;
    const known = searchable(place);
    return Boolean(known) && (holds(known.tools) || known.texts.some((number) => texts[number]));
  }));
}
