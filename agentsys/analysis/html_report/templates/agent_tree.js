// The agent tree: which agent worked for which, what was decided on the way, what it cost.

function spanHead(span, trajectory) {
  const head = [chip(span.kind, `kind-${span.kind.replace(/[^a-z_]/g, "")}`)];
  if (span.name) head.push(element("code", "", oneLine(span.name)));
  if (span.decision) head.push(chip(span.decision.label, span.decision.tone));
  if ((span.messages || []).some(holdsInjection)) head.push(chip("injection in context", "bad"));
  if (span.attempt) head.push(element("span", "quiet", `attempt ${span.attempt + 1}`));
  if (span.tokens) {
    const [prompt, completion] = span.tokens;
    head.push(element("span", "quiet", `${amount(prompt)} → ${amount(completion)} tokens, ${count(span.calls, "call")}`));
  }
  if (span.calls && !span.tokens) head.push(element("span", "quiet", `tokens unknown, ${count(span.calls, "call")}`));
  if (span.calls) head[head.length - 1].title = `How the replies ended: ${span.ended}`;
  if (span.duration_s >= 0.001 && (span.calls || span.kind === "tool")) {
    head.push(element("span", "quiet", seconds(span.duration_s)));
  }
  return head;
}

function spanBody(span, pattern) {
  const parts = [];
  if (span.detail !== undefined) {
    const title = span.kind === "tool" ? "Arguments and error" : "Decision";
    parts.push(lazyDetails([title], () => textBlock(span.detail, pattern),
      { open: span.kind === "tool" || span.kind === "validator" }));
  }
  if (span.messages) {
    parts.push(lazyDetails([`Context: ${count(span.messages.length, "message")}`],
      () => conversation(span.messages, pattern)));
  }
  return element("div", "span-body", ...parts);
}

function holdsSearch(span, pattern) {
  const numbers = (span.messages || []).flatMap((message) => [...message.parts, ...(message.calls || []).map((call) => call.args)]);
  return holdsMatch(span.detail === undefined ? numbers : [span.detail, ...numbers], pattern);
}

// Parents stand before their children in the list, so one pass builds the tree.
function agentTree(trajectory, pattern) {
  const root = element("ul", "tree");
  const hasChildren = new Set(trajectory.spans.map((span) => span.parent));
  const lists = [];
  trajectory.spans.forEach((span, place) => {
    const inner = hasChildren.has(place);
    const made = lazyDetails(spanHead(span, trajectory), () => spanBody(span, pattern),
      { open: inner || holdsSearch(span, pattern), className: "span" });
    if (inner) {
      const children = element("ul", "");
      made.append(children);
      lists[place] = children;
    }
    const parent = span.parent === undefined ? root : lists[span.parent];
    parent.append(element("li", "", made));
  });
  return root;
}

function treeButtons(tree) {
  const button = (label, open) => {
    const made = element("button", "more", label);
    made.type = "button";
    made.addEventListener("click", () => tree.querySelectorAll("details.span").forEach((one) => { one.open = open; }));
    return made;
  };
  return element("div", "buttons", button("Open all", true), button("Close all", false));
}

// Text alternative to indentation: what the tree as a whole says.
function treeSummary(trajectory) {
  const kinds = {};
  for (const span of trajectory.spans) kinds[span.kind] = (kinds[span.kind] || 0) + 1;
  const listed = Object.entries(kinds).filter(([kind]) => kind !== "run").map(([kind, number]) => `${number} ${kind}`);
  const denied = trajectory.spans.filter((span) => span.decision && span.decision.label === "denied").length;
  return listed.join(", ") + (denied ? `; ${count(denied, "call")} denied` : "");
}
