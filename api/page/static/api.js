// The API as this page uses it. The key lives in this tab's session storage and goes nowhere but to this server.
const STORED = "alerts-api-key";

export const key = {
  get: () => sessionStorage.getItem(STORED),
  set: (text) => sessionStorage.setItem(STORED, text),
  forget: () => sessionStorage.removeItem(STORED),
};

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `The server answered ${status}.`);
    this.status = status;
  }
}

async function call(method, path, { body, headers } = {}) {
  let response;
  try {
    response = await fetch(path, {
      method,
      cache: "no-store",
      headers: {
        Authorization: `Bearer ${key.get()}`,
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0, { detail: "The server does not answer; trying again." });
  }
  const text = await response.text();
  const answer = text ? JSON.parse(text) : null;
  if (!response.ok) throw new ApiError(response.status, answer || {});
  return answer;
}

const query = (values) => new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();

export const api = {
  alerts: (status, cursor, limit) => call("GET", `/v1/alerts?${query({ status, cursor, limit })}`),
  // One idempotency key a submission: if the answer is lost, sending it again makes no second alert.
  create: (body, idempotencyKey) =>
    call("POST", "/v1/alerts?wait=5", { body, headers: { "Idempotency-Key": idempotencyKey } }),
  cancel: (id) => call("DELETE", `/v1/alerts/${id}`),
  pause: (id) => call("POST", `/v1/alerts/${id}/pause`),
  resume: (id) => call("POST", `/v1/alerts/${id}/resume`),
  deliveries: (id) => call("GET", `/v1/alerts/${id}/deliveries`),
  instruments: (prefix) => call("GET", `/v1/instruments?${query({ prefix, limit: 50 })}`),
  status: () => call("GET", "/v1/status"),
  channels: () => call("GET", "/v1/channels"),
  addChannel: (body) => call("POST", "/v1/channels", { body }),
  deleteChannel: (id) => call("DELETE", `/v1/channels/${id}`),
};
