"use strict";

const form = document.getElementById("filter");
const fields = form.elements;
const cases = [...document.querySelectorAll(".case")];
// What is looked through: all in words, but not the wire, which is large.
const words = new Map(cases.map((each) => [
  each,
  [...each.querySelectorAll("summary, .facts")].map((part) => part.textContent).join("\n")
    .toLowerCase(),
]));

function wanted(each, choice) {
  const data = each.dataset;
  return choice.verdicts.has(data.verdict)
    && (!choice.group || data.group === choice.group)
    && (!choice.clause || data.clauses.split("\n").includes(choice.clause))
    && (!choice.unexpected || "unexpected" in data)
    && choice.text.every((word) => words.get(each).includes(word));
}

function apply() {
  const choice = {
    verdicts: new Set(new FormData(form).getAll("verdict")),
    group: fields.group.value,
    clause: fields.clause.value,
    unexpected: fields.unexpected.checked,
    text: fields.text.value.toLowerCase().split(/\s+/).filter(Boolean),
  };
  let shown = 0;
  for (const each of cases) {
    each.hidden = !wanted(each, choice);
    shown += !each.hidden;
  }
  document.getElementById("shown").textContent = `${shown} of ${cases.length} shown`;
}

function showOnly(group, verdict) {
  form.reset();
  fields.group.value = group;
  for (const box of form.querySelectorAll("[name=verdict]")) box.checked = box.value === verdict;
  apply();
  form.scrollIntoView({ block: "start" });
}

form.addEventListener("input", apply);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(apply));
document.getElementById("overview").addEventListener("click", (event) => {
  const cell = event.target.closest("button.cell");
  if (cell) showOnly(cell.dataset.group, cell.dataset.only);
});
form.hidden = false;
// A page that is loaded again comes with what was in the form before.
apply();
