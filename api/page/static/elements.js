// Elements from data. Text only ever becomes text nodes: whatever an owner wrote is shown, never run.
export function element(tag, { classes = "", text, click, ...attributes } = {}, ...children) {
  const made = document.createElement(tag);
  if (classes) made.className = classes;
  if (text !== undefined) made.textContent = text;
  if (click) made.addEventListener("click", click);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter(Boolean));
  return made;
}

const WINDOWS = { "1m": "1 minute", "1h": "1 hour", "1d": "1 day", "1w": "1 week", "1mo": "1 month", "1y": "1 year" };
const CHANGES = { UP: "gains", DOWN: "loses", EITHER: "gains or loses" };

export function time(text) {
  return new Date(text).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

function rule(alert) {
  if (alert.kind === "price") return `crosses to ${alert.direction === "ABOVE" ? "at or above" : "at or below"} ${alert.target}`;
  return `${CHANGES[alert.direction]} ${alert.threshold_percent}% in ${WINDOWS[alert.window]}`;
}

function stamps(alert) {
  if (alert.trigger) return `triggered ${time(alert.trigger.event_time)}`;
  if (["PENDING", "ACTIVE", "PAUSED", "EXPIRING"].includes(alert.status)) return `until ${time(alert.expires_at)}`;
  return alert.ended_at ? `ended ${time(alert.ended_at)}` : "";
}

// `act` maps an action's word to what a click does; `deliveries` is an element or null.
export function alertItem(alert, act, fresh, deliveries) {
  const down = alert.trigger && ["DOWN", "BELOW"].includes(alert.trigger.fired);
  const words = [];
  if (alert.trigger) words.push([deliveries ? "Hide deliveries" : "Deliveries", "deliveries"]);
  if (alert.status === "ACTIVE") words.push(["Pause", "pause"]);
  if (alert.status === "PAUSED") words.push(["Resume", "resume"]);
  if (["PENDING", "ACTIVE", "PAUSED", "EXPIRING"].includes(alert.status)) words.push(["Cancel", "cancel"]);
  const buttons = words.map(([text, action]) =>
    element("button", { classes: "quiet", type: "button", text, click: () => act[action](alert),
      "aria-label": `${text}: ${alert.symbol} ${rule(alert)}` }));
  return element("li", { classes: `alert ${alert.status}${down ? " down" : ""}${fresh ? " fresh" : ""}` },
    element("div", { classes: "line" },
      element("span", { classes: "symbol", text: alert.symbol }),
      element("span", { classes: "rule", text: rule(alert) }),
      element("span", { classes: "badge", text: alert.status.toLowerCase() })),
    alert.note && element("p", { classes: "note", text: alert.note }),
    alert.trigger && element("p", { classes: "evidence", text: readable(alert.trigger.summary) }),
    element("div", { classes: "foot" },
      element("span", { text: `#${alert.alert_id}` }),
      element("span", { text: stamps(alert) }),
      element("span", { classes: "actions" }, ...buttons)),
    deliveries);
}

// The evidence says times in full; whole seconds in UTC read better.
const readable = (summary) => summary.replace(/(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.000)?(\.\d+)?Z/g, "$1 $2$3 UTC");

export function deliveryList(deliveries) {
  const items = deliveries.map((d) => element("li", {},
    element("span", { classes: d.status, text: d.status.toLowerCase() }),
    element("span", { text: `${d.kind} to ${d.address}` }),
    element("span", { text: d.delivered_at ? time(d.delivered_at) : `${d.attempts} attempts so far` }),
    d.last_error && element("span", { text: d.last_error })));
  const none = element("li", { text: "No message is under way yet: it has no channel, or the notifier has not taken it." });
  return element("ul", { classes: "deliveries" }, ...(items.length ? items : [none]));
}
