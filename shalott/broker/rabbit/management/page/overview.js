// The cluster in numbers, and each node with its own view of the others.
import { get } from "./api.js";
import { bytes, card, columns, count, h, rate, table } from "./dom.js";

export const alarms = (node) => [
  node.mem_alarm ? h("span", { class: "bad" }, "memory ") : null,
  node.disk_free_alarm ? h("span", { class: "bad" }, "disk ") : null,
  !node.mem_alarm && !node.disk_free_alarm ? "none" : null,
];

const memory = (view) => view.self.mem_used != null
  ? `${bytes(view.self.mem_used)} of ${bytes(view.self.mem_limit)}`
  : `${bytes(view.message_bytes)} of messages`;

const known = (cell) => (view) => (view.reachable ? cell(view) : "");

// Whether the nodes tell of different clusters, and how.
export function troubles(views) {
  const found = [];
  const names = views.map((each) => each.node);
  for (const view of views) {
    if (!view.reachable) {
      found.push(`${view.node} is unreachable from here (${view.reason}).`);
      continue;
    }
    const missing = names.filter((name) => !view.running_nodes.includes(name));
    if (view.status !== "running") found.push(`The broker on ${view.node} is ${view.status}.`);
    else if (missing.length) found.push(`${view.node} runs without ${missing.join(", ")}.`);
    if (view.partitions.length)
      found.push(`${view.node} ran apart from ${view.partitions.join(", ")}: a partition.`);
  }
  return found;
}

export const banner = (views, more = null) => {
  const found = troubles(views);
  if (!found.length) return null;
  return h("div", { class: "banner", role: "status" }, h("strong", { class: "bad" },
    "The cluster is not whole. "), found.join(" "), " ", more);
};

export const overview = {
  title: "Overview",
  load: () => Promise.all([get("overview"), get("shalott", "views")]),
  render([told, { views }]) {
    const totals = told.queue_totals, objects = told.object_totals, stats = told.message_stats;
    return [
      h("h1", {}, "Overview"),
      banner(views, h("a", { href: "#/cluster" }, "Every node's view side by side")),
      h("div", { class: "cards" },
        card("Ready", totals.messages_ready), card("Unacked", totals.messages_unacknowledged),
        card("Total", totals.messages),
        card("Published", rate(stats, "publish") || "0.0/s"),
        card("Delivered", rate(stats, "deliver_get") || "0.0/s"),
        card("Acknowledged", rate(stats, "ack") || "0.0/s")),
      h("div", { class: "cards" },
        ["connections", "channels", "exchanges", "queues", "consumers"].map((name) =>
          h("a", { href: `#/${name}` }, card(name, count(objects[name]))))),
      h("h2", {}, "Nodes"),
      table("Nodes", [
        ...columns(
          ["Name", (view) => view.node],
          ["State", (view) => view.reachable
            ? h("span", { class: view.status === "running" ? "good" : "bad" }, view.status)
            : h("span", { class: "bad" }, "unreachable from here")],
          ["Runs with", known((view) => view.running_nodes.join(", ") || "nobody")],
        ),
        { label: "Partitions", cell: known((view) => view.partitions.join(", ") || "none"),
          wrong: (view) => view.reachable && view.partitions.length },
        ...columns(
          ["Alarms", known((view) => alarms(view.self))],
          ["Memory", known(memory), true],
          ["Disk free", known((view) => bytes(view.self.disk_free)), true],
          ["Up", known((view) => `${Math.round(view.self.uptime / 1000)} s`), true],
        ),
      ], views),
    ];
  },
};
