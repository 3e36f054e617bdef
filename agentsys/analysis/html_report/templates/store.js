// The cases: lines of the list part by part, texts and trajectories block by block, when they are needed.
// All of it is compressed, inside the page or in files beside it.

const DATA = JSON.parse(document.getElementById("about-data").textContent);
const CASES = [];
const BY_ID = new Map();
const TEXTS = new Map();
const MOST_BLOCKS = 64;

const asked = new Map();
const url = { createScriptURL: (name) => `${DATA.beside}/${name}.js` };
const files = DATA.beside && window.trustedTypes ? window.trustedTypes.createPolicy("report-files", url) : url;
if (DATA.beside) window.agentsysPart = (name, packed) => asked.get(name)(packed);

function packedData(name) {
  const inside = document.getElementById(name);
  if (inside) return Promise.resolve(inside.textContent);
  return new Promise((resolve, reject) => {
    asked.set(name, resolve);
    const script = document.createElement("script");
    script.src = files.createScriptURL(name);
    script.onload = () => script.remove();
    script.onerror = () => reject(new Error(`${DATA.beside}/${name}.js cannot be read; keep that folder beside this page`));
    document.head.append(script);
  });
}

async function unpack(name) {
  const bytes = Uint8Array.from(atob(await packedData(name)), (character) => character.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(plain).text());
}

// `loaded` is called after each part; the first is enough to begin with.
async function loadCases(loaded) {
  for (let part = 0; part < DATA.parts; part += 1) {
    const columns = Object.entries(await unpack(`index-${part}`));
    const start = CASES.length;
    columns[0][1].rows.forEach((_, at) => {
      const row = { place: start + at };
      for (const [name, { values, rows }] of columns) row[name] = values[rows[at]];
      CASES.push(row);
      BY_ID.set(row.id, row);
    });
    loaded();
  }
}

const blocks = new Map();
function block(number) {
  if (!blocks.has(number)) {
    if (blocks.size >= MOST_BLOCKS) blocks.delete(blocks.keys().next().value);
    blocks.set(number, unpack(`cases-${number}`));
  }
  return blocks.get(number);
}

// Null where it was left out. Its texts stay: what is folded is built when it is opened.
async function trajectoryOf(row) {
  const number = Math.floor(row.place / DATA.per_block);
  const { first, texts, trajectories } = await block(number);
  texts.forEach((text, at) => TEXTS.set(first + at, text));
  return trajectories[row.place % DATA.per_block];
}

// Ids of the cases that hold a text; null where `goOn` says that nobody waits any longer.
async function idsWithText(query, goOn) {
  const pattern = searchPattern(query);
  const holds = (text) => { pattern.lastIndex = 0; return pattern.test(text); };
  const ids = new Set();
  for (let number = 0; number < DATA.blocks; number += 1) {
    const { first, texts, trajectories } = await block(number);
    if (!goOn(number)) return null;
    const holding = new Set();
    texts.forEach((text, at) => { if (holds(typeof text === "string" ? text : text.join(""))) holding.add(first + at); });
    trajectories.forEach((trajectory, at) => {
      const row = CASES[number * DATA.per_block + at];
      const inside = () => holds(toolNames(trajectory)) || [...textNumbers(trajectory)].some((one) => holding.has(one));
      if (row && (holds(namesOf(row)) || (trajectory && inside()))) ids.add(row.id);
    });
  }
  return ids;
}

function namesOf(row) {
  return [row.id, row.suite, row.user_task, row.injection_task, row.defense, row.attack, row.model,
    row.error_kind || "", row.path].join("\n");
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
  return names.concat((trajectory.spans || []).map((span) => span.name || "")).join("\n");
}
