// What is a plain list: connections, channels, consumers, exchanges, virtual hosts and users.
import { get } from "./api.js";
import { columns, count, h, table, yes } from "./dom.js";

const FILTER = () =>
  h("label", {}, "Filter ", h("input", { "data-filter": "", type: "search" }));

const listing = (title, segment, ...named) => ({
  title,
  load: () => get(segment),
  render: (rows) =>
    [h("h1", {}, title), FILTER(), table(title, columns(...named), rows, "There are none.")],
});

export const listings = {
  exchanges: listing("Exchanges", "exchanges",
    ["Vhost", (row) => row.vhost], ["Name", (row) => row.name || "(default)"],
    ["Type", (row) => row.type], ["Durable", (row) => yes(row.durable)],
    ["Auto-delete", (row) => yes(row.auto_delete)], ["Internal", (row) => yes(row.internal)],
    ["Policy", (row) => row.policy ?? ""]),
  connections: listing("Connections", "connections",
    ["Name", (row) => row.name], ["Node", (row) => row.node], ["User", (row) => row.user],
    ["Vhost", (row) => row.vhost], ["State", (row) => row.state],
    ["Channels", (row) => count(row.channels), true], ["Protocol", (row) => row.protocol]),
  channels: listing("Channels", "channels",
    ["Name", (row) => row.name], ["Node", (row) => row.node], ["User", (row) => row.user],
    ["Confirms", (row) => yes(row.confirm)],
    ["Unconfirmed", (row) => count(row.messages_unconfirmed), true],
    ["Unacked", (row) => count(row.messages_unacknowledged), true],
    ["Prefetch", (row) => count(row.prefetch_count), true],
    ["Consumers", (row) => count(row.consumer_count), true]),
  consumers: listing("Consumers", "consumers",
    ["Queue", (row) => row.queue.name], ["Vhost", (row) => row.queue.vhost],
    ["Tag", (row) => row.consumer_tag], ["Channel", (row) => row.channel_details.name],
    ["Node", (row) => row.channel_details.node], ["Ack required", (row) => yes(row.ack_required)],
    ["Prefetch", (row) => count(row.prefetch_count), true],
    ["Active", (row) => row.activity_status]),
  vhosts: listing("Virtual hosts", "vhosts",
    ["Name", (row) => row.name],
    ["State", (row) => Object.entries(row.cluster_state).map((pair) => pair.join(": ")).join(", ")]),
  users: listing("Users", "users",
    ["Name", (row) => row.name], ["Tags", (row) => row.tags.join(", ")]),
};
