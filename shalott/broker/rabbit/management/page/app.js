// What is shown, by the part of the address behind #; asked again every few seconds.
import { Refused, ask, get, logIn, logOut } from "./api.js";
import { h, patch } from "./dom.js";
import { overview } from "./overview.js";
import { cluster } from "./cluster.js";
import { queues } from "./queues.js";
import { queue } from "./queue.js";
import { ring } from "./ring.js";
import { policies } from "./policies.js";
import { listings } from "./listings.js";

// name -> {title, load(...parameters), render(data, ...parameters), actions?}
const VIEWS = { overview, cluster, queues, policies, ...listings, queue, ring };
const MENU = ["overview", "cluster", "queues", "policies", ...Object.keys(listings)];
const KEYS = { o: "overview", c: "cluster", q: "queues", p: "policies" };

const at = (id) => document.getElementById(id);
let timer, turn = 0;

function place() {
  const [name, ...parameters] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return VIEWS[name] ? { name, parameters } : { name: "overview", parameters: [] };
}

function show(content, name) {
  patch(at("content"), h("main", {}, content));
  patch(at("nav"), h("nav", {}, MENU.map((each) =>
    h("a", { href: `#/${each}`, "aria-current": each === name ? "page" : null },
      VIEWS[each].title)),
    h("a", { href: "#/", "data-do": "logOut" }, "Log out")));
}

function trouble(text) {
  at("trouble").hidden = !text;
  at("trouble").textContent = text ?? "";
}

const login = (why) => [
  h("h1", {}, "Log in"),
  why === "Log in" ? null : h("p", { class: "bad" }, why),
  h("form", { "data-do": "logIn" },
    h("label", {}, "Name", h("input", { name: "name", autocomplete: "username", required: true })),
    h("label", {}, "Password",
      h("input", { name: "password", type: "password", autocomplete: "current-password" })),
    h("button", {}, "Log in")),
];

async function refresh() {
  clearTimeout(timer);
  const mine = ++turn, { name, parameters } = place(), view = VIEWS[name];
  try {
    const [data, { node }] = await Promise.all([view.load(...parameters), get("shalott", "app")]);
    if (mine !== turn) return;
    document.title = `${view.title} · ${node} · Shalott`;
    at("where").textContent = `as ${node} has it, ${new Date().toLocaleTimeString()}`;
    show(view.render(data, ...parameters), name);
    trouble();
  } catch (error) {
    if (mine !== turn) return;
    if (error instanceof Refused) {
      at("where").textContent = "";
      patch(at("nav"), h("nav"));
      if (!at("content").querySelector("form[data-do=logIn]") || error.message !== "Log in")
        patch(at("content"), h("main", {}, login(error.message)));
      return;
    }
    trouble(error instanceof TypeError ? "This node does not answer. What is shown is old."
      : error.message);
  }
  schedule();
}

function schedule() {
  clearTimeout(timer);
  const every = Number(at("every").value);
  if (every) timer = setTimeout(refresh, every);
}

const OWN = {
  logIn({ name, password }) { logIn(name, password); },
  logOut() { logOut(); },
};

async function act(element) {
  const { parameters, name } = place();
  const action = OWN[element.dataset.do] ?? VIEWS[name].actions?.[element.dataset.do];
  const typed = element instanceof HTMLFormElement
    ? Object.fromEntries(new FormData(element)) : element.dataset;
  try {
    await action(typed, ask, ...parameters);
    if (element instanceof HTMLFormElement) element.reset();
    await refresh();
  } catch (error) {
    trouble(error.message);
  }
}

document.addEventListener("submit", (event) => {
  event.preventDefault();
  act(event.target);
});
document.addEventListener("click", (event) => {
  if (event.target.closest(".skip")) {
    event.preventDefault();
    at("content").focus();
    return;
  }
  const element = event.target.closest("button[data-do], a[data-do]");
  if (element) act(element);
});
document.addEventListener("input", (event) => {
  if (event.target.dataset.filter !== undefined) filter();
});
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (KEYS[event.key]) location.hash = `#/${KEYS[event.key]}`;
  else if (event.key === "s") at("content").focus();
  else if (event.key === "/") {
    event.preventDefault();
    document.querySelector("[data-filter]")?.focus();
  }
});

// Rows whose text has what is typed; asked for again at each refresh.
function filter() {
  const wanted = document.querySelector("[data-filter]")?.value.toLowerCase() ?? "";
  for (const row of document.querySelectorAll("#content tbody tr"))
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
}
new MutationObserver(filter).observe(at("content"), { childList: true, subtree: true,
  characterData: true });

addEventListener("hashchange", () => { patch(at("content"), h("main")); refresh(); });
at("every").addEventListener("change", schedule);
refresh();
