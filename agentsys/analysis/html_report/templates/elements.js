// Building elements. Stored text reaches the page through `textContent` and text nodes only.

const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/u;
const HIDDEN_RUNS = /([\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}])/u;

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

// Characters that hide or reorder text are shown as their code, e.g. U+202E.
function visible(text) {
  if (!HIDDEN.test(text)) return [text];
  return text.split(HIDDEN_RUNS).filter(Boolean).map((piece) => {
    if (piece === "\n" || piece === "\t" || !HIDDEN.test(piece)) return piece;
    const code = piece.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    const shown = element("span", "hidden-character", `U+${code}`);
    shown.title = "a character that is not visible";
    return shown;
  });
}

function oneLine(text) {
  return element("span", "", ...visible(String(text).replace(/\s+/g, " ")));
}

function plainText(text) {
  return oneLine(text).textContent;
}

function chip(text, tone, title) {
  const made = element("span", `chip ${tone || ""}`, oneLine(text));
  if (title) made.title = title;
  return made;
}

// Details whose content is built when they are opened for the first time.
function lazyDetails(summary, build, { open = false, className = "" } = {}) {
  const made = element("details", className, element("summary", "", ...summary));
  let built = false;
  const fill = () => {
    if (!made.open || built) return;
    built = true;
    made.append(build());
  };
  made.addEventListener("toggle", fill);
  made.open = open;
  fill();
  return made;
}

function amount(number) {
  return number.toLocaleString("en", { maximumFractionDigits: 0 });
}

function seconds(value) {
  return value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(1)} s`;
}

function count(number, word) {
  return `${amount(number)} ${word}${number === 1 ? "" : "s"}`;
}
