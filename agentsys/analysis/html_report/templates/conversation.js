// Messages: what was said, asked for and returned, with the injection marked.

const LONG = 1600;

// A text's pieces as nodes: every second piece is injected text; matches of the search are marked too.
function textNodes(number, pattern) {
  return pieces(number).flatMap((piece, index) => {
    if (!piece) return [];
    const nodes = found(piece, pattern);
    return index % 2 ? [element("mark", "injected", ...nodes)] : nodes;
  });
}

function found(piece, pattern) {
  if (!pattern) return visible(piece);
  const nodes = [];
  let end = 0;
  for (const match of piece.matchAll(pattern)) {
    if (!match[0]) continue;
    nodes.push(...visible(piece.slice(end, match.index)), element("mark", "hit", ...visible(match[0])));
    end = match.index + match[0].length;
  }
  return [...nodes, ...visible(piece.slice(end))];
}

function textLength(number) {
  return pieces(number).reduce((sum, piece) => sum + piece.length, 0);
}

// A text; a long one is folded until it is asked for, unless it holds what is looked at.
function textBlock(number, pattern, className = "") {
  const block = element("pre", `text ${className}`, ...textNodes(number, pattern));
  const interesting = block.querySelector("mark");
  if (textLength(number) <= LONG || interesting) return block;
  block.classList.add("folded");
  const more = element("button", "more", `Show all ${amount(textLength(number))} characters`);
  more.type = "button";
  more.addEventListener("click", () => {
    block.classList.remove("folded");
    block.tabIndex = -1;
    block.focus();
    more.remove();
  });
  return element("div", "", block, more);
}

function holdsInjection(message) {
  const numbers = [...message.parts, ...(message.calls || []).map((call) => call.args)];
  return numbers.some((number) => pieces(number).length > 1);
}

function holdsMatch(numbers, pattern) {
  return Boolean(pattern) && numbers.some((number) => pieces(number).join("").match(pattern));
}

function messageView(message, pattern) {
  const label = message.role === "tool" ? "tool result" : message.role;
  const head = [chip(label, `role-${message.role}`)];
  if (message.answers) head.push(element("code", "", oneLine(message.answers)));
  if (holdsInjection(message)) head.push(chip("holds the injection", "bad"));
  const body = () => element(
    "div", "message-body",
    ...message.parts.map((part) => textBlock(part, pattern)),
    ...(message.calls || []).map((call) => callView(call, pattern)),
    message.error === undefined ? null
      : element("div", "", chip("error", "bad"), textBlock(message.error, pattern)),
  );
  const known = ["system", "user", "assistant", "tool"].includes(message.role) ? message.role : "other";
  if (message.role === "system" && !holdsMatch(message.parts, pattern)) {
    const characters = message.parts.reduce((sum, part) => sum + textLength(part), 0);
    head.push(element("span", "quiet", count(characters, "character")));
    return lazyDetails(head, body, { className: "message system" });
  }
  return element("div", `message ${known}`, element("div", "message-head", ...head), body());
}

function callView(call, pattern) {
  return element(
    "div", "call",
    element("div", "call-head", "calls ", element("code", "", oneLine(call.tool))),
    textBlock(call.args, pattern, "arguments"),
  );
}

// `alike`: after so many messages (system prompts aside) the case beside this one goes on in another way.
function conversation(messages, pattern, alike = null) {
  if (!messages.length) return element("p", "quiet", "No messages were recorded.");
  const shown = messages.map((message) => messageView(message, pattern));
  const spoken = messages.map(({ role }, place) => (role === "system" ? null : place)).filter((place) => place !== null);
  if (alike !== null && alike < spoken.length) {
    const text = alike ? `${count(alike, "message")} alike; from here they differ` : "They differ from the beginning";
    shown.splice(spoken[alike], 0, element("p", "parting", text));
  }
  return element("div", "conversation", ...shown);
}
