// Policies, and the form that adds or replaces one.
import { get, path } from "./api.js";
import { columns, h, table } from "./dom.js";

const field = (label, attributes) => h("label", {}, label, h("input", attributes));

export const policies = {
  title: "Policies",
  load: () => Promise.all([get("policies"), get("vhosts")]),
  actions: {
    add: (typed, ask) => ask("PUT", path("policies", typed.vhost, typed.name), {
      pattern: typed.pattern, definition: JSON.parse(typed.definition),
      priority: Number(typed.priority), "apply-to": typed.apply,
    }),
    remove: ({ vhost, name }, ask) => ask("DELETE", path("policies", vhost, name)),
  },
  render: ([all, vhosts]) => [
    h("h1", {}, "Policies"),
    table("Policies", columns(
      ["Vhost", (each) => each.vhost],
      ["Name", (each) => each.name],
      ["Pattern", (each) => h("code", {}, each.pattern)],
      ["Applies to", (each) => each["apply-to"]],
      ["Definition", (each) => h("code", {}, JSON.stringify(each.definition))],
      ["Priority", (each) => each.priority, true],
      ["", (each) => h("button", { type: "button", "data-do": "remove", "data-vhost": each.vhost,
        "data-name": each.name, "aria-label": `Delete policy ${each.name}` }, "Delete")],
    ), all, "There are no policies."),
    h("h2", {}, "Add or replace a policy"),
    h("form", { "data-do": "add" },
      h("label", {}, "Vhost", h("select", { name: "vhost" },
        vhosts.map((each) => h("option", { value: each.name }, each.name)))),
      field("Name", { name: "name", required: true }),
      field("Pattern", { name: "pattern", required: true, value: "^" }),
      h("label", {}, "Applies to", h("select", { name: "apply" },
        ["all", "queues", "exchanges"].map((each) => h("option", { value: each }, each)))),
      field("Definition", { name: "definition", required: true, size: 34,
        value: '{"ha-mode":"all","ha-sync-mode":"automatic"}' }),
      field("Priority", { name: "priority", type: "number", value: "0" }),
      h("button", {}, "Add")),
  ],
};
