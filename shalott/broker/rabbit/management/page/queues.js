// All queues, as RabbitMQ's page lists them.
import { get } from "./api.js";
import { columns, count, h, rate, table, tip } from "./dom.js";

export const hrefOf = (view, queue) =>
  `#/${view}/${encodeURIComponent(queue.vhost)}/${encodeURIComponent(queue.name)}`;

export const unsynchronised = (queue) =>
  queue.slave_nodes.filter((node) => !queue.synchronised_slave_nodes.includes(node));

// How many mirrors the policy wants, as far as the nodes go round.
export function wanted(queue, nodes) {
  const { "ha-mode": mode, "ha-params": parameters } = queue.effective_policy_definition ?? {};
  if (mode === "all") return nodes - 1;
  if (mode === "exactly") return Math.min(parameters, nodes) - 1;
  if (mode === "nodes") return parameters.length - 1;
  return 0;
}

export function node(queue, nodes) {
  const behind = unsynchronised(queue);
  const missing = wanted(queue, nodes) - queue.slave_nodes.length;
  return [
    queue.node || h("span", { class: "bad" }, "none"), " ",
    queue.synchronised_slave_nodes.length
      ? tip(`+${queue.synchronised_slave_nodes.length}`,
        `Synchronised mirrors: ${queue.synchronised_slave_nodes.join(", ")}`) : null,
    behind.length
      ? tip(`+${behind.length}`, `Unsynchronised mirrors: ${behind.join(", ")}`, "bad") : null,
    missing > 0 ? h("span", { class: "warn" }, `${missing} missing`) : null,
  ];
}

export const policy = (queue) => queue.policy == null ? "" : tip(queue.policy,
  `${JSON.stringify(queue.effective_policy_definition)} `
  + (queue.slave_nodes.length ? `Mirrors: ${queue.slave_nodes.join(", ")}` : "No mirrors"), "tag");

export const state = (queue) => h("span", {
  class: { running: "good", syncing: "warn" }[queue.state] ?? "bad",
}, queue.state);

const features = (queue) => [
  queue.durable ? "D" : null, queue.auto_delete ? "AD" : null, queue.exclusive ? "Excl" : null,
  Object.keys(queue.arguments).length ? "Args" : null,
].filter(Boolean).join(" ");

export const queues = {
  title: "Queues",
  load: () => Promise.all([get("queues"), get("nodes")]),
  render: ([all, nodes]) => [
    h("h1", {}, "Queues"),
    h("label", {}, "Filter ", h("input", { "data-filter": "", type: "search" })),
    table("Queues", columns(
      ["Name", (queue) => h("a", { href: hrefOf("queue", queue) }, queue.name)],
      ["Vhost", (queue) => queue.vhost],
      ["Node", (queue) => h("span", {}, node(queue, nodes.length))],
      ["Policy", policy],
      ["Features", features],
      ["State", state],
      ["Ready", (queue) => count(queue.messages_ready), true],
      ["Unacked", (queue) => count(queue.messages_unacknowledged), true],
      ["Total", (queue) => count(queue.messages), true],
      ["In", (queue) => rate(queue.message_stats, "publish"), true],
      ["Out", (queue) => rate(queue.message_stats, "deliver_get"), true],
      ["Ack", (queue) => rate(queue.message_stats, "ack"), true],
      ["Ring", (queue) => h("a", { href: hrefOf("ring", queue) }, "ring")],
    ), all, "There are no queues."),
  ],
};
