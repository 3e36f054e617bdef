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
  );
}

function usageTable(roles) {
  const head = ["Role", "Calls", "Prompt tokens", "Completion tokens", "Cost"];
  const rows = roles.map((role) => element(
    "tr", "",
    element("th", "", oneLine(role.role)),
    ...[amount(role.calls), amount(role.prompt), amount(role.completion),
      role.cost_usd === null ? "unknown" : `$${role.cost_usd.toFixed(4)}`].map((text) => element("td", "number", text)),
  ));
  const columns = head.map((label, index) => element("th", index ? "number" : "", label));
  return element("table", "", element("thead", "", element("tr", "", ...columns)), element("tbody", "", ...rows));
}

function section(title, about, build, open) {
  return lazyDetails([element("span", "section-title", title), element("span", "quiet", about)], build,
    { open, className: "section" });
}

function sections(row, trajectory, pattern) {
  const made = [];
  if (trajectory.error !== undefined) {
    made.push(section("Error", row.error_kind || "", () => textBlock(trajectory.error, pattern), true));
  }
  if (trajectory.characters_cut) {
    made.push(element("p", "banner", `${amount(trajectory.characters_cut)} characters of very long texts are left out here; they are in the file.`));
  }
  if (row.exposed_raw && row.exposed_shown === false && trajectory.spans) {
    made.push(element("p", "quiet", "No message that the acting agent received holds the injection: the defense kept it out. The agent tree shows who read it."));
  }
  made.push(section("Conversation", count(trajectory.messages.length, "message"),
    () => conversation(trajectory.messages, pattern), true));
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

function neighbours(places, state) {
  const at = places.indexOf(state.case);
  const link = (label, place) => {
    if (place === undefined) return element("span", "quiet", label);
    const made = element("a", "", label);
    made.href = addressOf({ ...state, case: place });
    return made;
  };
  const where = at < 0 ? "not among the cases shown" : `${amount(at + 1)} of ${amount(places.length)}`;
  return element("div", "neighbours", link("← Previous", places[at - 1]), element("span", "quiet", where),
    link("Next →", at < 0 ? places[0] : places[at + 1]));
}

function showCase(places, state) {
  if (state.case === null) {
    view.replaceChildren(element("p", "quiet empty", "Choose a case from the list."));
    return;
  }
  const row = CASES[state.case];
  const trajectory = data().trajectories[state.case];
  view.replaceChildren(
    neighbours(places, state),
    element("h3", "", oneLine(caseTitle(row))),
    element("p", "chips", ...outcomeChips(row, { always: true })),
    facts(row),
    ...(trajectory ? sections(row, trajectory, searchPattern(state.q))
      : [element("p", "banner", "This trajectory is left out of the report: see the note above the filters. It is in the file named here.")]),
  );
}
