// One queue: its master and mirrors, who is synchronised, what it is bound to, who consumes.
import { get, path } from "./api.js";
import { bytes, card, columns, count, h, rate, table, yes } from "./dom.js";
import { hrefOf, policy, state, unsynchronised, wanted } from "./queues.js";

const act = (action) => (_, ask, vhost, name) =>
  ask("POST", path("queues", vhost, name, "actions"), { action });

function processes(queue) {
  const mirrors = queue.slave_nodes.map((node, at) => ({
    node, pid: queue.slave_pids[at], role: "mirror",
    synchronised: queue.synchronised_slave_nodes.includes(node),
  }));
  const master = { node: queue.node || "none", pid: queue.pid, role: "master", synchronised: true };
  return [master, ...mirrors];
}

function synchronisation(queue) {
  const done = queue.sync_messages, all = queue.sync_messages_total;
  return [
    done == null ? null : h("p", { class: "warn" }, `Synchronising: ${done} of ${all} messages `,
      h("progress", { value: done, max: Math.max(all, 1), "aria-label": "synchronised" })),
    h("p", {},
      h("button", { "data-do": "sync", type: "button" }, "Synchronise"), " ",
      h("button", { "data-do": "cancel", type: "button" }, "Cancel the synchronisation")),
  ];
}

export const queue = {
  title: "Queue",
  load: (vhost, name) => Promise.all([
    get("queues", vhost, name), get("queues", vhost, name, "bindings"), get("consumers", vhost),
    get("nodes"),
  ]),
  actions: { sync: act("sync"), cancel: act("cancel_sync") },
  render([told, bindings, consumers, nodes]) {
    const stats = told.message_stats, missing = wanted(told, nodes.length) - told.slave_nodes.length;
    return [
      h("h1", {}, "Queue ", told.name),
      h("p", {}, "Vhost ", told.vhost, " · ", state(told), " · policy ",
        policy(told) || "none", " · ", h("a", { href: hrefOf("ring", told) }, "its ring, live")),
      h("div", { class: "cards" },
        card("Ready", count(told.messages_ready)),
        card("Unacked", count(told.messages_unacknowledged)),
        card("Total", count(told.messages)), card("Held", bytes(told.message_bytes)),
        card("In", rate(stats, "publish") || "0.0/s"),
        card("Out", rate(stats, "deliver_get") || "0.0/s"),
        card("Ack", rate(stats, "ack") || "0.0/s")),
      h("h2", {}, "Master and mirrors"),
      table("Master and mirrors", columns(
        ["Node", (each) => each.node],
        ["Role", (each) => each.role],
        ["Synchronised", (each) => (each.synchronised ? h("span", { class: "good" }, "yes")
          : h("span", { class: "bad" }, "no"))],
        ["Process", (each) => each.pid ?? "none"],
      ), processes(told)),
      missing > 0 ? h("p", { class: "warn" },
        `${missing} of ${wanted(told, nodes.length)} mirrors that the policy wants are missing.`)
        : null,
      unsynchronised(told).length ? h("p", { class: "bad" },
        `${unsynchronised(told).length} unsynchronised: ${unsynchronised(told).join(", ")}`) : null,
      told.slave_nodes.length ? synchronisation(told) : null,
      h("h2", {}, "Bindings"),
      table("Bindings", columns(
        ["From", (each) => each.source || "(default exchange)"],
        ["Routing key", (each) => each.routing_key],
        ["Arguments", (each) => JSON.stringify(each.arguments)],
      ), bindings, "It is not bound."),
      h("h2", {}, "Consumers"),
      table("Consumers", columns(
        ["Channel", (each) => each.channel_details.name],
        ["Tag", (each) => each.consumer_tag],
        ["Ack required", (each) => yes(each.ack_required)],
        ["Prefetch", (each) => each.prefetch_count, true],
        ["Active", (each) => each.activity_status],
      ), consumers.filter((each) => each.queue.name === told.name), "Nobody consumes."),
    ];
  },
};
