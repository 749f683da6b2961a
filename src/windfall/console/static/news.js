// News from the server: one stream for all windows of a browser where it can be shared, else one of our own.

let port = null, source = null, hear = () => {};
// How many windows are seen; before we are told it may be any number. Requests that wait take connections, too.
export let windows = Infinity;

function shared() {
  const { port: made } = new SharedWorker("/console/shared.js", "windfall");
  made.onmessage = ({ data }) => { windows = data.windows; hear(data.name, data.data); };
  window.addEventListener("pagehide", () => made.postMessage("gone"));
  return made;
}

function own() {
  windows = 1;
  source?.close();
  source = new EventSource("/v1/stream");
  for (const name of ["hello", "change", "signed-out"]) source.addEventListener(name, (event) => hear(name, event.data));
  source.onerror = () => hear("error", "");
}

// `heard` gets each message by name: hello, change (with JSON), signed-out, error.
export function listen(heard, anew = false) {
  hear = heard;
  try { if (globalThis.SharedWorker) port ??= shared(); } catch { /* a browser that forbids it */ }
  if (port) port.postMessage(anew ? "anew" : "listen");
  else if (anew || !source || source.readyState === EventSource.CLOSED) own();
}

export function quiet() {
  port?.postMessage("quiet");
  source?.close();
}
