// One case: what happened, its conversation, its agents, the injection as it was written.

const view = document.getElementById("case");

function fact(label, ...value) {
  return element("div", "", element("dt", "", label), element("dd", "", ...value));
}

function exposure(row) {
  if (row.attack === "none") return null;
  const answer = (value) => (value === null ? "unknown" : value ? "yes" : "no");
  const round = row.injection_round ? `, first in tool result ${row.injection_round} of the conversation` : "";
  return fact("Injection", `returned by a tool: ${answer(row.exposed_raw)}; shown to the acting agent: ${answer(row.exposed_shown)}${round}`);
}

// What became of the injection, by outcome and by who was shown it.
function injectionSentence(row, trajectory) {
  if (row.attack === "none" || row.outcome === "error") return null;
  const worker = trajectory && (trajectory.spans || []).some((span) => span.kind === "worker");
  const handed = worker ? "a value that a worker returned" : "a text that another agent handed over";
  const carried = row.exposed_raw === false ? "The attack counts as successful, although no tool had returned the injection."
    : row.exposed_shown ? "The injection was carried out by the agent that read it."
      : row.exposed_shown === false && row.exposed_raw ? `The injection was carried out, through ${handed}.` : "The injection was carried out.";
  const failed = row.exposed_raw === false ? "No tool returned the injection, so nothing was resisted."
    : row.exposed_shown ? "The acting agent read the injection and did not carry it out."
      : row.exposed_shown === false && row.exposed_raw ? "A tool returned the injection; the acting agent never received it."
        : "The injection was not carried out; who read it is not recorded.";
  return element("p", "injection-sentence", row.outcome === "attack_succeeded" ? carried : failed);
}

function facts(row) {
  return element(
    "dl", "facts",
    fact("Model", oneLine(row.model)),
    fact("Benchmark", oneLine(row.benchmark)),
    fact("Defense", oneLine(row.defense)),
    fact("Attack", oneLine(row.attack)),
    exposure(row),
    row.length === null ? null : fact("Tool results", amount(row.length)),
    row.tokens === null ? null : fact("Tokens", amount(row.tokens)),
    row.cost_usd === null ? null : fact("Cost", `$${row.cost_usd.toFixed(4)}`),
    row.seconds === null ? null : fact("Time", seconds(row.seconds)),
    row.config === null ? null : fact("Config", element("code", "", oneLine(row.config))),
    fact("File", element("code", "", oneLine(row.path))),
    fact("Id", element("code", "", row.id)),
  );
}

function usageTable(roles) {
  const head = ["Role", "Calls", "Prompt tokens", "of them cached", "Completion tokens", "Cost"];
  const known = (number) => (number === null ? "unknown" : amount(number));
  const rows = roles.map((role) => element(
    "tr", "",
    element("th", "", oneLine(role.role)),
    ...[amount(role.calls), known(role.prompt), known(role.cached), known(role.completion),
      role.cost_usd === null ? "unknown" : `$${role.cost_usd.toFixed(4)}`].map((text) => element("td", "number", text)),
  ));
  const columns = head.map((label, index) => element("th", index ? "number" : "", label));
  return element("table", "", element("thead", "", element("tr", "", ...columns)), element("tbody", "", ...rows));
}

function section(title, about, build, open) {
  return lazyDetails([element("span", "section-title", title), element("span", "quiet", about)], build,
    { open, className: "section" });
}

// `alike`: how many messages at the beginning are those of the case beside this one; null where there is none.
function sections(row, trajectory, pattern, alike) {
  const made = [];
  if (trajectory.error !== undefined) {
    made.push(section("Error", row.error_kind || "", () => textBlock(trajectory.error, pattern), true));
  }
  if (trajectory.characters_cut) {
    made.push(element("p", "banner", `${amount(trajectory.characters_cut)} characters of very long texts are left out here; they are in the file.`));
  }
  made.push(section("Conversation", count(trajectory.messages.length, "message"),
    () => conversation(trajectory.messages, pattern, alike), true));
  if (trajectory.spans) {
    made.push(section("Agent tree", treeSummary(trajectory), () => {
      const tree = agentTree(trajectory, pattern);
      return element("div", "", treeButtons(tree), tree);
    }, true));
  }
  if (trajectory.injections.length) {
    made.push(section("Injection as written", count(trajectory.injections.length, "place"), () => element(
      "div", "", ...trajectory.injections.map((injection) => element(
        "div", "", element("p", "call-head", element("code", "", oneLine(injection.vector))),
        textBlock(injection.text, pattern)))), false));
  }
  if (trajectory.roles) {
    made.push(section("Tokens and cost by role", count(trajectory.roles.length, "role"), () => usageTable(trajectory.roles), false));
  }
  if (trajectory.notes) {
    made.push(section("Notes", count(trajectory.notes.length, "note"),
      () => element("div", "", ...trajectory.notes.map((note) => textBlock(note, pattern))), false));
  }
  return made;
}

