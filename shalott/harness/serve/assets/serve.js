// What every page can do by keys, and copying. Pages work without it.
const rows = () => [...document.querySelectorAll("[data-row]")];
let at = -1;

function go(step) {
  const all = rows();
  if (!all.length) return;
  all[at]?.classList.remove("here");
  at = Math.min(Math.max(at + step, 0), all.length - 1);
  all[at].classList.add("here");
  all[at].scrollIntoView({ block: "nearest" });
  all[at].querySelector("[data-open]")?.focus({ preventScroll: true });
}

const keys = {
  j: () => go(1),
  k: () => go(-1),
  "/": () => document.querySelector("[data-search]")?.focus(),
};
for (const link of document.querySelectorAll("[data-key]"))
  keys[link.dataset.key] = () => link.click();

addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && typing) return typing.blur();
  if (typing || !Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
});

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  const text = button.previousElementSibling;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(text);
    }
  });
}

// No more than two runs are compared: the one that was chosen first is let go.
const chosen = [];
for (const box of document.querySelectorAll("input[form=compare]"))
  box.addEventListener("change", () => {
    if (!box.checked) return void chosen.splice(chosen.indexOf(box), 1);
    chosen.push(box);
    if (chosen.length > 2) chosen.shift().checked = false;
  });

// Empty fields need not stand in the address.
for (const form of document.querySelectorAll("form.filters"))
  form.addEventListener("formdata", ({ formData }) => {
    for (const [name, value] of [...formData]) if (value === "") formData.delete(name);
  });
