// Tables are sorted by a click on a column's heading: largest first, then smallest first, then as they were.

const SORTED = new Map();

function cellValue(row, column) {
  const cell = row.cells[column];
  const text = cell ? (cell.querySelector("a") || cell.firstChild || cell).textContent.trim() : "";
  const number = Number.parseFloat(text.replace(/[,†‡*]/g, ""));
  return { text, number };
}

function inOrder(one, other) {
  const [a, b] = [one.value.number, other.value.number];
  if (Number.isNaN(a) || Number.isNaN(b)) {
    return Number.isNaN(a) && Number.isNaN(b) ? one.value.text.localeCompare(other.value.text, "en", { numeric: true }) : Number.isNaN(a) - Number.isNaN(b);
  }
  return b - a;
}

function sortTable(table, rows, column, direction) {
  const valued = rows.map((row) => ({ row, value: cellValue(row, column) }));
  // What is no number (n/a) stays last either way.
  const turned = (one, other) => (Number.isNaN(one.value.number) === Number.isNaN(other.value.number) ? -1 : 1) * inOrder(one, other);
  if (direction) valued.sort(direction === "descending" ? inOrder : turned);
  table.tBodies[0].replaceChildren(...valued.map(({ row }) => row));
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    if (place === column && direction) head.setAttribute("aria-sort", direction);
    else head.removeAttribute("aria-sort");
  });
}

const NEXT = { "": "descending", descending: "ascending", ascending: "" };

function makeSortable(table) {
  const name = table.caption ? `${table.closest("[aria-label]")?.getAttribute("aria-label")} ${table.caption.textContent}` : "";
  const rows = [...table.tBodies[0].rows];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = element("button", "sort", ...head.childNodes);
    button.type = "button";
    button.addEventListener("click", () => {
      const [before, direction] = SORTED.get(name) || [];
      SORTED.set(name, [column, NEXT[before === column ? direction : ""]]);
      sortTable(table, rows, ...SORTED.get(name));
    });
    head.replaceChildren(button);
  });
  if (SORTED.has(name)) sortTable(table, rows, ...SORTED.get(name));
}

function makeTablesSortable(root) {
  root.querySelectorAll("table").forEach((table) => { if (table.tHead && table.tBodies.length) makeSortable(table); });
}