function neighbours(rows, state) {
  const at = placeOf(rows, state.case);
  const link = (label, row) => {
    if (row === undefined) return element("span", "quiet", label);
    const made = element("a", "", label);
    made.href = addressOf({ ...state, case: row.id, beside: "" });
    return made;
  };
  const where = at < 0 ? "not among the cases shown" : `${amount(at + 1)} of ${amount(rows.length)}`;
  return element("div", "neighbours", link("← Previous", rows[at - 1]), element("span", "quiet", where),
    link("Next →", at < 0 ? rows[0] : rows[at + 1]));
}

// The same task under other defenses, or by other models.
function othersOf(row) {
  const same = ["benchmark", "suite", "user_task", "injection_task", "attack", "epoch"];
  return CASES.filter((other) => other.id !== row.id && same.every((name) => other[name] === row[name]));
}

function besideLinks(row, state) {
  const others = othersOf(row);
  const link = (label, beside) => {
    const made = element("a", "beside-link", oneLine(label));
    made.href = addressOf({ ...state, beside });
    if (beside && beside === state.beside) made.setAttribute("aria-current", "true");
    return made;
  };
  const several = new Set([row, ...others].map((one) => one.model)).size > 1;
  const links = others.map((other) => link(several ? `${other.defense} (${other.model})` : other.defense, other.id));
  if (!links.length && !state.beside) return null;
  return element("p", "beside", element("span", "quiet", "Set beside:"), ...links,
    state.beside ? link("one case only", "") : null);
}

// How many messages two conversations begin with in common; defenses have system prompts of their own.
function alikeIn(first, second) {
  const said = (message) => JSON.stringify([message.role, message.answers, message.parts.map((part) => pieces(part).join("")),
    (message.calls || []).map((call) => [call.tool, pieces(call.args).join("")])]);
  const [one, other] = [first, second].map(({ messages }) => messages.filter(({ role }) => role !== "system").map(said));
  const differs = one.findIndex((text, place) => text !== other[place]);
  return differs < 0 ? one.length : differs;
}

const MISSING = "This case is not among these runs: the link is of others, or the case was removed.";
const LEFT_OUT = "This trajectory is left out of the report: see the note above the filters. It is in the file named here.";

function caseParts(row, trajectory, pattern, alike) {
  if (!row) return [element("p", "banner", MISSING)];
  return [
    element("h3", "", oneLine(caseTitle(row))),
    element("p", "under", oneLine(caseUnder(row))),
    element("p", "chips", ...outcomeChips(row, { always: true })),
    injectionSentence(row, trajectory) ?? "",
    facts(row),
    ...(trajectory ? sections(row, trajectory, pattern, alike) : [element("p", "banner", LEFT_OUT)]),
  ];
}

async function showCase(rows, state) {
  if (!state.case) {
    view.replaceChildren(element("p", "quiet empty", "Choose a case from the list."));
    return;
  }
  const ids = [state.case, state.beside].filter(Boolean);
  const told = await Promise.all(ids.map((id) => (BY_ID.has(id) ? trajectoryOf(BY_ID.get(id)) : null)));
  const now = stateOfAddress();
  if (now.case !== state.case || now.beside !== state.beside) return; // another one was chosen meanwhile
  const pattern = searchPattern(state.q);
  const alike = told.length === 2 && told.every(Boolean) ? alikeIn(...told) : null;
  const shown = ids.map((id, place) => caseParts(BY_ID.get(id), told[place], pattern, alike));
  document.body.classList.toggle("two", shown.length === 2);
  view.replaceChildren(
    neighbours(rows, state),
    BY_ID.has(state.case) ? besideLinks(BY_ID.get(state.case), state) ?? "" : "",
    ...(shown.length === 1 ? shown[0]
      : [element("div", "pair", ...shown.map((parts) => element("section", "half", ...parts)))]),
  );
}
